"""Filters and scans in a cheaper way: what they are told by, what they promise, and that both do the same."""

from __future__ import annotations

from typing import Any

import pytest

from findwall.causes import Told, all_causes
from findwall.causes.verdict import decide
from findwall.facts.facts import Facts
from findwall.fixes import NoUse, Use, all_fixes
from findwall.fixes.at_best import step_at_best
from findwall.fixes.kernels import separable_filter
from findwall.fixes.less_work import scan_innermost
from findwall.fixes.predict import predict
from findwall.fixes.prescribe import prescribe
from findwall.model.events import Inputs
from findwall.work.fusion import SCAN
from findwall.work.op_families.movement import SCANS
from findwall.work.op_work import op_work
from fixes import filter_calls as jobs
from fixes.test_rewrites_memory import same_with_gradients, used

FIXES = all_fixes()


@pytest.fixture(scope="module")
def torch() -> Any:
    return pytest.importorskip("torch")


# -- separable-filter ------------------------------------------------------------------------------------


def test_a_box_over_a_volume_goes_one_dimension_after_the_other() -> None:
    facts = jobs.filtering()
    found = used("separable-filter", facts)
    figures = found.claim.figures
    assert (figures["taps"], figures["products"], figures["sides"]) == (27, 729, "9×9×9")
    assert figures["spent_ms"] == pytest.approx(50.0, rel=0.01)
    assert found.condition == "filter-is-separable"
    predicted = predict(facts, {"separable-filter": found})
    assert predicted is not None
    best = step_at_best(FIXES["separable-filter"], found, facts)
    assert best <= predicted.mid < 0.05 * facts.step
    # A line of taps may run as badly as the window, for each product.
    assert predicted.high > predicted.mid + 50e6 * 27 / 729


def test_it_goes_before_what_has_only_a_bound() -> None:
    facts = jobs.filtering()
    cause = decide(facts).cause
    first, *others = [one.fixes for one in prescribe(facts, cause)[0]]
    assert first == ["separable-filter"]
    assert ["cudnn-benchmark"] in others


def test_the_verdict_says_so() -> None:
    told = all_causes()["slow-kernels"].says(jobs.filtering())
    assert isinstance(told, Told) and told.action.id == "advise/separable-filter"


@pytest.mark.parametrize(
    ("job", "why"),
    [
        ({"learns": "True"}, "none"),  # a layer
        ({"window": (3, 3, 3)}, "none"),
        ({"window": (1, 9, 1)}, "none"),  # one dimension already
        ({"mixed": 8}, "none"),  # channels are mixed
        ({"channels": 96, "backward": False}, "none"),  # a layer of a model that is only run
        ({"us": 20.0}, "little"),
    ],
)
def test_what_is_no_large_fixed_filter(job: dict[str, Any], why: str) -> None:
    outcome = FIXES["separable-filter"].advise(jobs.filtering(**job))
    assert isinstance(outcome, NoUse) and outcome.claim.id == f"separable-filter/{why}"


@pytest.mark.parametrize("job", [{"channels": 3, "backward": False}, {"channels": 64, "window": (11, 11)}])
def test_a_filter_of_several_channels(job: dict[str, Any]) -> None:
    facts: Facts = jobs.filtering(**job)
    found = FIXES["separable-filter"].advise(facts)
    assert isinstance(found, Use)
    assert [one.backward for one in found.rewrites] == [job.get("backward", True)]


@pytest.mark.parametrize("after", [separable_filter.apart, separable_filter.banded])
@pytest.mark.parametrize("size", [(1, 1, 12, 9, 10), (2, 3, 20, 17)])
def test_one_dimension_after_the_other_filters_the_same(
    torch: Any, size: tuple[int, ...], after: Any
) -> None:
    torch.manual_seed(0)
    x = torch.randn(size, requires_grad=True)
    taps = [torch.rand(5 + 2 * at) for at in range(len(size) - 2)]

    def with_taps(form: Any) -> Any:
        return lambda torch, x: form(torch, x, taps)

    same_with_gradients(torch, with_taps(separable_filter.plain), with_taps(after), x)


# -- scan-innermost --------------------------------------------------------------------------------------


