"""Interval algebra over arrays: sets of half-open stretches `[start, end)` in nanoseconds.

Everything that asks "how long was something happening" goes through here, so that overlapping
kernels are never counted twice.
"""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

I64 = NDArray[np.int64]
I8 = NDArray[np.int8]
F64 = NDArray[np.float64]


class Intervals(msgspec.Struct, frozen=True):
    """Disjoint, sorted, non-empty stretches. Make one with `union`."""

    start: I64
    end: I64

    @property
    def length(self) -> int:
        """Total time covered."""
        return int((self.end - self.start).sum())

    def __len__(self) -> int:
        return len(self.start)

    def __and__(self, other: Intervals) -> Intervals:
        return intersection(self, other)

    def __or__(self, other: Intervals) -> Intervals:
        return union(np.concatenate([self.start, other.start]), np.concatenate([self.end, other.end]))

    def __sub__(self, other: Intervals) -> Intervals:
        return difference(self, other)

    def covered_before(self, at: I64) -> I64:
        """For each time, how much of it this set has covered until then."""
        if len(self) == 0:
            return np.zeros(len(at), np.int64)
        total = np.concatenate([[0], np.cumsum(self.end - self.start)])
        index = np.searchsorted(self.start, at, side="right")
        inside = np.where(index > 0, np.minimum(at, self.end[np.maximum(index - 1, 0)]), 0)
        whole = total[np.maximum(index - 1, 0)]
        partial = np.where(index > 0, inside - self.start[np.maximum(index - 1, 0)], 0)
        covered: I64 = whole + partial
        return covered

    def covered_within(self, start: I64, end: I64) -> I64:
        """For each stretch given, how much of it this set covers."""
        covered: I64 = self.covered_before(end) - self.covered_before(start)
        return covered

    def clip(self, start: int, end: int) -> Intervals:
        """The part inside one stretch."""
        lower, upper = np.maximum(self.start, start), np.minimum(self.end, end)
        keep = upper > lower
        return Intervals(lower[keep], upper[keep])

    def gaps(self, start: int, end: int) -> Intervals:
        """What of one stretch this set leaves uncovered."""
        whole = Intervals(np.array([start], np.int64), np.array([max(end, start)], np.int64))
        return difference(whole if end > start else EMPTY, self)


EMPTY = Intervals(np.empty(0, np.int64), np.empty(0, np.int64))


def union(start: I64, end: I64) -> Intervals:
    """Merge any stretches, overlapping or touching, into disjoint ones. Empty ones vanish."""
    keep = end > start
    start, end = start[keep], end[keep]
    if len(start) == 0:
        return EMPTY
    order = np.argsort(start, kind="stable")
    start, reach = start[order], np.maximum.accumulate(end[order])
    opens = np.concatenate([[True], start[1:] > reach[:-1]])
    closes = np.concatenate([opens[1:], [True]])
    return Intervals(start[opens], reach[closes])


def intersection(a: Intervals, b: Intervals) -> Intervals:
    """What both cover."""
    if len(a) == 0 or len(b) == 0:
        return EMPTY
    edges = np.concatenate([a.start, a.end, b.start, b.end])
    change = np.repeat(np.array([1, -1, 1, -1]), [len(a), len(a), len(b), len(b)])
    order = np.argsort(edges, kind="stable")
    depth = np.cumsum(change[order])
    edges = edges[order]
    both = (depth[:-1] == 2) & (edges[1:] > edges[:-1])
    return union(edges[:-1][both], edges[1:][both])


def difference(a: Intervals, b: Intervals) -> Intervals:
    """What `a` covers and `b` does not."""
    if len(a) == 0 or len(b) == 0:
        return a
    low, high = int(min(a.start[0], b.start[0])), int(max(a.end[-1], b.end[-1]))
    outside = Intervals(np.concatenate([[low], b.end]), np.concatenate([b.start, [high]]))
    keep = outside.end > outside.start
    return intersection(a, Intervals(outside.start[keep], outside.end[keep]))
