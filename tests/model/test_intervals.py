"""Interval algebra, held against counting single nanoseconds."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from findwall.model.intervals import EMPTY, Intervals, difference, intersection, union

LIMIT = 40
stretches = st.lists(st.tuples(st.integers(0, LIMIT), st.integers(0, LIMIT)), max_size=12)


def make(pairs: list[tuple[int, int]]) -> Intervals:
    pairs = [(min(pair), max(pair)) for pair in pairs]
    return union(np.array([a for a, _ in pairs], np.int64), np.array([b for _, b in pairs], np.int64))


def points(intervals: Intervals) -> set[int]:
    return {p for a, b in zip(intervals.start, intervals.end, strict=True) for p in range(a, b)}


def raw_points(pairs: list[tuple[int, int]]) -> set[int]:
    return {p for pair in pairs for p in range(min(pair), max(pair))}


@given(stretches)
def test_union_is_disjoint_sorted_and_complete(pairs: list[tuple[int, int]]) -> None:
    found = make(pairs)
    assert points(found) == raw_points(pairs)
    assert found.length == len(raw_points(pairs))
    assert (found.end > found.start).all()
    assert (found.start[1:] > found.end[:-1]).all()


@given(stretches, stretches)
def test_the_three_operations(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> None:
    a, b = make(one), make(other)
    assert points(intersection(a, b)) == points(a) & points(b)
    assert points(difference(a, b)) == points(a) - points(b)
    assert points(a | b) == points(a) | points(b)
    assert points(a & b) == points(b & a)
    assert (a - b).length + (a & b).length == a.length
    assert (a | b).length == a.length + b.length - (a & b).length


@given(stretches, st.integers(0, LIMIT), st.integers(0, LIMIT))
def test_clip_gaps_and_cover(pairs: list[tuple[int, int]], x: int, y: int) -> None:
    a, (low, high) = make(pairs), sorted((x, y))
    inside = {p for p in points(a) if low <= p < high}
    assert points(a.clip(low, high)) == inside
    assert points(a.gaps(low, high)) == set(range(low, high)) - points(a)
    covered = a.covered_within(np.array([low], np.int64), np.array([high], np.int64))
    assert covered.tolist() == [len(inside)]


def test_nothing() -> None:
    assert EMPTY.length == 0
    assert len(make([(3, 3)])) == 0
    assert EMPTY.gaps(5, 5).length == 0
    assert EMPTY.gaps(2, 5).length == 3
    assert EMPTY.covered_before(np.array([4], np.int64)).tolist() == [0]


def test_touching_stretches_become_one() -> None:
    joined = make([(0, 5), (5, 9)])
    assert (joined.start.tolist(), joined.end.tolist()) == ([0], [9])


def test_nanoseconds_of_a_long_epoch_do_not_overflow() -> None:
    late = 4 * 10**18
    assert union(np.array([late], np.int64), np.array([late + 7], np.int64)).length == 7
