"""A long trace is surveyed whole and looked at closely in part: the answer must not depend on it."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from captures import FIXTURES
from findwall import read
from findwall.structure import window
from findwall.structure.queue import line_up
from sketch import KERNELS, sketch


def test_a_part_of_a_long_trace_gives_the_same_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    path = FIXTURES / "jobs" / "handwritten_gelu.json.gz"
    whole = read(path)
    monkeypatch.setattr(window, "CLOSE_LOOK_EVENTS", 10)
    monkeypatch.setattr(window, "FEWEST_STEPS_KEPT", 1)
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
