"""In which order the communications of all ranks can be played, whatever they last.

A rank comes to its communications one after the other. It can begin one when the one before it on the same
stream has ended, and when all have ended that its own work waited for until then. This hangs on nothing but
the order, so it is worked out once and serves every replay.
"""

from __future__ import annotations

import msgspec
import numpy as np

from findwall.model.events import Bool
from findwall.model.intervals import I64
from findwall.ranks.played.all_rows import AllRows


class Round(msgspec.Struct, frozen=True):
    """Rows of different ranks that can begin together."""

    row: I64
    before: I64  # the row before each on its stream; -1 none
    joining: I64  # rows that the ranks of `row` have waited for until then, together for each rank
    joined_at: I64  # where in `joining` a rank's rows begin, for the ranks that have any
    joined_by: I64  # and which of `row` they are
    ended: I64  # meetings that have all their members with this round


class Schedule(msgspec.Struct, frozen=True):
    rounds: tuple[Round, ...]
    meeting: I64  # of each row; a row that nobody else has is one of its own
    meetings: int
    dropped: int  # rows that could not be played in order: their meeting went on without them


class _Orders(msgspec.Struct, frozen=True):
    """What each row needs to have ended before it, besides what the rows before it needed."""

    before: I64
    joining: I64  # rows that are joined, in the order in which they are needed
    first: I64  # for each row where its own begin in `joining`, one more than there are rows


def plan(rows: AllRows, meeting: I64, first: I64) -> Schedule:
    """`first`: of each rank the row that its window begins with; what is before it is not played."""
    alone = np.flatnonzero(meeting < 0)
    meeting = meeting.copy()
    count = int(meeting.max(initial=-1)) + 1
    meeting[alone] = count + np.arange(len(alone))
    count += len(alone)
    played = np.zeros(len(rows), bool)
    for rank in range(rows.ranks):
        played[int(first[rank]) : int(rows.first[rank + 1])] = True
    orders = _orders(rows, played)
    missing = np.bincount(meeting[played], minlength=count)
    return _play_through(rows, orders, meeting, missing, first.copy())


def _play_through(rows: AllRows, orders: _Orders, meeting: I64, missing: I64, at: I64) -> Schedule:
    past = rows.first[1:]
    has_ended = np.zeros(len(missing), bool)
    rounds, dropped = [], 0
    while True:
        going = np.flatnonzero(at < past)
        if len(going) == 0:
            break
        ready = _can_begin(orders, meeting, has_ended, at[going])
        if not ready.any():  # an order that contradicts itself: the first in line goes on without the rest
            held = _held_by(orders, meeting, has_ended, at[going])
            dropped += int(missing[held].sum())
            missing[held] = 0
            has_ended[held] = True
            rounds.append(_round(orders, at[:0], held))
            continue
        row = at[going[ready]]
        np.subtract.at(missing, meeting[row], 1)
        ended = np.unique(meeting[row])
        ended = ended[(missing[ended] <= 0) & ~has_ended[ended]]
        has_ended[ended] = True
        rounds.append(_round(orders, row, ended))
        at[going[ready]] += 1
    return Schedule(tuple(rounds), meeting, len(missing), dropped)


def _orders(rows: AllRows, played: Bool) -> _Orders:
    before = np.full(len(rows), -1, np.int64)
    joining, needed_by = [], []
    for rank in range(rows.ranks):
        mine = np.arange(len(rows))[rows.of(rank)]
        mine = mine[played[mine]]
        for stream in np.unique(rows.stream[mine]).tolist():
            own = mine[rows.stream[mine] == stream]
            before[own[1:]] = own[:-1]
        held = mine[rows.joins[mine]]
        # A row is needed by the first one that becomes ready after its end, and never by itself.
        at = np.searchsorted(rows.ready[mine], rows.left[held], side="left")
        needed = np.maximum(mine[0] + at, held + 1) if len(mine) else held
        kept = needed <= (mine[-1] if len(mine) else -1)
        joining.append(held[kept])
        needed_by.append(needed[kept])
    all_joining = np.concatenate(joining) if joining else np.zeros(0, np.int64)
    by = np.concatenate(needed_by) if needed_by else np.zeros(0, np.int64)
    order = np.argsort(by, kind="stable")
    first = np.searchsorted(by[order], np.arange(len(rows) + 1))
    return _Orders(before, all_joining[order], first)


def _can_begin(orders: _Orders, meeting: I64, has_ended: Bool, row: I64) -> Bool:
    before = orders.before[row]
    free: Bool = (before < 0) | has_ended[meeting[before]]
    lengths = orders.first[row + 1] - orders.first[row]
    some = np.flatnonzero(lengths > 0)
    if len(some):
        joining, starts = _spread(orders, row[some])
        free[some] &= np.logical_and.reduceat(has_ended[meeting[orders.joining[joining]]], starts)
    return free


def _held_by(orders: _Orders, meeting: I64, has_ended: Bool, row: I64) -> I64:
    """The meeting that the first of these rows waits for."""
    one = int(row[0])
    needs = [int(orders.before[one])] if orders.before[one] >= 0 else []
    needs += orders.joining[orders.first[one] : orders.first[one + 1]].tolist()
    waits = [int(meeting[need]) for need in needs if not has_ended[meeting[need]]]
    return np.array(waits, np.int64)


def _spread(orders: _Orders, row: I64) -> tuple[I64, I64]:
    """Places in `joining` of all these rows, and where each row's begin among them."""
    begins, lengths = orders.first[row], orders.first[row + 1] - orders.first[row]
    starts = np.cumsum(lengths) - lengths
    places = np.arange(int(lengths.sum())) + np.repeat(begins - starts, lengths)
    return places, starts


def _round(orders: _Orders, row: I64, ended: I64) -> Round:
    lengths = orders.first[row + 1] - orders.first[row] if len(row) else row
    some = np.flatnonzero(lengths > 0)
    places, starts = _spread(orders, row[some]) if len(some) else (row[:0], row[:0])
    return Round(row, orders.before[row], orders.joining[places], starts, some, ended)
