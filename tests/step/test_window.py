"""A long trace is surveyed whole and looked at closely in part: the answer must not depend on it."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from captures import FIXTURES
from examples import drawn
from findwall import read
from findwall.examine import examine
from findwall.model.events import Kind, Timeline
from findwall.step import step_window as window
from findwall.step.device_queue import line_up
from sketch import KERNELS, facts_of, sketch


def test_a_part_of_a_long_trace_gives_the_same_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    path = FIXTURES / "jobs" / "handwritten_gelu.json.gz"
    whole = read(path)
    monkeypatch.setattr(window, "CLOSE_LOOK_EVENTS", 10)
    monkeypatch.setattr(window, "FEWEST_REPEATS", 1)
    part = read(path)
    assert (part.wall.wall, part.wall.cause) == (whole.wall.wall, whole.wall.cause)
    assert part.step.ms == pytest.approx(whole.step.ms, rel=0.02)
    assert (part.step.count, part.timeline) == (whole.step.count, whole.timeline)
    assert sum(row.ms for row in part.budget) == pytest.approx(part.step.ms)
    assert any("typical steps out of" in note for note in part.notes)
    assert not any("typical steps out of" in note for note in whole.notes)


EVALUATES = {
    #      0    1    2            3    4    5    6
    "cpu": "o    o    o o o o      o    o    o    o    ",
    "gpu": " mmm  mmm  mmmkkkKKKkkk mmm  mmm  mmm  mmm ",
    "steps": "|    |    |            |    |    |    |    ",
}


@pytest.mark.parametrize(
    ("apart", "lengths"),
    [
        ((), [5, 5, 13, 5, 5, 5]),
        ((9, 20), [5, 5, 13, 5, 5, 5]),
        ((2,), [5, 5, 5]),
        ((2, 5), [5, 5]),
        (range(7), [5, 5, 13, 5, 5, 5]),
    ],
)
def test_a_step_with_an_evaluation_is_not_looked_at(apart: Iterable[int], lengths: list[int]) -> None:
    """The steps that were timed hold none: its kernels are none of theirs."""
    whole = window.survey(sketch(**EVALUATES), apart=frozenset(apart))
    assert (whole.steps.lengths / 1e6).round().tolist() == lengths
    counted = line_up(whole.told, whole.links, whole.steps)
    pointwise = [whole.told.name_of(row) for row in counted.row.tolist()].count(KERNELS["k"].kernel)
    assert pointwise == (3 if 13 in lengths else 0)


MARKED = {
    "ProfilerStep": "ProfilerStep#{}",
    "range": "iteration {}",
    "optimizer": "Optimizer.step#AdamW.step",
    "period": "",
}


def lasting(lengths: list[int], marker: str) -> Timeline:
    """Steps of so many milliseconds, two kernels at the beginning of each; an optimizer's call ends each."""
    cpu = "".join("oo".ljust(length - 1) + "z" for length in lengths)
    gpu = "".join("km".ljust(length) for length in lengths)
    steps = "".join("|".ljust(length) for length in lengths)
    timeline = sketch(cpu, gpu, steps)
    names, kept = list(timeline.names), []
    for row, name in enumerate(timeline.events.name.tolist()):
        called = names[name]
        own = marker == "optimizer" if called.startswith("Optimizer") else marker in ("ProfilerStep", "range")
        kept.append(own or timeline.events.kind[row] != Kind.ANNOTATION)
    names = [name.replace("ProfilerStep#", MARKED["range"].format("")) for name in names]
    return replace(
        timeline,
        names=names if marker == "range" else timeline.names,
        events=timeline.events.take(np.flatnonzero(kept)),
    )


@drawn(60)
@given(
    st.sampled_from(sorted(MARKED)),
    st.lists(st.integers(40, 200), max_size=2),
    st.lists(st.integers(10, 12), min_size=4, max_size=8),
)
def test_cold_steps_go_and_the_last_stays(marker: str, cold: list[int], warm: list[int]) -> None:
    cold = sorted(cold, reverse=True)
    whole = window.survey(lasting([*cold, *warm], marker))
    assert whole.steps.found_by == marker
    found = (whole.steps.lengths / 1e6).tolist()
    # An optimizer's first call is where the first step ends. A profiler's last step is never counted.
    told = cold[1:] if marker == "optimizer" and cold else cold
    first = warm[1:] if marker == "optimizer" and not cold else warm
    wanted = first[:-1] if marker == "ProfilerStep" else first
    assert list(whole.cold_ms) == told
    assert found[:-1] == wanted[:-1] and len(found) == len(wanted)
    assert found[-1] == pytest.approx(wanted[-1], abs=2)


def test_one_long_step_among_others_is_no_warm_up() -> None:
    for lengths in ([40, 11, 40, 11], [11, 11, 40, 11, 11], [13, 11, 12, 10, 11]):
        assert window.survey(lasting([*lengths, 11], "ProfilerStep")).cold_ms == ()


def test_a_cold_step_is_told() -> None:
    document = examine(facts_of(lasting([547, 41, 32, 30, 33], "range")).run)
    assert document.step.ms == pytest.approx(34, abs=0.1)
    assert document.step.discarded == 1
    assert any("547 ms" in note and "warm-up" in note for note in document.notes)
