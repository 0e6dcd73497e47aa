"""Law 9: recoverable is what the step is shorter by without a cause, and no more than the cause takes."""

from __future__ import annotations

import pytest
from hypothesis import given

from drawn_jobs import JOBS, Job
from examples import drawn
from findwall.causes.verdict import decide
from findwall.errors import InputError
from findwall.examine import facts_of as facts_of_run
from findwall.facts.facts import Facts
from findwall.model.catalogue import NEAR, QUESTION_OF, ROOFS, WALL_OF, WORTH_IT
from sketch import facts_of, sketch

DEVICE = ("compute", "bandwidth")


def facts_drawn(job: Job) -> Facts | None:
    """The facts of a drawn job; none where it has no device row or its step time is refused."""
    try:
        return next(iter(facts_of_run(job.run, job.step_ms)), None)
    except InputError:
        return None


@drawn(40)
@given(job=JOBS)
def test_no_cause_gives_more_than_it_takes_or_than_the_step_loses(job: Job) -> None:
    facts = facts_drawn(job)
    if facts is None:
        return
    spent, gain = facts.spent(), facts.recoverable()
    for cause in gain.ranked():
        assert gain[cause] <= spent[cause] * (1 + 1e-9)
        assert gain[cause] <= facts.saved((cause,)) * (1 + 1e-9)


@drawn(40)
@given(job=JOBS)
def test_together_they_give_no_less_than_the_best_alone(job: Job) -> None:
    facts = facts_drawn(job)
    if facts is None:
        return
    gain = facts.recoverable()
    causes = tuple(facts.local().ranked())
    if causes:
        assert facts.saved(causes) >= max(gain[cause] for cause in causes) * (1 - 1e-6)


@drawn(40)
@given(job=JOBS)
def test_a_device_cause_is_no_wall_where_the_step_without_it_is_as_long(job: Job) -> None:
    facts = facts_drawn(job)
    if facts is None:
        return
    cause = decide(facts).cause
    if cause is not None and cause not in ROOFS and WALL_OF[cause] in DEVICE:
        pair = max((facts.saved((cause, other)) for other in facts.local().ranked()), default=0.0)
        assert max(facts.saved((cause,)), pair) > 0


@pytest.mark.parametrize("step_ms", [None, 9.0])
def test_work_beneath_a_longer_host_is_not_the_wall(step_ms: float | None) -> None:
    """The device's pointwise kernels could be shorter, but the host's own work alone fills the step."""
    cpu, gpu = "yyyyyyyyo" * 3, "....kkkk." * 3
    facts = facts_of(sketch(cpu, gpu, ("|" + " " * 8) * 3), step_ms=step_ms)
    assert (facts.local()["unfused-pointwise"]) > WORTH_IT * facts.step
    verdict = decide(facts)
    assert verdict.wall not in DEVICE


def test_who_fuses_kernels_launches_fewer_of_them() -> None:
    """A host that only just keeps up would hide shorter kernels, but what is merged is not launched."""
    drawing = sketch(cpu="oooooooo " * 3, gpu="kKkKkKkK " * 3, steps="|        " * 3)
    facts = facts_of(drawing, step_ms=9)
    assert facts.recoverable()["unfused-pointwise"] > NEAR * facts.local()["unfused-pointwise"]
    assert decide(facts).cause == "unfused-pointwise"


@drawn(40)
@given(job=JOBS)
def test_the_verdict_is_the_most_recoverable_or_nearly(job: Job) -> None:
    facts = facts_drawn(job)
    if facts is None:
        return
    verdict, gain = decide(facts), facts.recoverable()
    if verdict.cause is None or verdict.cause in ROOFS or facts.reading.source == "estimated":
        return
    best = gain.ranked()[0]
    if verdict.cause != best and gain[best] > WORTH_IT * facts.step:
        assert gain[verdict.cause] >= NEAR * gain[best]
        assert QUESTION_OF[verdict.cause] <= QUESTION_OF[best]
