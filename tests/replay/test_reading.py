"""The step without the profiler: solved for where its true length is known, an interval where not."""

from __future__ import annotations

import pytest

from findwall.causes.verdict import decide
from findwall.errors import InputError
from findwall.facts.facts import Facts
from findwall.model.events import Timeline
from findwall.model.measured_run import StepTimes
from sketch import facts_of, sketch

STEPS = ("|" + " " * 19) * 3


def dispatch() -> Timeline:
    """Ten ops of 40 us a step, each with a kernel of 20."""
    return sketch(cpu="o." * 30, gpu="k." * 30, steps=STEPS, us=20)


def step_ms(facts: Facts) -> float:
    return facts.step / 1e6


def test_a_trace_alone_gives_an_interval() -> None:
    facts = facts_of(dispatch())
    short, likely, long = (scenario.step for scenario in facts.reading.scenarios)
    assert short < likely < long < facts.steps.lengths.mean()
    assert facts.reading.source == "estimated"


def test_a_busy_device_hides_the_profiler() -> None:
    facts = facts_of(sketch(cpu="o         " * 3, gpu="mmmmmmmmmm" * 3, steps="|         " * 3))
    assert facts.reading.source == "trace"
    assert facts.reading.short.step == pytest.approx(facts.reading.long.step, rel=1e-3)


def test_the_true_step_is_kept_to_the_nanosecond() -> None:
    facts = facts_of(dispatch(), step_ms=0.3)
    assert step_ms(facts) == pytest.approx(0.3)
    assert facts.reading.source == "given"
    assert facts.reading.likely.busy == pytest.approx(0.2e6)  # kernel time is true


def test_idle_time_far_beyond_the_traced_has_no_cause() -> None:
    facts = facts_of(dispatch(), step_ms=3.0)  # the trace shows 0.2 ms of gaps in 0.4
    assert facts.spent_ms("launch-bound") == pytest.approx(0.2, abs=0.01)  # idle is never scaled up
    assert facts.spent_ms("unknown") == pytest.approx(2.6, abs=0.01)
    assert facts.reading.likely.left_over == pytest.approx(2.6e6, rel=0.01)
    assert facts.spent().total == pytest.approx(3e6)
    assert decide(facts).why_not == "unexplained"


def test_a_longer_true_step_is_idle() -> None:
    facts = facts_of(sketch(cpu="oo " * 3, gpu="mmM" * 3, steps="|  " * 3), step_ms=5.0)
    assert facts.reading.likely.busy == pytest.approx(3e6)
    assert facts.spent().total == pytest.approx(5e6)


def test_work_that_hardly_fits_is_scaled_and_said() -> None:
    facts = facts_of(sketch(cpu="oo " * 3, gpu="mmM" * 3, steps="|  " * 3), step_ms=2.9)
    assert step_ms(facts) == pytest.approx(2.9)
    assert "scaled down" in " ".join(facts.reading.notes)


def test_a_step_that_cannot_hold_the_work_is_refused() -> None:
    with pytest.raises(InputError, match="cannot hold"):
        facts_of(sketch(cpu="oo " * 3, gpu="mmM" * 3, steps="|  " * 3), step_ms=1.0)


def test_measured_conditions_keep_the_sum() -> None:
    timed = StepTimes((0.01,) * 18 + (0.05, 0.05), "measured", gc_s=0.001)
    facts = facts_of(
        sketch(cpu="o         " * 3, gpu="m         " * 3, steps="|         " * 3), step_times=timed
    )
    assert facts.spent().total == pytest.approx(facts.step)
    assert facts.spent_ms("unstable-steps") == pytest.approx(3)
    assert facts.spent_ms("gc-pause") > 0
