"""Each rank's clock against the others', from the ends of the communications that they share.

Offset and drift are fitted for a rank at a time to the median of all, again and again: linear in rows.
"""

from __future__ import annotations

import msgspec
import numpy as np

from findwall.model.intervals import F64, I64
from findwall.ranks.played.all_rows import AllRows
from findwall.ranks.played.matching import TOGETHER_NS, Matched

ROUNDS = 4  # the medians have settled by then. Chosen by hand.
FEWEST_FOR_DRIFT = 4  # points: a line through fewer says nothing
LARGEST_DRIFT = 1e-3  # a clock that is off by more has jumped. Chosen by hand.


class Clocks(msgspec.Struct, frozen=True):
    """A rank's time becomes the common one as offset + (1 + drift) x time."""

    offset: F64
    drift: F64
    residual_ns: float  # median disagreement of the ends, all on the common clock
    end: F64  # of each row on the common clock
    fitted: bool = True  # by the ends; else the ranks' own clocks are the common one

    @property
    def unsure_ns(self) -> float:
        """What two ranks' times can be apart by their clocks alone."""
        return float(np.nan_to_num(self.residual_ns)) if self.fitted else 0.0


def fit_clocks(rows: AllRows, matched: Matched) -> Clocks:
    """By the ends where they fall together. Where they do not, the ranks' own clocks are kept as long as
    nobody leaves a communication before the last has come by them: processes that share too few cores leave
    milliseconds apart, and those of one machine have one clock."""
    found = _by_ends(rows, matched)
    if not found.residual_ns > TOGETHER_NS:
        return found
    shared = np.flatnonzero(matched.meeting >= 0)
    meeting = matched.meeting[shared]
    come, left = np.full(matched.count, -np.inf), np.full(matched.count, np.inf)
    np.maximum.at(come, meeting, rows.start[shared])
    np.minimum.at(left, meeting, rows.end[shared])
    if (come > left).any():
        return found
    apart = rows.end[shared] - medians(rows.end[shared], meeting, matched.count)[meeting]
    nothing = np.zeros(rows.ranks)
    return Clocks(nothing, nothing, float(np.median(np.abs(apart))), rows.end, fitted=False)


def _by_ends(rows: AllRows, matched: Matched) -> Clocks:
    offset = np.nan_to_num(matched.offset)
    drift = np.zeros(rows.ranks)
    shared = np.flatnonzero(matched.meeting >= 0)
    if len(shared) == 0:
        return Clocks(offset, drift, np.nan, rows.end + offset[rows.rank])
    origin = float(np.median(rows.end[shared]))
    rank, meeting = rows.rank[shared], matched.meeting[shared]
    time = rows.end[shared] - origin
    for _ in range(ROUNDS):
        common = medians(time * (1 + drift[rank]) + offset[rank], meeting, matched.count)
        apart = common[meeting] - time
        bounds = np.searchsorted(rank, np.arange(rows.ranks + 1))
        for one in range(rows.ranks):
            mine = slice(int(bounds[one]), int(bounds[one + 1]))
            if bounds[one + 1] > bounds[one]:
                offset[one], drift[one] = _line(time[mine], apart[mine])
    placed = time * (1 + drift[rank]) + offset[rank]
    common = medians(placed, meeting, matched.count)
    residual = float(np.median(np.abs(placed - common[meeting])))
    every = rows.end - origin
    return Clocks(offset, drift, residual, every * (1 + drift[rows.rank]) + offset[rows.rank])


def _line(time: F64, apart: F64) -> tuple[float, float]:
    """Offset and drift through these points; points that lie far off are left out of the second fit."""
    if len(time) < FEWEST_FOR_DRIFT or np.ptp(time) <= 0:
        return float(np.median(apart)), 0.0
    kept = np.ones(len(time), bool)
    offset, drift = 0.0, 0.0
    for _ in range(2):
        middle = float(time[kept].mean())
        spread = time[kept] - middle
        level = float(apart[kept].mean())
        drift = float((spread * (apart[kept] - level)).sum() / max(float((spread**2).sum()), 1.0))
        offset = level - drift * middle
        off = np.abs(apart - offset - drift * time)
        kept = off <= 3 * max(float(np.median(off)), 1.0)
    if abs(drift) > LARGEST_DRIFT:
        return float(np.median(apart)), 0.0
    return offset, drift


def medians(values: F64, of: I64, count: int) -> F64:
    """The median of the values that belong to each; NaN where none does."""
    order = np.lexsort((values, of))
    first = np.searchsorted(of[order], np.arange(count))
    past = np.searchsorted(of[order], np.arange(count), side="right")
    sound = past > first
    low = order[np.minimum((first + past - 1) // 2, len(order) - 1)]
    high = order[np.minimum((first + past) // 2, len(order) - 1)]
    return np.where(sound, (values[low] + values[high]) / 2, np.nan)
