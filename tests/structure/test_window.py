"""A long trace is surveyed whole and looked at closely in part: the answer must not depend on it."""

from __future__ import annotations

import pytest

from captures import FIXTURES
from findwall import read
from findwall.structure import window


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
