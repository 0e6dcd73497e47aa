"""Rewrites of pairs, loops, copies, casts and masks: where they are seen, where they are not, and that the
cheaper form gives the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from findwall.causes import Told, all_causes
from findwall.causes.verdict import decide
from findwall.facts.facts import Facts
from findwall.fixes import CannotTell, NoUse, Outcome, Use, all_fixes
from findwall.fixes.at_best import step_at_best
from findwall.fixes.host import foreach_checks, scan_loop, where_not_mask
from findwall.fixes.kernels import pairwise_product, product_order
from findwall.fixes.less_work import cast_once, make_on_device, narrow_copies
from findwall.fixes.predict import predict
from findwall.model.events import Kind
from findwall.model.measured_run import HostLine
from findwall.replay.change import Drop
from fixes import loop_calls
from fixes.op_calls import FLOAT, HALF, Call
from sketch import facts_of, sketch
from speaking import in_words

FIXES = all_fixes()
FIRES: dict[str, tuple[Callable[[], Facts], str]] = {
    "pairwise-product": (loop_calls.pairs, "the 384 × 65,536 × 24 differences"),
    "foreach-checks": (loop_calls.checking, "the loop over 20 gradients"),
    "scan-loop": (loop_calls.over_time, "the 64 rounds of 2 small ops"),
    "narrow-copies": (loop_calls.uploading, "as uint8 from pinned memory"),
    "product-order": (loop_calls.three, "`a @ (b @ c)` instead of `(a @ b) @ c`"),
    "make-on-device": (loop_calls.made_on_the_host, "64,000,000 random numbers"),
    "cast-once": (loop_calls.casting, "model.to(torch.bfloat16)"),
    "where-not-mask": (loop_calls.masking, "torch.where(mask, x, 0)"),
}


def said(fix: str, facts: Facts) -> Outcome:
    return FIXES[fix].advise(facts)


@pytest.mark.parametrize("fix", FIRES)
def test_it_is_seen_and_shortens_the_step(fix: str) -> None:
    make, words = FIRES[fix]
    facts = make()
    use = said(fix, facts)
    assert isinstance(use, Use), use
    assert words in in_words(use)
    step, best = predict(facts, {fix: use}), step_at_best(FIXES[fix], use, facts)
    if fix == "make-on-device":  # a bound alone
        assert step is None and best < facts.step
        return
    assert step is not None
    assert best <= step.mid * 1.001
    assert step.mid < 0.95 * facts.step


def test_what_is_picked_and_put_back_may_stay_where_it_is() -> None:
    torch = pytest.importorskip("torch")
    facts = loop_calls.put_back()
    use = said("where-not-mask", facts)
    assert isinstance(use, Use), use
    assert "for `y[mask] = f(x[mask])`" in in_words(use)
    step = predict(facts, {"where-not-mask": use})
    assert step is not None and step_at_best(FIXES["where-not-mask"], use, facts) <= step.mid < facts.step
    x, results = torch.randn(50, dtype=torch.float64, requires_grad=True), []
    picks = x.clone()
    picks[x > 0] = x[x > 0].square()
    for form in (picks, torch.where(x > 0, x.square(), x)):
        results.append([form, *torch.autograd.grad(form.square().sum(), x)])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other)


def test_products_that_are_only_added_up_are_one_of_matrices() -> None:
    facts = loop_calls.summed()
    use = said("pairwise-product", facts)
    assert isinstance(use, Use), use
    assert "the 4,194,304 sums of 4,294,967,296 products" in in_words(use)
    step, best = (
        predict(facts, {"pairwise-product": use}),
        step_at_best(FIXES["pairwise-product"], use, facts),
    )
    assert step is not None and best <= step.mid < 0.95 * facts.step


def test_a_layer_that_converts_its_own_weight_is_seen_too() -> None:
    facts = loop_calls.casting_inside()
    use = said("cast-once", facts)
    assert isinstance(use, Use), use
    step = predict(facts, {"cast-once": use})
    assert step is not None and step.mid < 0.95 * facts.step  # the cast is gone, the product stays


def test_what_is_made_on_the_device_is_not_copied_at_best() -> None:
    facts = loop_calls.made_on_the_host()
    use = said("make-on-device", facts)
    assert isinstance(use, Use) and use.best is not None
    assert any(isinstance(edit, Drop) and len(edit.rows) > 0 for edit in use.best.edits)


@pytest.mark.parametrize(("op", "loops"), [("", True), ("aten::randn", False)])
def test_a_line_whose_op_is_at_work_is_no_loop(op: str, loops: bool) -> None:
    host = {"p": (Kind.OP, op)} if op else {}
    cpu = ("oppppppppp" if op else "o         ") * 4
    seen = (HostLine("train.py:9", "noise", 0.9, ""),)
    facts = facts_of(sketch(cpu, " mmmm     " * 4, "|         " * 4, host=host), host_lines=seen)
    assert isinstance(said("vectorise-loop", facts), Use) is loops
    assert isinstance(said("move-io-off-step", facts), Use) is loops


ORDERS = "0,1:ab,bc->ac;3,2:ac,cd->ad", "1,2:bc,cd->bd;0,3:ab,bd->ad"
NEAR_MISSES: list[tuple[str, Callable[[], Facts], type[Outcome], str]] = [
    ("pairwise-product", lambda: loop_calls.pairs(power="3"), CannotTell, "something else reads"),
    (
        "pairwise-product",  # the differences themselves are needed
        lambda: loop_calls.pairs(Call("aten::mul", (((384, 65_536, 24), FLOAT), ((384, 65_536, 1), FLOAT)))),
        CannotTell,
        "something else reads",
    ),
    (
        "pairwise-product",  # a product of two may be one with weights
        lambda: loop_calls.pairs(square="aten::mul"),
        CannotTell,
        "something else reads",
    ),
    ("pairwise-product", lambda: loop_calls.pairs(n=1), NoUse, "no differences of all pairs"),
    ("pairwise-product", lambda: loop_calls.pairs(d=2, us=100.0), NoUse, "no longer than a product"),
    # Nothing is added up that both sides have; one side alone is repeated; each product is needed.
    ("pairwise-product", lambda: loop_calls.summed(axis=2), NoUse, "no differences of all pairs"),
    ("pairwise-product", lambda: loop_calls.summed(across=1), NoUse, "no differences of all pairs"),
    (
        "pairwise-product",
        lambda: loop_calls.summed(Call("aten::exp", (((64, 1024, 256, 256), FLOAT),))),
        NoUse,
        "no differences of all pairs",
    ),
    ("foreach-checks", lambda: loop_calls.checking(of_gradients=False), NoUse, "no loop goes over"),
    ("foreach-checks", lambda: loop_calls.checking(parameters=4), NoUse, "no loop goes over"),
    ("scan-loop", lambda: loop_calls.over_time(carried=False), NoUse, "no loop carries"),
    ("scan-loop", lambda: loop_calls.over_time(then="aten::maximum"), NoUse, "no loop carries"),
    ("narrow-copies", lambda: loop_calls.uploading((96, 1, 320, 960)), NoUse, "no images"),
    ("narrow-copies", lambda: loop_calls.uploading(kind="unsigned char"), NoUse, "no images"),
    # Two products of one tensor look the same where its shape is the result's.
    ("product-order", lambda: loop_calls.three(4096, 8192, 8192), NoUse, "no product"),
    ("product-order", lambda: loop_calls.three(p=6000), NoUse, "the shorter order"),
    (
        "product-order",  # the product in the middle is needed
        lambda: loop_calls.three(4096, 2048, 8192, 8, Call("aten::exp", (((4096, 8192), FLOAT),))),
        NoUse,
        "no product",
    ),
    ("make-on-device", lambda: loop_calls.made_on_the_host("aten::exp"), NoUse, "makes no tensors"),
    (
        "make-on-device",  # filled from elsewhere
        lambda: loop_calls.made_on_the_host(
            "aten::zero_", (Call("aten::index_put_", (((64, 1_000_000), FLOAT), ((), ""))),)
        ),
        NoUse,
        "makes no tensors",
    ),
    ("cast-once", lambda: loop_calls.casting(trains=True), NoUse, "change in every step"),
    ("cast-once", lambda: loop_calls.casting(rows=8192), NoUse, "no weights"),  # which is the weight?
    ("cast-once", lambda: loop_calls.casting_inside(shares_shape=True), NoUse, "no weights"),
    ("where-not-mask", lambda: loop_calls.put_back(picked=50_000), NoUse, "few numbers"),
    ("where-not-mask", lambda: loop_calls.put_back(between="aten::sort"), NoUse, "few numbers"),
    ("where-not-mask", lambda: loop_calls.masking(picked=1000), NoUse, "few numbers"),
    ("where-not-mask", lambda: loop_calls.masking(reads="aten::mm"), NoUse, "neither summed nor put back"),
]


@pytest.mark.parametrize(("fix", "facts", "outcome", "words"), NEAR_MISSES)
def test_it_is_not_seen(fix: str, facts: Callable[[], Facts], outcome: type[Outcome], words: str) -> None:
    found = said(fix, facts())
    assert isinstance(found, outcome), found
    assert words in in_words(found)


def test_both_forms_agree_in_values_and_gradients() -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)

    def drawn(*dims: int) -> Any:
        return torch.randn(*dims, dtype=torch.float64, requires_grad=True)

    mask = torch.rand(40) > 0.3
    cases = [
        (pairwise_product, (drawn(5, 3), drawn(7, 3), None)),
        (pairwise_product, (drawn(2, 5, 3), drawn(2, 7, 3), torch.rand(3, dtype=torch.float64) + 0.5)),
        # Gradients have no gradients.
        (foreach_checks, ([drawn(4, 3).detach(), drawn(5).detach()], 0.1)),
        (foreach_checks, ([drawn(4, 3).detach(), drawn(5).detach()], 1e9)),
        (scan_loop, (drawn(13, 4), drawn(13, 4))),
        (product_order, ([drawn(3, 9), drawn(9, 9), drawn(9, 2)], *ORDERS)),
        (product_order, ([drawn(3, 9), drawn(9, 9), drawn(9, 20)], *ORDERS[::-1])),
        (where_not_mask, (drawn(40, 3), mask[:, None].expand(40, 3))),
        (cast_once, (drawn(3, 4), drawn(5, 4))),
    ]
    for forms, given in cases:
        wanted = [one for one in _flat(given) if isinstance(one, torch.Tensor) and one.requires_grad]
        results = []
        for form in (forms.plain, forms.cheaper):
            found = form(torch, *given)
            found = list(found) if isinstance(found, tuple) else [found]
            loss = sum(one.square().sum() for one in found)
            results.append([*found, *(torch.autograd.grad(loss, wanted) if wanted else ())])
        for one, other in zip(*results, strict=True):
            torch.testing.assert_close(one, other, msg=lambda text, name=forms.__name__: f"{name}: {text}")
    frames = torch.randint(0, 256, (2, 3, 4, 4), dtype=torch.uint8)
    mean, std = torch.rand(1, 3, 1, 1), torch.rand(1, 3, 1, 1) + 0.5
    before, after = (
        form(torch, frames, mean, std, "cpu") for form in (narrow_copies.plain, narrow_copies.cheaper)
    )
    torch.testing.assert_close(before, after)
    # Numbers that are drawn are others; their distribution is the same.
    noise = [form(torch, torch.empty(200, 300)) for form in (make_on_device.plain, make_on_device.cheaper)]
    for one in noise:
        assert one.shape == (200, 300) and abs(float(one.mean())) < 0.02 and abs(float(one.std()) - 1) < 0.02


def _flat(given: tuple[object, ...]) -> list[object]:
    return [part for one in given for part in (one if isinstance(one, list) else [one])]


def test_a_gradient_that_is_not_finite_is_left_alone_by_both() -> None:
    torch = pytest.importorskip("torch")
    bad = [torch.tensor([1.0, float("inf")]), torch.tensor([2.0])]
    for form in (foreach_checks.plain, foreach_checks.cheaper):
        assert torch.equal(form(torch, bad, 0.1)[1], bad[1])


def test_halves_count_as_halves() -> None:
    found = said("narrow-copies", loop_calls.uploading(kind=HALF))
    assert isinstance(found, Use) and found.claim.figures["size"] == 2


# -- what the host calls for the device ------------------------------------------------------------------


def drawing(routine: str = "numpy.random.choice", looped: bool | None = False, copies: str = "h") -> Facts:
    """The host stands on one line for most of a step, then sends something to the device."""
    seen = (HostLine("train.py:8", "train", 0.6, "", routine, looped),)
    cpu, gpu = "       coo" * 4, f"        {copies}m" * 4
    return facts_of(sketch(cpu, gpu, "|         " * 4), host_lines=seen)


def test_what_a_generator_draws_on_the_host_is_drawn_on_the_device() -> None:
    facts = drawing()
    assert decide(facts).cause == "host-work"
    found = FIXES["make-on-device"].advise(facts)
    assert isinstance(found, Use) and found.claim.id == "make-on-device/routine"
    assert found.claim.places == ["train.py:8"] and found.condition == "result-goes-to-device"
    assert step_at_best(FIXES["make-on-device"], found, facts) < 0.5 * facts.step
    told = all_causes()["host-work"].says(facts)
    assert isinstance(told, Told) and told.action.id == "advise/make-on-device"
    loop = FIXES["vectorise-loop"].advise(facts)
    assert isinstance(loop, NoUse) and loop.claim.id == "vectorise-loop/no-loop"


@pytest.mark.parametrize("job", [{"routine": ""}, {"looped": True}, {"copies": "k"}])
def test_what_is_no_such_routine_or_goes_nowhere(job: dict[str, Any]) -> None:
    found = FIXES["make-on-device"].advise(drawing(**job))
    assert isinstance(found, NoUse) and found.claim.id == "make-on-device/none"


def test_without_the_source_a_loop_is_still_said_with_an_if() -> None:
    found = FIXES["vectorise-loop"].advise(drawing(routine="", looped=None))
    assert isinstance(found, Use) and found.condition == "host-loops"


def test_sums_of_products_agree_with_the_product_of_matrices() -> None:
    torch = pytest.importorskip("torch")
    given = torch.randn(2, 5, 3, dtype=torch.float64, requires_grad=True)
    forms = (given[:, :, :, None] * given[:, :, None]).sum(1), given.mT @ given
    torch.testing.assert_close(*forms)
    torch.testing.assert_close(*(torch.autograd.grad(one.square().sum(), given)[0] for one in forms))
