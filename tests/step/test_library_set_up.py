"""Silence inside an op is set-up where a new shape brings it, and host work where it does not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import drawn
from findwall.causes.overhead import recompilation
from findwall.causes.verdict import decide
from findwall.facts.facts import Facts
from findwall.model.events import Kind, Timeline
from findwall.step.host_activity import watch_host
from findwall.step.links import link
from findwall.step.step_facts import Plans
from lengths import ATTENTION, BACKWARD, MS, Job, lengths_job
from sketch import facts_of
from speaking import in_words, texts


def plans_of(timeline: Timeline) -> Plans:
    return watch_host(timeline, link(timeline)).plans


LENGTHS = st.lists(st.integers(100, 900), min_size=4, max_size=5, unique=True)


@drawn(100)
@given(LENGTHS, st.floats(1.1, 80), st.integers(1, 4), st.booleans())
def test_every_new_shape_is_set_up_and_nothing_else(
    lengths: list[int], silent_ms: float, layers: int, again: bool
) -> None:
    every = [*lengths, *lengths] if again else lengths
    plans = plans_of(lengths_job(list(every), silent_ms, layers))
    assert len(plans) == 2 * len(lengths)
    assert (plans.end - plans.start).sum() == pytest.approx(2 * len(lengths) * silent_ms * MS, rel=0.02)


@drawn(100)
@given(LENGTHS, st.floats(1.1, 80), st.integers(1, 4))
def test_the_same_silence_outside_an_op_is_no_set_up(
    lengths: list[int], silent_ms: float, layers: int
) -> None:
    assert len(plans_of(lengths_job(list(lengths), silent_ms, layers, outside=True))) == 0


@drawn(12)
@given(LENGTHS, st.floats(5, 80))
def test_its_idle_time_is_recompilation_inside_and_host_work_outside(
    lengths: list[int], silent_ms: float
) -> None:
    inside = facts_of(lengths_job(list(lengths), silent_ms))
    outside = facts_of(lengths_job(list(lengths), silent_ms, outside=True))
    for facts, mine, other in (
        (inside, "recompilation", "host-work"),
        (outside, "host-work", "recompilation"),
    ):
        assert facts.spent_ms(mine) == pytest.approx(2 * silent_ms, rel=0.1)
        assert facts.spent_ms(other) < 0.1 * silent_ms


@drawn(67)
@given(st.lists(st.integers(100, 900), min_size=1, max_size=4), st.floats(1.1, 50), st.integers(2, 5))
def test_an_op_that_takes_the_time_on_shapes_it_knows_does_not_set_up(
    lengths: list[int], silent_ms: float, times: int
) -> None:
    job = Job()
    for length in lengths:
        for _ in range(times):
            job.call("mine::tokenise_and_embed", length, silent_ms)
    assert len(plans_of(job.timeline())) == 0


def test_without_shapes_the_few_calls_that_are_silent_are_set_up() -> None:
    plans = plans_of(lengths_job([None, None, None], 20, layers=4))
    assert len(plans) == 6
    always = lengths_job([None, None, None], 20, layers=1)
    assert len(plans_of(always)) == 0  # what every call does may be the op's own work


@pytest.mark.parametrize("length", [512, None])
def test_one_call_proves_nothing(length: int | None) -> None:
    job = Job()
    job.call(ATTENTION, length, 40)
    assert len(plans_of(job.timeline())) == 0


@drawn(33)
@given(LENGTHS, st.integers(1, 40), st.sampled_from(["cudaPeekAtLastError", "cudaFuncGetAttributes"]))
def test_questions_to_the_runtime_do_not_end_a_silence(
    lengths: list[int], questions: int, question: str
) -> None:
    job = Job()
    for length in lengths:
        for silent_ms in (4.0, 0.0):
            begin = job.now
            job.call(ATTENTION, length, silent_ms)
            if silent_ms:
                for number in range(questions):
                    at = begin + int((number + 1) * silent_ms * MS / (questions + 1))
                    job._add(Kind.RUNTIME, question, at, at + 1_000)
    plans = plans_of(job.timeline())
    assert len(plans) == len(lengths)
    assert (plans.end - plans.start).sum() == pytest.approx(4 * MS * len(lengths), rel=0.02)


@drawn(33)
@given(st.lists(st.integers(100, 900), min_size=2, max_size=4, unique=True), st.floats(1.1, 50))
def test_another_stride_is_another_shape(sizes: list[int], silent_ms: float) -> None:
    job = Job()
    for size in sizes:
        for stride in ("[1, 1]", "[2, 1]"):
            op = job.open(
                "aten::cudnn_convolution",
                [[8, 64, size, size], [64, 64, 3, 3], []],
                ["float", "float", "ScalarList"],
                ["", "", stride],
            )
            job.now += int(silent_ms * MS)
            job.kernel("conv")
            job.close(op)
    assert len(plans_of(job.timeline())) == 2 * len(sizes)


def test_what_launches_nothing_or_comes_after_the_launch_is_no_set_up() -> None:
    job = Job()
    for length in (128, 256, 384):
        op = job.open("aten::index", [[length]], ["float"])
        job.now += 5 * MS
        job.close(op)
        job.call(ATTENTION, length, 5, late=True)
    assert len(plans_of(job.timeline())) == 0


def attention() -> Facts:
    return facts_of(lengths_job([301, 433, 498, 634], 50))


def test_the_wall_names_op_and_shapes() -> None:
    facts = attention()
    assert decide(facts).cause == "recompilation"
    text = in_words(recompilation.CAUSE, facts)
    assert "sets itself up for 3 new shapes in the traced steps (such as [8×16×" in text
    assert "Pad or bucket" in text
    shown = recompilation.CAUSE.evidence(facts)
    assert {one.op for one in shown} == {ATTENTION, BACKWARD}
    assert all("3 new shapes" in text for text in texts(shown))