def test_a_scan_down_columns_is_slow_and_part_of_no_chain() -> None:
    facts = jobs.scanning()
    assert decide(facts).cause == "slow-kernels"
    assert facts.spent_ms("slow-kernels") == pytest.approx(20.0, rel=0.01)
    told = all_causes()["slow-kernels"].says(facts)
    assert isinstance(told, Told) and told.action.id == "advise/scan-innermost"
    assert not isinstance(FIXES["autotune-kernels"].advise(facts), Use)  # no compiler has another kernel


def test_it_goes_along_the_innermost_dimension() -> None:
    facts = jobs.scanning()
    found = used("scan-innermost", facts)
    assert found.claim.id == "scan-innermost/turned" and found.condition == ""
    assert (found.claim.figures["columns"], found.claim.figures["length"]) == (1600, 64_000)
    predicted = predict(facts, {"scan-innermost": found})
    assert predicted is not None
    assert step_at_best(FIXES["scan-innermost"], found, facts) <= predicted.mid < 0.2 * facts.step
    assert prescribe(facts, "slow-kernels")[0][0].fixes == ["scan-innermost"]


def test_a_factor_that_stays_the_same_is_multiplied_afterwards() -> None:
    found = used("scan-innermost", jobs.broadcast())
    assert found.claim.id == "scan-innermost/before" and found.condition == "scanned-is-that-product"
    assert (found.claim.figures["small"], found.claim.figures["numbers"]) == (1_024_000, 102_400_000)
    assert found.rewrites == ()


@pytest.mark.parametrize(
    "job",
    [
        {"factor": (16, 64_000, 100)},  # as large, and changes
        {"factor": (64_000, 100)},
        {"factor": (1, 100), "small": (16, 64_000, 100)},  # nothing is smaller before
    ],
)
def test_a_factor_that_changes_along_the_sum_stays_inside(job: dict[str, Any]) -> None:
    assert used("scan-innermost", jobs.broadcast(**job)).claim.id == "scan-innermost/turned"


@pytest.mark.parametrize(
    ("job", "why"),
    [
        ({"kernel": "innermost_dim", "dim": 2}, "none"),
        ({"us": 300.0}, "near"),  # so many columns that they fill the device
        ({"op": "sum"}, "none"),
    ],
)
def test_what_is_scanned_well(job: dict[str, Any], why: str) -> None:
    outcome = FIXES["scan-innermost"].advise(jobs.scanning(**job))
    assert isinstance(outcome, NoUse) and outcome.claim.id == f"scan-innermost/{why}"


def test_what_a_scan_must_move() -> None:
    def moved(op: str, dtype: str) -> float:
        work = op_work(f"aten::{op}", Inputs(dims=[[10, 10], []], types=[dtype, "Scalar"]))
        assert work is not None
        return work.nbytes

    assert moved("cumsum", "float") == moved("cumprod_", "float") == 800
    assert moved("cumsum", "bool") == 900  # sums are of 64 bits
    assert moved("cummax", "float") == 400 + 400 + 800  # with the places
    assert all(SCAN.match(f"aten::{op}") for op in SCANS)


@pytest.mark.parametrize("scan", ["cumsum", "cumprod", "logcumsumexp", "cummax", "cummin"])
def test_turned_round_it_scans_the_same(torch: Any, scan: str) -> None:
    torch.manual_seed(0)
    x = torch.rand(3, 17, 5, requires_grad=True)

    def with_scan(form: Any) -> Any:
        return lambda torch, x: form(torch, x, 1, scan)

    same_with_gradients(torch, with_scan(scan_innermost.plain), with_scan(scan_innermost.cheaper), x)


def test_a_factor_afterwards_gives_the_same(torch: Any) -> None:
    torch.manual_seed(0)
    small, factor = torch.rand(3, 17, 1, requires_grad=True), torch.rand(5, requires_grad=True)

    def inside(torch: Any, small: Any, factor: Any) -> Any:
        return torch.cumsum(small * factor, 1)

    def before(torch: Any, small: Any, factor: Any) -> Any:
        return scan_innermost.before(torch, small, factor, 1)

    same_with_gradients(torch, inside, before, small, factor)
