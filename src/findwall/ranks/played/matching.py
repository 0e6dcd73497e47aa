"""Which rows of different ranks are one communication.

Members of a group send the same kinds in the same order, and a collective ends for all of them together.
Where all counts agree the order alone matches them, if the clocks then do not contradict it. Where rows are
missing or windows were cut differently, two ranks are laid over one another where most of their ends fall
together.
"""

from __future__ import annotations

import msgspec
import numpy as np

from findwall.model.catalogue import MAJORITY_SHARE, NEARLY_ALL
from findwall.model.intervals import F64, I64
from findwall.ranks.played.all_rows import AllRows

# All chosen by hand. Members leave a collective within tens of microseconds of one another. One of a
# hundred ranks on many machines was seen 330 us after another.
TOGETHER_NS = 100_000.0
OF_SPACING = 0.01  # where ends lie far apart, so much of their distance is still together
OUTLYING = 5.0  # times the usual disagreement: no longer the same communication
CLOCKS_APART_NS = 10**9  # hosts of one job keep time to well under a second
ANCHORS = 16  # rows of a rank that are tried against all of another
SHIFTS_TRIED = 8  # places where two windows may lie over one another
FEWEST_TOGETHER = 2  # one end alone falls together with some other by chance


class Matched(msgspec.Struct, frozen=True):
    """`meeting`: for each row the number of its communication, -1 where no other rank has it."""

    meeting: I64
    offset: F64  # of each rank: added to its times it gives the first one's; NaN where nothing tells
    count: int  # of meetings

    @property
    def matched(self) -> int:
        return int((self.meeting >= 0).sum())


class _Matching:
    """Grows as group after group is matched."""

    def __init__(self, rows: AllRows) -> None:
        self.rows = rows
        self.meeting = np.full(len(rows), -1, np.int64)
        self.offset = np.full(rows.ranks, np.nan)
        self.count = 0

    def group(self, mine: I64) -> None:
        """Rows of one group: of one set of members, or of several whose group bears no name."""
        while len(mine):
            ranks, counts = np.unique(self.rows.rank[mine], return_counts=True)
            if len(ranks) < 2:
                return
            known = ~np.isnan(self.offset[ranks])
            chosen = ranks[int(np.argmax(counts + known * counts.sum()))]
            base = mine[self.rows.rank[mine] == chosen]
            if np.isnan(self.offset[chosen]):
                self.offset[chosen] = 0.0
            left = []
            found = False
            for rank in ranks[ranks != chosen].tolist():
                own = mine[self.rows.rank[mine] == rank]
                if self.pair(base, own):
                    found = True
                else:
                    left.append(own)
            mine = np.concatenate(left) if left else mine[:0]
            if not found and len(left) < 2:
                return

    def pair(self, base: I64, own: I64) -> bool:
        """Match one rank's rows of a group with those of the rank it is measured by."""
        rows = self.rows
        ends, others = rows.end[base] + self.offset[rows.rank[base[0]]], rows.end[own]
        code, other = _codes(rows, base, 1), _codes(rows, own, -1)
        rank = int(rows.rank[own[0]])
        told = np.nan if np.isnan(self.offset[rank]) else float(self.offset[rank])
        within = max(TOGETHER_NS, OF_SPACING * _spacing(ends))
        alike = len(code) == len(other) and bool((code == other).all())
        if alike and (rows.step[base] == rows.step[own]).all() and _in_order(rows, base, own):
            self.meet(base, own)
            return True
        shift = told if not np.isnan(told) else _laid_over(ends, others, code, other, within)
        if shift is None:
            return False
        one, two = _mutual(ends, others + shift, code, other)
        apart = np.abs(ends[one] - others[two] - shift)
        if len(apart) == 0:
            return False
        limit = max(within, OUTLYING * float(np.median(apart)))
        if alike and len(one) == len(code):  # the order says the same: further off would be another one
            limit = max(limit, MAJORITY_SHARE * _spacing(ends))
        kept = apart <= limit
        one, two = one[kept], two[kept]
        enough = len(one) >= min(FEWEST_TOGETHER, len(own)) if not np.isnan(told) else _most(one, own, base)
        if not enough:
            return False
        self.meet(base[one], own[two])
        return True

    def meet(self, base: I64, own: I64) -> None:
        """Each of these is the same communication."""
        rank, of = int(self.rows.rank[own[0]]), int(self.rows.rank[base[0]])
        if np.isnan(self.offset[rank]):
            apart = self.rows.end[base] - self.rows.end[own]
            self.offset[rank] = self.offset[of] + float(np.median(apart))
        fresh = base[self.meeting[base] < 0]
        self.meeting[fresh] = self.count + np.arange(len(fresh))
        self.count += len(fresh)
        self.meeting[own] = self.meeting[base]


