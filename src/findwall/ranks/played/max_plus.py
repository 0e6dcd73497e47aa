"""The job of all ranks played: each does its own work, and waits where it waited.

A communication begins on a member when the member is ready and its stream is free, transfers from when the
last member has begun, and ends for all together. Several questions are played at once, a row each.
"""

from __future__ import annotations

import msgspec
import numpy as np

from findwall.model.intervals import F64
from findwall.ranks.played.all_rows import AllRows
from findwall.ranks.played.schedule import Schedule

NEVER = -np.inf


class OwnTimes(msgspec.Struct, frozen=True):
    """What ranks do by themselves, as the columns of `AllRows` say it; a question a row."""

    ready: F64
    left: F64
    since: F64
    hosted: F64
    held: F64

    @property
    def columns(self) -> tuple[F64, ...]:
        return self.ready, self.left, self.since, self.hosted, self.held

    def moved(self, ready: F64, left: F64, since: F64) -> OwnTimes:
        """Come to all of it at other times, and the host as much later or earlier."""
        hosted = self.hosted + (ready - self.ready) - (since - self.since)
        further = self.held + np.diff(since - self.since, prepend=0.0)
        held: F64 = np.where(self.held >= 0, np.maximum(further, 0.0), self.held)
        return OwnTimes(ready, left, since, hosted, held)


def with_progress(rows: AllRows, ready: F64, left: F64, since: F64) -> AllRows:
    moved = own_times(rows).moved(ready, left, since)
    return msgspec.structs.replace(
        rows, ready=ready, left=left, since=since, hosted=moved.hosted, held=moved.held
    )


def own_times(rows: AllRows) -> OwnTimes:
    return OwnTimes(rows.ready, rows.left, rows.since, rows.hosted, rows.held)


def play(
    rows: AllRows, schedule: Schedule, own: OwnTimes, transfer: F64, begins: F64, hosts: F64
) -> tuple[F64, F64]:
    """When each meeting ends and how much later than by its own work alone each rank is then.

    Shapes: `ready` and `left` (questions, rows), `transfer` (questions, meetings), `begins` (questions,
    ranks): when each rank's own progress was at nought. Given back: (questions, meetings), (questions,
    ranks).
    """
    ready, left = own.ready, own.left
    hosted = own.hosted - (own.ready - own.since)  # the later way decides
    is_held = own.held >= 0
    held = np.where(is_held, own.held - np.diff(own.since, axis=1, prepend=0.0), 0.0)
    questions = len(ready)
    late, host = begins, hosts
    last = np.full((questions, schedule.meetings), NEVER)
    end = np.full((questions, schedule.meetings), NEVER)
    meeting, rank = schedule.meeting, rows.rank
    for one in schedule.rounds:
        if len(one.joining):
            passed = end[:, meeting[one.joining]] - left[:, one.joining]
            latest = np.maximum.reduceat(passed, one.joined_at, axis=1)
            by = rank[one.row[one.joined_by]]
            late[:, by] = np.maximum(late[:, by], latest)
        if len(one.row):
            on = rank[one.row]
            by_device, by_host = late[:, on], host[:, on]
            by_host = np.maximum(by_host + held[:, one.row], np.where(is_held[:, one.row], by_device, NEVER))
            by_device = np.maximum(by_device, by_host + hosted[:, one.row])
            late[:, on], host[:, on] = by_device, by_host
            begin = ready[:, one.row] + by_device
            free = np.where(one.before >= 0, end[:, meeting[one.before]], NEVER)
            _raise_to(last, meeting[one.row], np.maximum(begin, free))
        end[:, one.ended] = last[:, one.ended] + transfer[:, one.ended]
    return end, late


def _raise_to(last: F64, which: np.ndarray, values: F64) -> None:
    """Each meeting's latest beginning, as far as it is known."""
    order = np.argsort(which, kind="stable")
    ordered = which[order]
    first = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    found = np.maximum.reduceat(values[:, order], first, axis=1)
    distinct = ordered[first]
    last[:, distinct] = np.maximum(last[:, distinct], found)
