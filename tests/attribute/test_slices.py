"""A slice of device time is given to one row, or shared by equals."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from findwall.attribute.slices import share_out
from findwall.model.intervals import union

ROWS = st.lists(
    st.tuples(st.integers(0, 100), st.integers(0, 30), st.integers(0, 3)), min_size=1, max_size=30
)


def arrays(rows: list[tuple[int, int, int]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    start = np.array([row[0] for row in rows], np.int64)
    return (
        start,
        start + np.array([row[1] for row in rows], np.int64),
        np.array([row[2] for row in rows], np.int64),
    )


def test_a_kernel_comes_before_a_collective() -> None:
    own = share_out(np.array([0, 2]), np.array([5, 9]), np.array([0, 1]))
    assert own.tolist() == [5, 4]


def test_equals_share() -> None:
    own = share_out(np.array([0, 0]), np.array([4, 4]), np.array([0, 0]))
    assert own.tolist() == [2, 2]


@given(ROWS)
def test_the_shares_sum_to_the_union(rows: list[tuple[int, int, int]]) -> None:
    start, end, level = arrays(rows)
    own = share_out(start, end, level)
    assert own.sum() == pytest.approx(union(start, end).length)
    assert own.sum() <= (end - start).sum() + 1e-9
    assert ((own >= -1e-9) & (own <= end - start + 1e-9)).all()
