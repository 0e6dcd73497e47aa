"""A job that was measured while it still set itself up: no wall is named."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from findwall.causes.verdict import decide
from findwall.examine.traced_document import too_early
from findwall.facts.waits import grows
from findwall.model.measured_run import StepTimes
from findwall.report.words import spoken
from lengths import lengths_job
from sketch import facts_of


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 900), st.integers(1, 16), st.integers(4, 6))
def test_lengths_that_grow_evenly_are_set_up_once(first: int, by: int, steps: int) -> None:
    facts = facts_of(lengths_job([first + by * number for number in range(steps)], 40))
    assert grows(facts)
    found = decide(facts)
    assert (found.cause, found.why_not) == (None, "growing")
    assert "findwall run --wait" in spoken(too_early(facts, "growing"))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(100, 900), min_size=5, max_size=7, unique=True))
def test_lengths_as_they_come_are_the_wall(lengths: list[int]) -> None:
    apart = [after - before for before, after in pairwise(lengths)]
    assume(max(map(apart.count, apart)) < 0.5 * len(apart))
    facts = facts_of(lengths_job(list(lengths), 40))
    assert not grows(facts)
    assert decide(facts).cause == "recompilation"


@pytest.mark.parametrize(("later_ms", "expected"), [(10.0, "too-early"), (30.0, ""), (None, "")])
def test_a_job_that_became_much_faster_was_measured_too_early(later_ms: float | None, expected: str) -> None:
    facts = facts_of(lengths_job([300, 517, 402, 690, 333], 40))
    step = facts.reading.likely.step / 1e9
    later = None if later_ms is None else step * later_ms / 40
    timed = StepTimes((step, step, step), "measured", later_s=later)
    told = replace(facts, rank=replace(facts.rank, step_times=timed))
    found = decide(told)
    assert found.why_not == expected
    if expected:
        assert found.cause is None and "after that" in spoken(too_early(told, expected))
    else:
        assert found.cause == "recompilation"


@pytest.mark.parametrize(
    "lengths", [[300, 301, 302, 303, 304], [300, 517, 402, 690, 333]], ids=["grow", "vary"]
)
def test_a_job_that_is_set_up_is_uneven_too(lengths: list[int]) -> None:
    timeline = lengths_job(list(lengths), 40)
    usual = facts_of(timeline).reading.likely.step / 1e9
    timed = StepTimes((usual,) * 20 + (20 * usual,) * 2, "measured")
    facts = facts_of(timeline, step_times=timed)
    assert facts.spent_ms("unstable-steps") > facts.spent_ms("recompilation") > 0
    assert (decide(facts).cause is None) == grows(facts)
