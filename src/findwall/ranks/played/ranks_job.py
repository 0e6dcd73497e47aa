"""The job of all ranks, ready to be played: its window, who meets whom, how long transfers take.

The window begins where the first communication ends that most ranks share. What lies before it is how the
ranks' profilers were started: it is nobody's fault, and nothing of it comes back.
"""

from __future__ import annotations

import msgspec
import numpy as np

from findwall.model.catalogue import MAJORITY_SHARE, NEARLY_ALL
from findwall.model.events import Bool
from findwall.model.intervals import F64, I64
from findwall.ranks.played.all_rows import AllRows
from findwall.ranks.played.clocks import Clocks, medians
from findwall.ranks.played.matching import TOGETHER_NS, Matched
from findwall.ranks.played.max_plus import OwnTimes, own_times
from findwall.ranks.played.max_plus import play as play_through
from findwall.ranks.played.mended_rows import with_late_leaving, with_unseen_waits
from findwall.ranks.played.schedule import Schedule, plan


class RanksJob(msgspec.Struct, frozen=True):
    """All times in ns, on the common clock where they are of more than one rank."""

    rows: AllRows
    clocks: Clocks
    schedule: Schedule
    first: I64  # of each rank the row that its window begins with
    entry: int  # the meeting that the window begins after; -1: the ranks share none
    entry_skew: float  # how much longer the first of the ranks waited in it than the last
    begins: F64  # of each rank: when its own progress was at nought
    hosts: F64  # and that of its host, which did not wait where the window begins
    transfer: F64  # of each meeting
    members: I64  # of each meeting, as far as they are here
    step_of: I64  # of each meeting; -1 none
    steps: I64  # the numbers of the steps that are whole
    here: Bool  # of each rank and step, whether its recording holds all of it
    counts: Bool  # of each step, whether it is played as it was: none who is not here was waited for
    measured: F64  # when each meeting ended
    like: I64  # of each meeting: equal where kind and bytes are
    is_common: Bool  # meetings that most ranks share

    def play(self, own: list[OwnTimes] | None = None, transfer: F64 | None = None) -> tuple[F64, F64]:
        """As it was, or with other own times and transfers; a question a row."""
        asked = [own_times(self.rows)] if own is None else own
        transfer = self.transfer[None, :] if transfer is None else transfer
        begins, hosts = (np.tile(one, (len(asked), 1)) for one in (self.begins, self.hosts))
        every = OwnTimes(*(np.stack(one) for one in zip(*(each.columns for each in asked), strict=True)))
        return play_through(self.rows, self.schedule, every, transfer, begins, hosts)

    def step_ends(self, end: F64) -> F64:
        """When each whole step ended, and the one before the first of them: (questions, steps + 1)."""
        numbers = [self.before_first, *self.steps.tolist()]
        found = [end[:, self._closing(number)].max(axis=1) for number in numbers if number >= 0]
        if self.before_first < 0:
            found.insert(0, np.full(len(end), self.opens))
        return np.stack(found, axis=1)

    def _closing(self, number: int) -> Bool:
        """The meetings that a step ends with the last of: those that most ranks share, if it has any."""
        mine: Bool = self.step_of == number
        return mine & self.is_common if (mine & self.is_common).any() else mine

    @property
    def before_first(self) -> int:
        """The step that the first whole one follows; -1: the window begins with it."""
        ends = self.step_of[self.is_common] if self.is_common.any() else self.step_of
        return int(self.steps[0]) - 1 if len(self.steps) and self.steps[0] - 1 in ends else -1

    @property
    def opens(self) -> float:
        """When the window begins."""
        if self.entry >= 0:
            return float(self.measured[self.entry])
        played = np.arange(len(self.rows)) >= self.first[self.rows.rank]
        return float(self.clocks.end[played].min()) if played.any() else 0.0


