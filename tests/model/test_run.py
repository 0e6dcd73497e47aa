"""Kinds of steps."""

from __future__ import annotations

import pytest

from findwall.model.measured_run import StepKind, StepTimes


def test_steps_that_nobody_told_apart_are_all_usual() -> None:
    assert StepTimes((0.1, 0.2), "measured").kinds() == (StepKind("usual", 1.0, pytest.approx(0.15), None),)


def test_the_mean_is_over_all_kinds_and_each_has_its_own() -> None:
    """Every fourth step saves."""
    kind = ("usual", "usual", "usual", "saves") * 3
    times = StepTimes((0.1, 0.1, 0.1, 0.5) * 3, "measured", kind=kind)
    usual, saves = times.kinds()
    assert (usual.name, usual.share, usual.every) == ("usual", 0.75, None)
    assert (saves.name, saves.share, saves.every) == ("saves", 0.25, 4)
    assert saves.mean == pytest.approx(0.5)
    assert times.mean == pytest.approx(sum(one.share * one.mean for one in times.kinds()))


@pytest.mark.parametrize("kind", [("saves", "usual", "usual"), ("saves", "saves", "usual", "saves")])
def test_a_kind_seen_once_or_at_odd_distances_has_no_rhythm(kind: tuple[str, ...]) -> None:
    times = StepTimes((0.1,) * len(kind), "measured", kind=kind)
    (saves,) = (one for one in times.kinds() if one.name == "saves")
    assert saves.every is None
