"""Ranks that do the same, side by side: where each stands in its own work at each of their communications.

Peers are the ranks of one stage. A place is a communication that each of them has, of its own group or
another: the second gather of the step, say. Between two places next to each other all peers have the same
to do, so the median of what they take is what it takes.
"""

from __future__ import annotations

import msgspec
import numpy as np

from findwall.model.catalogue import MAJORITY_SHARE
from findwall.model.events import Bool
from findwall.model.intervals import F64, I64
from findwall.ranks.layout import Layout
from findwall.ranks.played.ranks_job import RanksJob


class Peers(msgspec.Struct, frozen=True):
    """One class of peers. `own`: own progress of each at each place, NaN where a rank lacks the place.
    Places are in order; the first is where the window begins, if the ranks share that."""

    ranks: I64
    own: F64  # shape (ranks, places)
    step: I64  # of each place; -1 of the first
    row: I64  # of each rank and place; -1 none
    is_left: Bool  # whether a place is the end of a wait, not the beginning of a communication

    def usual(self, without: I64 | None = None) -> F64:
        """Own progress at each place as the median of the peers makes it; some of them left out."""
        others = self.own if without is None else self.own[~np.isin(self.ranks, without)]
        return np.cumsum(median_increments(others))

    def holds(self, held: F64) -> tuple[I64, I64, I64]:
        """The row of each rank and communication, the place of the last at which the host had been held
        anew, and where that usually is."""
        row = self.row[:, ~self.is_left]
        anew = (row >= 0) & (held[np.maximum(row, 0)] >= 0)
        last = np.maximum.accumulate(np.where(anew, np.arange(row.shape[1]), -1), axis=1)
        return row, last, np.median(last, axis=0).astype(np.int64)

    def lateness_by_step(self, usual: F64, steps: I64) -> F64:
        """How much more own time than usual each rank takes in each step: until the last place that is known
        of it there, since the last that is known of it before. NaN where none is."""
        late = self.own - usual
        places = np.where(np.isnan(late), -1, np.arange(late.shape[1]))
        last = np.maximum.accumulate(places, axis=1)  # the last known place until each
        bounds = [np.flatnonzero(self.step < steps[0]), *(np.flatnonzero(self.step <= one) for one in steps)]
        until = last[:, [int(one[-1]) if len(one) else 0 for one in bounds]]
        lines = np.arange(len(late))[:, None]
        known = (until[:, :-1] >= 0) & (until[:, 1:] > until[:, :-1])
        return np.where(known, np.diff(late[lines, until], axis=1), np.nan)


def column_medians(values: F64) -> F64:
    """Of each column, as far as it is known; NaN where it is not."""
    found = np.full(values.shape[1], np.nan)
    known = ~np.isnan(values).all(axis=0)
    found[known] = np.nanmedian(values[:, known], axis=0)
    return found


def median_increments(own: F64) -> F64:
    """From place to place; nothing where no two places next to each other are known of any rank."""
    ahead = np.diff(own, axis=1)
    found = np.zeros(own.shape[1])
    some = ~np.isnan(ahead).all(axis=0)
    found[1:][some] = np.nanmedian(ahead[:, some], axis=0)
    # Places that no rank has one after the other are bridged by what is known of them alone.
    for at in np.flatnonzero(~some).tolist():
        if not np.isnan(own[:, at]).all() and not np.isnan(own[:, at + 1]).all():
            found[at + 1] = max(float(np.nanmedian(own[:, at + 1]) - np.nanmedian(own[:, at])), 0.0)
    return found


def peers_of(job: RanksJob, layout: Layout) -> list[Peers]:
    places = _places(job, layout)
    found = []
    for stage in range(layout.stages):
        ranks = np.flatnonzero(layout.stage == stage)
        if len(ranks):
            found.append(_class(job, ranks, places))
    return found


def _places(job: RanksJob, layout: Layout) -> I64:
    """A number for each row: equal for rows of peers that are the same communication or alike; -1 none."""
    rows, meeting = job.rows, job.schedule.meeting
    step = job.step_of[meeting]
    direction = rows.sends + 1
    code = (_slots(job) * len(rows.kinds) + rows.kind) * 3 + direction
    ordinal = _ordinals(job)
    steps, most = int(step.max(initial=0)) + 1, int(ordinal.max(initial=0)) + 1
    place = (
        (layout.stage[rows.rank] * (int(code.max(initial=0)) + 1) + code) * steps + step
    ) * most + ordinal
    shared = (step >= 0) & (job.members[meeting] > 1) & (np.arange(len(rows)) >= job.first[rows.rank])
    found: I64 = np.where(shared, place, -1)
    return found


