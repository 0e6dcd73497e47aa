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
from findwall.fixes.predict import predict
from findwall.fixes.prescribe import prescribe
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


@pytest.mark.parametrize("size", [(1, 1, 12, 9, 10), (2, 3, 20, 17)])
def test_one_dimension_after_the_other_filters_the_same(torch: Any, size: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    x = torch.randn(size, requires_grad=True)
    taps = [torch.rand(5 + 2 * at) for at in range(len(size) - 2)]

    def with_taps(form: Any) -> Any:
        return lambda torch, x: form(torch, x, taps)

    before, after = separable_filter.plain, separable_filter.cheaper
    same_with_gradients(torch, with_taps(before), with_taps(after), x)
