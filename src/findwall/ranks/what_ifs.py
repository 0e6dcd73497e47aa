"""What the job's step would be if this rank, node, stage or link were as its peers are; or if all were.

The answer is a replay of all ranks: what one saves the others may not be able to use.
"""

from __future__ import annotations

from typing import Literal

import msgspec
import numpy as np

from findwall.model.events import Bool
from findwall.model.intervals import F64, I64
from findwall.ranks.layout import Layout
from findwall.ranks.peers import Peers, column_medians
from findwall.ranks.played.max_plus import OwnTimes, own_times
from findwall.ranks.played.ranks_job import RanksJob
from findwall.ranks.stage_work import stages_levelled

What = Literal["rank", "node", "stage", "link", "all"]
TOGETHER_BYTES = 64 << 20  # that the questions played at once may take. Chosen by hand.


class Question(msgspec.Struct, frozen=True):
    """Ranks whose own time, or meetings whose transfer, is taken to be another."""

    what: What
    number: int  # of the rank among the ranks, of the node, stage or group; -1 for all
    ranks: I64 = msgspec.field(default_factory=lambda: np.zeros(0, np.int64))
    meetings: I64 = msgspec.field(default_factory=lambda: np.zeros(0, np.int64))
    transfer: F64 = msgspec.field(default_factory=lambda: np.zeros(0))  # of `meetings`


class Answers(msgspec.Struct, frozen=True):
    """Times in ns a step: shape (questions, steps)."""

    now: F64  # one row: as it is played unchanged
    then: F64

    @property
    def saved(self) -> F64:
        found: F64 = self.now - self.then
        return found


def ask(job: RanksJob, peers: list[Peers], layout: Layout, questions: list[Question]) -> Answers:
    now = _steps(job, job.play()[0])
    found = [np.zeros((0, now.shape[1]))]
    several = max(int(TOGETHER_BYTES // (40 * max(len(job.rows), 1))), 1)
    for at in range(0, len(questions), several):
        part = questions[at : at + several]
        own = [_own_times(job, peers, layout, one) for one in part]
        transfer = np.stack([_transfers(job, one) for one in part])
        end, _ = job.play(own, transfer)
        found.append(_steps(job, end))
    return Answers(now, np.concatenate(found))


def _steps(job: RanksJob, end: F64) -> F64:
    """How long each step takes; NaN where it tells nothing."""
    return np.where(job.counts, np.diff(job.step_ends(end), axis=1), np.nan)


def _transfers(job: RanksJob, question: Question) -> F64:
    transfer: F64 = job.transfer.copy()
    transfer[question.meetings] = question.transfer
    return transfer


def _own_times(job: RanksJob, peers: list[Peers], layout: Layout, question: Question) -> OwnTimes:
    own = own_times(job.rows)
    if question.what == "stage":
        return stages_levelled(job, layout, own)
    if question.what == "link":
        return own
    ready, left, since = (column.copy() for column in own.columns[:3])
    for one in peers:
        mine = np.isin(one.ranks, question.ranks)
        if not mine.any() or len(one.ranks) < 2:
            continue
        usual = one.usual(None if mine.all() else one.ranks[mine])
        for place in np.flatnonzero(mine).tolist():
            _moved(job, one, place, usual, ready, left, since)
    moved = own.moved(ready, left, since)
    for one in peers:
        mine = np.isin(one.ranks, question.ranks)
        if mine.any() and len(one.ranks) > 1:
            _host_moved(job, one, mine, moved)
    return moved


def _moved(job: RanksJob, peers: Peers, place: int, usual: F64, ready: F64, left: F64, since: F64) -> None:
    """Put a rank where its peers usually are at each place, and what lies between two places in
    proportion."""
    rank = int(peers.ranks[place])
    known = np.flatnonzero(~np.isnan(peers.own[place]))
    if len(known) < 2:
        return
    base = job.opens - job.begins[rank]
    before = peers.own[place, known]
    after = before[0] + usual[known] - usual[known[0]]
    before, after = np.maximum.accumulate(before), np.maximum.accumulate(after)
    of = job.rows.of(rank)
    for times in (ready, left, since):
        here = times[of] - base
        there = np.interp(here, before, after)
        there += np.where(here > before[-1], here - before[-1], 0.0)
        there -= np.where(here < before[0], before[0] - here, 0.0)
        times[of] = there + base


def _host_moved(job: RanksJob, peers: Peers, mine: Bool, own: OwnTimes) -> None:
    """The hosts of these ranks take what is usual, too, as far as they were held where others were."""
    rows = job.rows
    inside = rows.since >= (job.opens - job.begins)[rows.rank]
    row, last, usual_last = peers.holds(rows.held)
    alike = (row >= 0) & (last == usual_last)
    for column, theirs in ((own.hosted, rows.hosted), (own.held, rows.held)):
        known = alike & (inside & (theirs >= 0))[np.maximum(row, 0)]
        others = known if mine.all() else known & ~mine[:, None]
        usual = column_medians(np.where(others, theirs[np.maximum(row, 0)], np.nan))
        moved = known & mine[:, None] & ~np.isnan(usual)
        column[row[moved]] = np.broadcast_to(usual, row.shape)[moved]
        unknown = row[(row >= 0) & mine[:, None] & ~moved]
        column[unknown] = np.minimum(column[unknown], 0.0)


def own_by_step(job: RanksJob) -> F64:
    """Own time of each rank in each whole step: (ranks, steps)."""
    rows = job.rows
    numbers = job.steps.tolist()
    found = np.full((rows.ranks, len(numbers) + 1), np.nan)
    step = job.step_of[job.schedule.meeting]
    first = job.before_first
    for rank in range(rows.ranks):
        of = np.arange(len(rows))[rows.of(rank)]
        of = of[of >= job.first[rank]]
        base = job.opens - job.begins[rank]
        last = dict(zip(step[of].tolist(), rows.ready[of].tolist(), strict=True))
        found[rank, 0] = last.get(first, base) if first >= 0 else base
        found[rank, 1:] = [last.get(number, np.nan) for number in numbers]
    return np.diff(found, axis=1)