def match(rows: AllRows) -> Matched:
    """Group by group, the one with most members first: who is in it has a clock for the others."""
    found = _Matching(rows)
    order = np.argsort(rows.group, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(rows.group[order])) + 1) if len(order) else []
    for mine in sorted(groups, key=lambda one: -len(np.unique(rows.rank[one]))):
        found.group(mine)
    return Matched(found.meeting, found.offset, found.count)


def _codes(rows: AllRows, mine: I64, side: int) -> I64:
    """Kinds, and the direction of a pair as its first end sees it."""
    codes: I64 = rows.kind[mine] * 3 + side * rows.sends[mine] + 1
    return codes


def _spacing(ends: F64) -> float:
    return float(np.median(np.diff(np.sort(ends)))) if len(ends) > 1 else 0.0


def _most(one: I64, own: I64, base: I64) -> bool:
    """Whether most rows of the shorter of two are matched, or as many as half a window can have in common."""
    return len(one) >= FEWEST_TOGETHER and len(one) >= MAJORITY_SHARE * min(len(own), len(base))


def _in_order(rows: AllRows, base: I64, own: I64) -> bool:
    """Whether what two ranks say the same of the same steps can be the same, one by one: by their clocks as
    recorded, or where their ends agree, nobody leaves one before the other has come. That tells more than
    ends alone: processes that share too few cores leave milliseconds apart."""
    shift = float(np.median(rows.end[base] - rows.end[own]))
    return any(
        bool(
            (rows.start[base] <= rows.end[own] + moved).all()
            and (rows.start[own] + moved <= rows.end[base]).all()
        )
        for moved in (0.0, shift)
    )


def _laid_over(ends: F64, others: F64, code: I64, other: I64, within: float) -> float | None:
    """What is added to the times of one rank so that most of its ends fall on the other's."""
    if len(code) == len(other) and (code == other).all():
        apart = ends - others
        shift = float(np.median(apart))
        if np.median(np.abs(apart - shift)) <= within:
            return shift
    tried = np.unique(np.linspace(0, len(others) - 1, min(ANCHORS, len(others))).astype(int))
    shifts = (ends[:, None] - others[None, tried])[code[:, None] == other[None, tried]]
    shifts = np.sort(shifts[np.abs(shifts) <= CLOCKS_APART_NS])
    if len(shifts) == 0:
        return None
    past = np.searchsorted(shifts, shifts + 2 * within, side="right")
    votes = past - np.arange(len(shifts))
    return _tightest(_likely(shifts, past, votes, within), ends, others, code, other, within)


def _likely(shifts: F64, past: I64, votes: I64, within: float) -> list[float]:
    """Where most anchors fall together, and other places where nearly as many do: a step further on, say."""
    found: list[float] = []
    for at in np.argsort(-votes, kind="stable").tolist():
        if votes[at] < NEARLY_ALL * votes.max() or len(found) == SHIFTS_TRIED:
            break
        middle = float(np.median(shifts[at : past[at]]))
        if all(abs(middle - one) > 2 * within for one in found):
            found.append(middle)
    return found


def _tightest(likely: list[float], ends: F64, others: F64, code: I64, other: I64, within: float) -> float:
    """Of these shifts the one at which as many rows as at any fall together most closely: steps are alike,
    but no two take the same time to the microsecond."""
    found = []
    for shift in likely:
        one, two = _mutual(ends, others + shift, code, other)
        apart = np.abs(ends[one] - others[two] - shift)
        near = apart <= within
        found.append((int(near.sum()), float(np.median(apart[near])) if near.any() else np.inf, shift))
    most = max(count for count, _, _ in found)
    return min((apart, shift) for count, apart, shift in found if count >= NEARLY_ALL * most)[1]


def _mutual(ends: F64, others: F64, code: I64, other: I64) -> tuple[I64, I64]:
    """Rows of two ranks that are nearest to each other among those of their kind."""
    left, right = [], []
    for one in np.intersect1d(code, other).tolist():
        mine, its = np.flatnonzero(code == one), np.flatnonzero(other == one)
        mine, its = mine[np.argsort(ends[mine])], its[np.argsort(others[its])]
        there = _nearest(ends[mine], others[its])
        back = _nearest(others[its], ends[mine])
        kept = back[there] == np.arange(len(mine))
        left.append(mine[kept])
        right.append(its[there[kept]])
    if not left:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    return np.concatenate(left), np.concatenate(right)


def _nearest(times: F64, among: F64) -> I64:
    after = np.clip(np.searchsorted(among, times), 1, max(len(among) - 1, 1))
    if len(among) == 1:
        return np.zeros(len(times), np.int64)
    closer = np.abs(among[after - 1] - times) <= np.abs(among[after] - times)
    found: I64 = np.where(closer, after - 1, after)
    return found