def set_up(rows: AllRows, matched: Matched, clocks: Clocks) -> RanksJob | None:
    """None where no two ranks share a communication."""
    if matched.count == 0:
        return None
    rows = with_late_leaving(with_unseen_waits(rows, matched), matched, clocks)
    entry, common = _common(rows, matched, clocks)
    first, begins, skew = _entered(rows, matched, clocks, entry)
    schedule = plan(rows, matched.meeting, first)
    size = schedule.meetings
    members = np.bincount(schedule.meeting, minlength=size)
    measured = np.full(size, np.inf)  # who leaves later than the first was held up by itself
    np.minimum.at(measured, schedule.meeting, clocks.end)
    whole = np.zeros(size, bool)
    whole[: len(common)] = common
    step_of = _steps(rows, schedule.meeting, size)
    played = np.zeros(size, bool)
    played[schedule.meeting[np.arange(len(rows)) >= first[rows.rank]]] = True
    steps = _whole_steps(step_of, played & (whole if whole.any() else played), entry)
    return RanksJob(
        rows=rows,
        clocks=clocks,
        schedule=schedule,
        first=first,
        entry=entry,
        entry_skew=skew,
        begins=begins,
        hosts=_hosts(rows, clocks, first, begins),
        transfer=np.minimum(
            _transfers(rows, schedule.meeting, size, members),
            _since_last(rows, schedule.meeting, size, clocks, measured),
        ),
        members=members,
        step_of=np.where(played, step_of, -1),
        steps=steps,
        here=_here(rows, step_of[schedule.meeting], steps),
        counts=np.ones(len(steps), bool),
        measured=measured,
        like=_like(rows, schedule.meeting, size),
        is_common=whole & played,
    )


def _common(rows: AllRows, matched: Matched, clocks: Clocks) -> tuple[int, Bool]:
    """The first meeting of most ranks, and which meetings are such."""
    shared = matched.meeting >= 0
    members = np.bincount(matched.meeting[shared], minlength=matched.count)
    present = len(np.unique(rows.rank))
    common = members > MAJORITY_SHARE * present
    if not common.any():
        return -1, common
    ends = np.full(matched.count, np.inf)
    np.minimum.at(ends, matched.meeting[shared], clocks.end[shared])
    return int(np.argmin(np.where(common, ends, np.inf))), common


def _entered(rows: AllRows, matched: Matched, clocks: Clocks, entry: int) -> tuple[I64, F64, float]:
    """For each rank the first row of its window and when its own progress was at nought; the entry skew."""
    first, begins = rows.first[:-1].copy(), np.zeros(rows.ranks)
    mine = np.flatnonzero(matched.meeting == entry) if entry >= 0 else np.zeros(0, np.int64)
    opens = float(clocks.end[mine].min()) if len(mine) else -np.inf
    at = dict(zip(rows.rank[mine].tolist(), mine.tolist(), strict=True))
    for rank in range(rows.ranks):
        own = rows.of(rank)
        if own.start == own.stop:
            continue
        if rank in at:
            first[rank], begins[rank] = at[rank] + 1, opens - rows.left[at[rank]]
            continue
        later = np.flatnonzero(clocks.end[own] > opens)
        first[rank] = own.start + (int(later[0]) if len(later) else own.stop - own.start)
        anchor = min(max(int(first[rank]) - 1, own.start), own.stop - 1)
        begins[rank] = clocks.end[anchor] - rows.left[anchor]
    lasted = rows.end[mine] - rows.start[mine]
    return first, begins, float(np.ptp(lasted)) if len(mine) else 0.0


def _hosts(rows: AllRows, clocks: Clocks, first: I64, begins: F64) -> F64:
    """When the own progress of each rank's host was at nought: it waited for what its rank had waited for
    when a call last held it."""
    found: F64 = begins.copy()
    late = clocks.end - np.where(rows.joins, rows.left, rows.ready + rows.end - rows.start)
    for rank in range(rows.ranks):
        of = rows.of(rank)
        if of.start < first[rank]:
            until = rows.since[int(first[rank]) - 1]
            passed = np.flatnonzero(rows.joins[of] & (rows.left[of] <= until)) + of.start
            found[rank] = min(late[passed].max() if len(passed) else late[of].min(), begins[rank])
    return found


