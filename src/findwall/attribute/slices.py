"""Device time given to exactly one row: what runs beside something more important is not counted again.

A slice goes to the kernel in it, before the collective, the copy, the memset; equals share it.
"""

from __future__ import annotations

import numpy as np

from findwall.model.intervals import EMPTY, F64, I64, union


def share_out(start: I64, end: I64, level: I64) -> F64:
    """Each row's own time; the sum is the length of the union. Lower levels come first."""
    own = np.zeros(len(start))
    taken = EMPTY
    for rank in np.unique(level).tolist():
        rows = np.flatnonzero(level == rank)
        own[rows] = _among_equals(start[rows], end[rows], taken.start, taken.end)
        taken = taken | union(start[rows], end[rows])
    return own


def _among_equals(start: I64, end: I64, taken_start: I64, taken_end: I64) -> F64:
    """Integrate 1 / (rows running) over the time nobody more important has taken."""
    edges = np.concatenate([start, end, taken_start, taken_end])
    running = np.repeat([1, -1, 0, 0], [len(start), len(end), len(taken_start), len(taken_end)])
    above = np.repeat([0, 0, 1, -1], [len(start), len(end), len(taken_start), len(taken_end)])
    order = np.argsort(edges, kind="stable")
    edges = edges[order]
    depth = np.cumsum(running[order])[:-1]
    free = np.cumsum(above[order])[:-1] == 0
    rate = np.where(free & (depth > 0), 1.0 / np.maximum(depth, 1), 0.0)
    paid = np.concatenate([[0.0], np.cumsum(rate * np.diff(edges))])
    found: F64 = paid[np.searchsorted(edges, end)] - paid[np.searchsorted(edges, start)]
    return found
