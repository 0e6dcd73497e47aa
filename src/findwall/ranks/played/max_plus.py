"""The job of all ranks played: each does its own work, and waits where it waited.

A communication begins on a member when the member is ready and its stream is free, transfers from when the
last member has begun, and ends for all together. Several questions are played at once, a row each.
"""

from __future__ import annotations

import numpy as np

from findwall.model.intervals import F64
from findwall.ranks.played.all_rows import AllRows
from findwall.ranks.played.schedule import Schedule

NEVER = -np.inf


def play(
    rows: AllRows, schedule: Schedule, ready: F64, left: F64, transfer: F64, begins: F64
) -> tuple[F64, F64]:
    """When each meeting ends and how much later than by its own work alone each rank is then.

    Shapes: `ready` and `left` (questions, rows), `transfer` (questions, meetings), `begins` (questions,
    ranks): when each rank's own progress was at nought. Given back: (questions, meetings), (questions,
    ranks).
    """
    questions = len(ready)
    late = begins.copy()
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
            begin = ready[:, one.row] + late[:, rank[one.row]]
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