def _steps(rows: AllRows, meeting: I64, size: int) -> I64:
    """The step that most members launched each meeting in. Ranks whose numbers begin elsewhere are
    shifted."""
    base = rows.of(int(np.argmax(np.diff(rows.first))))
    theirs = np.full(size, -1, np.int64)
    theirs[meeting[base]] = rows.step[base]
    step = rows.step.copy()
    for rank in range(rows.ranks):
        own = rows.of(rank)
        both = (theirs[meeting[own]] >= 0) & (step[own] >= 0)
        shift = round(float(np.median((theirs[meeting[own]] - step[own])[both]))) if both.any() else 0
        step[own] = np.where(step[own] >= 0, step[own] + shift, -1)
    known = np.flatnonzero(step >= 0)
    order = known[np.lexsort((step[known], meeting[known]))]
    first = np.searchsorted(meeting[order], np.arange(size))
    past = np.searchsorted(meeting[order], np.arange(size), side="right")
    middle = np.append(order, -1)[np.minimum((first + past - 1) // 2, len(order))]
    found: I64 = np.where(past > first, step[middle], -1)
    return found


def _whole_steps(step_of: I64, among: Bool, entry: int) -> I64:
    """The steps to count: all but the one that the window begins in, where there are others."""
    numbers = np.unique(step_of[among & (step_of >= 0)])
    if len(numbers) > 1 and entry >= 0 and numbers[0] == step_of[entry]:
        return numbers[1:]
    return numbers


def _here(rows: AllRows, step: I64, steps: I64) -> Bool:
    """A recording holds all of a step that lies between others of it, or that has as many communications as
    its other steps: what was cut off is not known, and no rank is fast where it is."""
    at = np.searchsorted(steps, step)
    inside = (at < len(steps)) & (steps[np.minimum(at, len(steps) - 1)] == step)
    counts = np.zeros((rows.ranks, len(steps)), np.int64)
    np.add.at(counts, (rows.rank[inside], at[inside]), 1)
    before = np.maximum.accumulate(counts, axis=1)[:, :-1] > 0
    after = np.maximum.accumulate(counts[:, ::-1], axis=1)[:, ::-1][:, 1:] > 0
    between = np.zeros(counts.shape, bool)
    between[:, 1:-1] = before[:, :-1] & after[:, 1:]
    some = counts.max(axis=1, initial=0) > 0
    usual = np.full((rows.ranks, 1), np.inf)
    usual[some, 0] = np.nanmedian(np.where(counts > 0, counts, np.nan)[some], axis=1)
    found: Bool = between | (counts >= NEARLY_ALL * usual)
    return found


def _like(rows: AllRows, meeting: I64, size: int) -> I64:
    kind, nbytes = np.zeros(size, np.int64), np.zeros(size, np.int64)
    kind[meeting], nbytes[meeting] = rows.kind, rows.nbytes
    return _numbered(kind, nbytes)


def _numbered(one: I64, other: I64) -> I64:
    """A number for each pair of values."""
    _, found = np.unique(np.stack([one, other]), axis=1, return_inverse=True)
    numbers: I64 = found.reshape(-1)
    return numbers


def _since_last(rows: AllRows, meeting: I64, size: int, clocks: Clocks, measured: F64) -> F64:
    """From the last member's beginning to the end on the common clock, where the clocks are good enough to
    tell that it lasts less than any member's row."""
    begin = np.full(size, -np.inf)
    np.maximum.at(begin, meeting, clocks.end - (rows.end - rows.start))
    found: F64 = np.maximum(measured - begin, 0.0) + max(TOGETHER_NS, clocks.unsure_ns)
    return found


def _transfers(rows: AllRows, meeting: I64, size: int, members: I64) -> F64:
    """From the last member's beginning to the end: the shortest that any member saw. Where the last member is
    not here that would be waiting: no more then than its like usually takes, in its group or, where only one
    of the group is here, in others."""
    shortest = np.full(size, np.inf)
    np.minimum.at(shortest, meeting, rows.end - rows.start)
    group = np.zeros(size, np.int64)
    group[meeting] = rows.group
    like = _like(rows, meeting, size)
    told = np.array(rows.sizes, np.int64)[group]
    found = _as_usual(shortest, members, told, _numbered(like, group))
    found = np.where(members > 1, found, _as_usual(found, members, told, like))
    return np.where(np.isfinite(found), found, 0.0)


def _as_usual(shortest: F64, members: I64, told: I64, like: I64) -> F64:
    """Where members are not here no longer than those take in the median of whose like most are."""
    most = np.zeros(int(like.max(initial=0)) + 1, np.int64)
    np.maximum.at(most, like, members)
    fullest = members == most[like]
    usual = medians(shortest[fullest], like[fullest], len(most))
    found: F64 = np.where(
        members >= np.maximum(told, most[like]), shortest, np.minimum(shortest, usual[like])
    )
    return found
