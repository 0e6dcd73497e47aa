"""A few steps that take much longer."""

from __future__ import annotations

import pytest

from findwall.causes.overhead import unstable_steps
from findwall.facts.facts import Facts
from findwall.model.measured_run import StepTimes
from sketch import facts_of, sketch
from speaking import evidence_of, in_words

CPU, GPU, STEPS = "o    o    o    ", "m    m    m    ", "|    |    |    "
STEADY = (0.005,) * 18


def timed(*rare: float, loader_s: float | None = None) -> Facts:
    times = StepTimes((*STEADY, *rare), "measured", loader_s=loader_s)
    return facts_of(sketch(cpu=CPU, gpu=GPU, steps=STEPS), step_times=times)


def fires() -> Facts:
    return timed(0.055, 0.105)


def clear() -> Facts:
    return timed(0.005, 0.005)


def cannot_tell() -> Facts:
    return facts_of(sketch(cpu=CPU, gpu=GPU, steps=STEPS))


def test_the_mean_over_the_median_is_its_time() -> None:
    facts = fires()
    assert facts.spent_ms("unstable-steps") == pytest.approx(7.5)
    assert "2 of 20 steps" in in_words(unstable_steps.CAUSE, facts)
    assert "step 19 of 20" in evidence_of(unstable_steps.CAUSE, facts)[0]


def test_a_loader_that_hiccups_is_the_loader() -> None:
    assert timed(0.055, 0.105, loader_s=0.0075).spent_ms("unstable-steps") == pytest.approx(0)
