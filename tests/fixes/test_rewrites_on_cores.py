"""Rewrites of a CPU job's own work: found where they are written, not where they nearly are, with the bound
alone where nobody measured how fast the other form runs there."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

pytest.importorskip("torch")

from findwall.facts.facts import Facts
from findwall.fixes import CannotTell, NoUse, Use, all_fixes
from findwall.fixes.at_best import step_at_best
from findwall.fixes.predict import predict
from findwall.model.machine import Ceilings
from fixes import steps_to_rewrite as steps
from speaking import in_words

FIXES = all_fixes()
pytestmark = pytest.mark.usefixtures("alone")
CASES: dict[str, tuple[str, Callable[[], Facts], Callable[[], Facts]]] = {
    "scatter": ("lookup-not-onehot", steps.coded, lambda: steps.coded(read="sum")),
    "one-hot": ("lookup-not-onehot", lambda: steps.coded("one_hot"), lambda: steps.coded("one_hot", "sum")),
    "pairs": ("pairwise-product", steps.all_pairs, lambda: steps.all_pairs(3)),
    "rows": ("index-select", steps.taken, lambda: steps.taken(along=1)),
    "window": ("separable-filter", steps.filtered, lambda: steps.filtered(3)),
    "fft": ("smooth-fft", lambda: steps.transformed(3999), lambda: steps.transformed(4000)),
    "products": ("product-order", steps.three_products, lambda: steps.three_products("softmax")),
    "unbind": ("scan-loop", steps.over_time, lambda: steps.over_time(carries=False)),
    "select": ("scan-loop", lambda: steps.over_time("select"), lambda: steps.over_time("select", False)),
    "mask": ("where-not-mask", steps.masked, lambda: steps.masked("product")),
    "left over": ("loop-on-device", steps.picked, lambda: steps.picked("table")),
    "checks": ("foreach-checks", steps.checked, lambda: steps.checked(listed=True)),
}
# What is taken out whole needs no such measurement.
TAKEN_OUT: dict[str, tuple[str, Callable[[], Facts], Callable[[], Facts]]] = {
    "averages": ("averages-in-lists", steps.averaged, lambda: steps.averaged(listed=True)),
    "cache": ("buffer-once", steps.grown, lambda: steps.grown(in_place=True)),
    "casts": ("cast-once", steps.cast, lambda: steps.cast(narrow=True)),
    "loss": ("builtin-ops", steps.loss_over_words, lambda: steps.loss_over_words(by_hand=False)),
    "counted": ("builtin-ops", steps.counted, lambda: steps.counted(read="mask")),
    "added up": ("builtin-ops", lambda: steps.counted("one side"), lambda: steps.counted("each pair")),
    "unfolded": ("builtin-ops", steps.unfolded, lambda: steps.unfolded("norm")),
    "few classes": ("builtin-ops", steps.loss_over_words, lambda: steps.loss_over_words(32)),
}


@pytest.mark.parametrize("case", CASES)
def test_a_rewrite_is_found_on_cores_and_told_with_its_bound_alone(case: str) -> None:
    fix, written, nearly = CASES[case]
    facts = written()
    found = FIXES[fix].advise(facts)
    assert isinstance(found, Use), in_words(found)
    assert predict(facts, {fix: found}) is None
    assert step_at_best(FIXES[fix], found, facts) < 0.95 * facts.step
    assert not isinstance(FIXES[fix].advise(nearly()), Use)


@pytest.mark.parametrize("case", TAKEN_OUT)
def test_what_is_taken_out_whole_has_a_figure_on_cores(case: str) -> None:
    fix, written, nearly = TAKEN_OUT[case]
    facts = written()
    found = FIXES[fix].advise(facts)
    assert isinstance(found, Use), in_words(found)
    told, best = predict(facts, {fix: found}), step_at_best(FIXES[fix], found, facts)
    assert told is not None and told.mid < 0.95 * facts.step
    assert told.low <= told.mid <= told.high and best <= told.mid * 1.001
    assert not isinstance(FIXES[fix].advise(nearly()), Use)


# -- scans down columns: told by what the op is given, as cores have no kernels with names -----------------


def on_a_memory_of(rate: float, facts: Facts) -> Facts:
    return with_ceilings(facts, 1e12, rate)


def with_ceilings(facts: Facts, flops: float, bandwidth: float = 1e10) -> Facts:
    cores = Ceilings("Some CPU", "measured", flops={"fp32": flops}, bandwidth=bandwidth)
    return replace(facts, ceilings=cores)


@pytest.mark.parametrize("scan", ["cummax", "cummin", "cumsum"])
def test_a_scan_down_long_columns_is_turned(scan: str) -> None:
    facts = on_a_memory_of(1e13, steps.scanned(scan))  # so fast that turning takes next to nothing
    found = FIXES["scan-innermost"].advise(facts)
    assert isinstance(found, Use) and predict(facts, {"scan-innermost": found}) is None
    assert step_at_best(FIXES["scan-innermost"], found, facts) < 0.95 * facts.step
    said = in_words(found)
    assert f".contiguous().{scan}(-1)" in said and "cache lines" in said and "thread" not in said
    assert [one.given[1:] for one in found.rewrites] == [(0, scan)]


@pytest.mark.parametrize(
    ("job", "why"),
    [
        ({"dim": 1}, "none"),
        ({"scan": "logcumsumexp"}, "none"),  # its exponentials take as long in any order
        ({"shape": (64, 4096)}, "near"),  # a column stays in the cache
    ],
)
def test_what_cores_scan_as_fast_as_they_can(job: dict[str, object], why: str) -> None:
    outcome = FIXES["scan-innermost"].advise(on_a_memory_of(1e13, steps.scanned(**job)))
    assert isinstance(outcome, NoUse) and outcome.claim.id == f"scan-innermost/{why}"


def test_a_scan_is_not_turned_where_that_may_take_as_long() -> None:
    outcome = FIXES["scan-innermost"].advise(on_a_memory_of(1e7, steps.scanned()))
    assert isinstance(outcome, NoUse) and outcome.claim.id == "scan-innermost/near"
    assert isinstance(FIXES["scan-innermost"].advise(steps.scanned()), CannotTell)  # no rate is known


def test_cores_sum_before_the_factor_too() -> None:
    found = FIXES["scan-innermost"].advise(on_a_memory_of(1e10, steps.summed_after_a_factor()))
    assert isinstance(found, Use) and found.claim.id == "scan-innermost/before"
    assert "thread" not in in_words(found)


# -- filters: told by what today's kernel reaches, as most of a banded matrix is zero ----------------------


def test_a_filter_far_under_the_ceiling_is_a_product_with_a_banded_matrix() -> None:
    facts = with_ceilings(steps.blurred(), 1e13)  # of which no convolution reaches much
    found = FIXES["separable-filter"].advise(facts)
    assert isinstance(found, Use) and found.claim.id == "separable-filter/banded"
    assert "`band @ x @ band.T`" in in_words(found) and "11×11" in in_words(found)
    assert [one.backward for one in found.rewrites] == [True]


def test_a_filter_that_runs_well_stays() -> None:
    """Products with a matrix of 64 x 64 for each dimension are as many as today's, and no faster."""
    found = FIXES["separable-filter"].advise(with_ceilings(steps.blurred(), 1e7))
    assert isinstance(found, NoUse) and found.claim.id == "separable-filter/little"
    assert isinstance(FIXES["separable-filter"].advise(steps.blurred()), CannotTell)  # no rate is known


# -- copies that nobody can drop ---------------------------------------------------------------------------


def test_what_a_routine_copies_for_itself_is_no_copy_to_drop() -> None:
    facts, asked = steps.factored(), steps.factored(clones=True)
    found = FIXES["fewer-copies"].advise(asked)
    assert facts.spent()["layout-copies"] < asked.spent()["layout-copies"] / 2
    assert not isinstance(FIXES["fewer-copies"].advise(facts), Use) and isinstance(found, Use)
    assert "clone" in in_words(found) and "cholesky" not in in_words(found)
