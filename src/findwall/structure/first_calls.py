"""First calls of ops, in which a library sets itself up: cuBLAS its handle, cuDNN its plans, NCCL its rings.

Such a call is open, calls nothing that the trace shows and launches its kernel at last; no later call of the
op does. Where later calls with other shapes do, it is the shapes that are set up (`plans.py`). An op that is
called only once tells nothing by itself: it may work on the host. It counts where other calls of the file are
first ones too.
"""

from __future__ import annotations

import numpy as np

from findwall.model.events import DEVICE_KINDS, Bool, Kind, Timeline
from findwall.model.intervals import I64, Intervals, union
from findwall.structure.links import NESTING_KINDS, Links
from findwall.structure.plans import ASKS, PLAN_NS, WRAPS


def firsts(keys: I64, when: I64) -> Bool:
    """Of rows with keys, which are the first of theirs."""
    order = np.argsort(when, kind="stable")
    first = np.zeros(len(keys), bool)
    first[order[np.unique(keys[order], return_index=True)[1]]] = True
    return first


def first_set_ups(timeline: Timeline, links: Links, is_cold: bool) -> tuple[I64, I64, I64]:
    """Ops, starts and ends. `is_cold`: whether other calls of the file are start-up."""
    events = timeline.events
    ops = timeline.rows(Kind.OP)
    first = ops[firsts(events.name[ops].astype(np.int64), events.start[ops])]
    long = first[events.duration[first] >= PLAN_NS]
    if len(long):
        long = long[~timeline.named(WRAPS, long)[events.name[long]]]
    found: list[tuple[int, int, int]] = []
    for op in long.tolist():
        later = np.setdiff1d(ops[events.name[ops] == events.name[op]], [op])
        silent = _silent(timeline, links, op)
        if events.duration[later].max(initial=0) < silent.length and (is_cold or len(later)):
            found += [(op, *one) for one in zip(silent.start.tolist(), silent.end.tolist(), strict=True)]
    columns = np.array(found, np.int64).reshape(-1, 3)
    return columns[:, 0], columns[:, 1], columns[:, 2]


def _silent(timeline: Timeline, links: Links, op: int) -> Intervals:
    """Long stretches of an op before its last launch in which nothing that it calls runs, save questions."""
    events = timeline.events
    start, end = int(events.start[op]), int(events.end[op])
    inside = (events.thread == events.thread[op]) & (events.start >= start) & (events.end <= end)
    inside[op] = False
    calls = np.unique(links.launch[timeline.rows(*DEVICE_KINDS)])
    calls = calls[calls >= 0]
    calls = calls[inside[calls]]
    inner = np.flatnonzero(inside & events.is_kind(*NESTING_KINDS))
    if len(calls) == 0 or (events.kind[inner] == Kind.PYTHON).any():
        return union(calls[:0], calls[:0])
    inner = inner[~timeline.named(ASKS, inner)[events.name[inner]]]
    gaps = union(events.start[inner], events.end[inner]).gaps(start, int(events.start[calls].max()))
    wide = gaps.end - gaps.start >= PLAN_NS
    return Intervals(gaps.start[wide], gaps.end[wide])