def _slots(job: RanksJob) -> I64:
    """Which of its rank's groups each row is of, in the order in which the rank came to them."""
    rows = job.rows
    pair = rows.rank * len(rows.groups) + rows.group
    distinct, first, which = np.unique(pair, return_index=True, return_inverse=True)
    rank = distinct // len(rows.groups)
    order = np.lexsort((first, rank))
    begins = np.searchsorted(rank[order], np.arange(rows.ranks))
    slot = np.empty(len(distinct), np.int64)
    slot[order] = np.arange(len(order)) - begins[rank[order]]
    found: I64 = slot[which.reshape(-1)]
    return found


def _ordinals(job: RanksJob) -> I64:
    """The how-manieth of its group, kind and direction in its step each meeting is."""
    rows, meeting = job.rows, job.schedule.meeting
    size = job.schedule.meetings
    group, kind, lowest = np.zeros(size, np.int64), np.zeros(size, np.int64), np.full(size, rows.ranks)
    group[meeting], kind[meeting] = rows.group, rows.kind
    np.minimum.at(lowest, meeting, rows.rank)
    way = np.zeros(size, np.int64)
    mine = lowest[meeting] == rows.rank
    way[meeting[mine]] = rows.sends[mine]
    keys = (job.step_of, way, kind, group)
    order = np.lexsort((job.measured, *keys))
    other = np.zeros(size, bool)
    for key in keys:
        other[1:] |= np.diff(key[order]) != 0
    begins = np.maximum.accumulate(np.where(other, np.arange(size), 0))
    ordinal = np.empty(size, np.int64)
    ordinal[order] = np.arange(size) - begins
    found: I64 = ordinal[meeting]
    return found


def _class(job: RanksJob, ranks: I64, places: I64) -> Peers:
    rows = job.rows
    at = np.full(rows.ranks, -1)
    at[ranks] = np.arange(len(ranks))
    mine = np.flatnonzero((places >= 0) & (at[rows.rank] >= 0))
    held = mine[rows.joins[mine]]
    keys = np.concatenate([2 * places[mine], 2 * places[held] + 1])
    row = np.concatenate([mine, held])
    where = np.concatenate([rows.ready[mine], rows.left[held]]) + job.begins[rows.rank[row]] - job.opens
    distinct, column, counts = np.unique(keys, return_inverse=True, return_counts=True)
    own = np.full((len(ranks), len(distinct) + 1), np.nan)
    found = np.full(own.shape, -1, np.int64)
    own[:, 0] = 0.0
    own[at[rows.rank[row]], column.reshape(-1) + 1] = where
    found[at[rows.rank[row]], column.reshape(-1) + 1] = row
    step = np.full(len(distinct) + 1, -1, np.int64)
    step[column.reshape(-1) + 1] = job.step_of[job.schedule.meeting[row]]
    is_left = np.concatenate([[False], distinct % 2 == 1])
    kept = np.concatenate([[job.entry >= 0], counts > MAJORITY_SHARE * len(ranks)])
    own, found, step, is_left = own[:, kept], found[:, kept], step[kept], is_left[kept]
    order = _in_order(job, own, found, is_left)
    return Peers(ranks, own[:, order], step[order], found[:, order], is_left[order])


def _in_order(job: RanksJob, own: F64, row: I64, is_left: Bool) -> I64:
    """Places by the own progress at which peers come to them; where that is the same, by what ended first. A
    place that a rank lacks is taken to lie between its neighbours: else medians of unlike ranks decide."""
    first = np.argsort(np.nanmedian(own, axis=0), kind="stable")
    places, filled = np.arange(len(first)), own[:, first].copy()
    known = ~np.isnan(filled)
    for rank in np.flatnonzero(known.any(axis=1) & ~known.all(axis=1)).tolist():
        has = known[rank]
        filled[rank, ~has] = np.interp(places[~has], places[has], filled[rank, has])
    ended = np.where(row >= 0, job.measured[job.schedule.meeting[np.maximum(row, 0)]], np.nan)
    ended[:, 0] = job.opens if row[:, 0].max(initial=-1) < 0 else ended[:, 0]
    keys = is_left[first], np.nanmedian(ended, axis=0)[first], np.nanmedian(filled, axis=0)
    order: I64 = first[np.lexsort(keys)]
    return order
