"""Both forms of a rewrite, run on the CPU with toy shapes, and what such probes say of a step."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from findwall.facts.facts import Facts
from findwall.fixes import NoUse, Use, all_fixes, fix_modules
from findwall.fixes.predict import predict
from findwall.fixes.prescribe import prescribe
from findwall.fixes.probed_uses import as_probed
from findwall.model.probes import CHEAPER, PLAIN, Draw, Probes, Rewrite
from findwall.probe.measuring import find_target, run_probes
from findwall.probe.probed_rewrites import draw, plan_rewrites, timed
from fixes import filter_calls, loop_calls
from fixes.op_calls import head, one_hot_rows, sorting, taking_rows
from speaking import in_words

pytestmark = pytest.mark.usefixtures("small_cache")
NONE = loop_calls.three().kernels.row[:0]
F = "float"


def forms(fix: str) -> object:
    return fix_modules()[fix]


def test_every_kind_of_argument_is_drawn_and_both_forms_run() -> None:
    torch = pytest.importorskip("torch")
    weight = Draw((6, 5), F, has_gradient=True)
    rewrites = [
        Rewrite("pairwise-product", (weight, Draw((7, 5), F), None), NONE, 1, backward=True),
        Rewrite("index-select", (weight, Draw((20,), "long int", below=6)), NONE, 1, backward=True),
        Rewrite("topk", (Draw((4, 9), "c10::BFloat16"), 3, True), NONE, 1),
        Rewrite("lookup-not-onehot", (Draw((20,), "long int", below=6), 6, weight, None), NONE, 1),
        Rewrite("foreach-checks", ([Draw((3,), F), Draw((4, 2), F)], 1.0), NONE, 1),
        Rewrite("where-not-mask", (Draw((8, 3), F, has_gradient=True), Draw((8, 3), "bool")), NONE, 1, True),
    ]
    probes = plan_rewrites([*rewrites, rewrites[0]])
    assert len(probes) == 2 * len(rewrites)  # what is the same is run once
    found = run_probes(find_target("cpu", None), probes, forms=forms)
    assert found.skipped == {}
    assert set(found.ns) == {probe.key for probe in probes}
    again = run_probes(find_target("cpu", None), probes, found)  # known ones need no forms
    assert again.ns == found.ns
    whole = draw(torch, torch.device("cpu"), Draw((1000,), "long int", below=6))
    assert sorted(set(whole.tolist())) == list(range(6))


def test_what_cannot_be_drawn_is_said() -> None:
    pytest.importorskip("torch")
    odd = Rewrite("topk", (Draw((4, 9), "c10::complex<float>"), 3, True), NONE, 1)
    known = Rewrite("topk", (Draw((4, 9), F), 3, True), NONE, 1)
    found = run_probes(find_target("cpu", None), plan_rewrites([odd]), forms=forms)
    assert set(found.skipped.values()) == {"a tensor of type c10::complex<float> cannot be made"}
    found = run_probes(find_target("cpu", None), plan_rewrites([known]))
    assert "nobody said where" in next(iter(found.skipped.values()))


def probed(facts: Facts, use: Use, ratio: float, plain: float = 1.0) -> Facts:
    """With probes of all its rewrites: the cheaper form takes `ratio` of the plain one, and that takes
    `plain` times what the trace shows."""
    ns = {}
    for one in use.rewrites:
        each = float(facts.timeline.events.duration[one.rows].sum()) / one.calls * plain
        ns[one.probe(PLAIN).key] = each
        ns[one.probe(CHEAPER).key] = each * ratio
    found = Probes("NVIDIA H200", "", "2.11", "2026-01-01", ns)
    return replace(facts, run=replace(facts.run, probes=found))


JOBS = {
    "pairwise-product": loop_calls.pairs,
    "product-order": loop_calls.three,
    "separable-filter": filter_calls.filtering,
    "scan-innermost": filter_calls.scanning,
    "topk": lambda: sorting(head(8)),
    "index-select": taking_rows,
    "lookup-not-onehot": one_hot_rows,
}


@pytest.mark.parametrize("fix", JOBS)
def test_a_measured_ratio_is_what_is_predicted(fix: str) -> None:
    facts = JOBS[fix]()
    use = all_fixes()[fix].advise(facts)
    assert isinstance(use, Use) and use.rewrites
    facts = probed(facts, use, 0.2)
    told = as_probed(facts, use)
    assert isinstance(told, Use)
    found = predict(facts, {fix: told})
    assert found is not None and found.basis == "probed"
    taken = sum(
        float(facts.timeline.events.duration[one.rows].sum()) / facts.steps.count for one in use.rewrites
    )
    assert facts.step - found.mid == pytest.approx(0.8 * taken, rel=0.1)


@pytest.mark.parametrize("fix", JOBS)
def test_what_is_not_faster_here_is_not_said(fix: str) -> None:
    facts = JOBS[fix]()
    use = all_fixes()[fix].advise(facts)
    assert isinstance(use, Use)
    told = as_probed(probed(facts, use, 1.1), use)
    assert isinstance(told, NoUse)
    assert "the other is not faster" in in_words(told)
    given, _ = prescribe(probed(facts, use, 1.1), use.moves[0] if use.moves else "slow-kernels")
    assert all(fix not in one.fixes for one in given)


def test_a_probe_that_ran_otherwise_than_the_job_does_not_count() -> None:
    """Its integers may be of another kind: all rows as often, where a job takes one of them most times."""
    facts = taking_rows()
    use = all_fixes()["index-select"].advise(facts)
    assert isinstance(use, Use)
    other = probed(facts, use, 1.1, plain=0.3)
    assert timed(other, use.rewrites[0]) is None
    assert as_probed(other, use) is use
    assert as_probed(facts, use) is use  # nobody probed
