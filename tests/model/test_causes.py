"""A number a cause."""

from __future__ import annotations

import numpy as np
import pytest

from findwall.model.causes import CAUSES, UNKNOWN, ByCause, cause_index


def test_read_and_written_by_name() -> None:
    found = ByCause.zeros()
    found["host-sync"] = 3.0
    found[UNKNOWN] += 1.0
    assert found["host-sync"] == 3.0 and found.total == 4.0
    assert found.ranked() == ["host-sync", UNKNOWN]
    assert dict(found.items())["host-sync"] == 3.0


def test_no_cause_of_that_name() -> None:
    with pytest.raises(KeyError):
        ByCause.zeros()["host_sync"]
    with pytest.raises(KeyError):
        cause_index("turn-around")


def test_what_is_not_known_adds_nothing() -> None:
    found = ByCause.zeros()
    found["launch-bound"], found[UNKNOWN] = 2.0, np.nan
    assert found.total == 2.0 and found.of(("launch-bound", UNKNOWN)) == 2.0
    assert found.ranked() == ["launch-bound"] and found.not_known() == [UNKNOWN]


def test_arithmetic_goes_cause_by_cause() -> None:
    one = ByCause.summed(np.array([0, 0, 2]), np.array([1.0, 2.0, 5.0]))
    assert (one * 2 - one + one / 1).values.tolist()[:3] == [6.0, 0.0, 10.0]
    changed = one.copy()
    changed[CAUSES[0]] = 0.0
    assert one[CAUSES[0]] == 3.0
