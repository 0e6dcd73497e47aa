"""The device's rows of the counted steps, in the order they ran, and what the device waited for before each.

A row belongs to the step that launched it. Rows that nobody is known to have launched belong to the window
they ran in.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from findwall.model.events import DEVICE_KINDS, Bool, Kind, Timeline
from findwall.model.intervals import F64, I64, union
from findwall.structure.copies import PAGEABLE
from findwall.structure.host import names_matching
from findwall.structure.links import Links
from findwall.structure.steps import Steps


@dataclass(frozen=True, slots=True)
class Queue:
    """The rows, in the order they started. All columns have one length."""

    row: I64
    step: I64  # 0 … steps - 1
    start: I64
    end: I64
    stream: I64
    launched: Bool  # the trace has its launch call
    issued: I64  # start of that call; before all others where there is none
    before: I64  # when the device ran out of work before this row
    gap: I64  # idle before it, in the trace
    free: I64  # when its own stream was free: the end of the row before it there
    paced: Bool  # a copy from or to pageable memory: its length is the host's, not the device's
    elsewhere: F64  # share of the gap in which this process has another device at work
    device: int
    steps: int
    opens: int  # host time at which the first of the steps begins
    closes: int  # and at which the last one ends
    repeats: bool  # the trace goes on into the next step: these come again

    def positions(self, rows: I64) -> I64:
        """Where rows of this queue stand in it."""
        order = np.argsort(self.row, kind="stable")
        found: I64 = order[np.searchsorted(self.row[order], rows)]
        return found


def line_up(timeline: Timeline, links: Links, steps: Steps, only: int | None = None) -> Queue:
    """The rows of the counted steps, or of one of them alone."""
    events = timeline.events
    used, repeats = _counted(timeline, steps)
    used = used if only is None else used[only : only + 1]
    rows = _rows_of(timeline, steps, used)
    start, end = events.start[rows], events.end[rows]
    launch = links.launch[rows]
    launched = launch >= 0
    first = int(events.start[launch[launched]].min()) if launched.any() else steps.start
    issued = np.where(launched, events.start[np.maximum(launch, 0)], min(first, steps.start))
    opened = int(start[0]) if repeats and len(rows) else steps.start
    reach = np.maximum.accumulate(np.maximum(end, opened)) if len(rows) else end
    before = np.concatenate([[opened], reach[:-1]]) if len(rows) else end
    pageable = names_matching(timeline, PAGEABLE)
    return Queue(
        row=rows,
        step=np.searchsorted(used, np.maximum(steps.of_row[rows], used[0])) if len(used) else rows,
        start=start,
        end=end,
        stream=events.stream[rows],
        launched=launched,
        issued=issued,
        before=before,
        gap=np.maximum(start - before, 0),
        free=_stream_free(timeline, steps.device, rows),
        paced=(events.kind[rows] == Kind.MEMCPY) & pageable[events.name[rows]],
        elsewhere=_elsewhere(timeline, links, steps.device, before, start),
        device=steps.device,
        steps=max(len(used), 1),
        opens=int(steps.host[used[0]]) if len(used) else steps.start,
        closes=int(steps.host[used[-1] + 1]) if len(used) else steps.end,
        repeats=repeats,
    )


def device_rows(timeline: Timeline, device: int) -> I64:
    """All rows of one device."""
    rows = timeline.rows(*DEVICE_KINDS)
    mine: I64 = rows[timeline.events.device[rows] == device]
    return mine


def _counted(timeline: Timeline, steps: Steps) -> tuple[I64, bool]:
    """The counted steps by their number, and whether another one follows."""
    of_row = steps.of_row[device_rows(timeline, steps.device)]
    found = np.unique(of_row[of_row >= 0])
    repeats = steps.found_by != "span" and len(found) > steps.count
    return (found[: steps.count] if repeats else found[-max(steps.count, 1) :]), repeats


def _rows_of(timeline: Timeline, steps: Steps, used: I64) -> I64:
    events = timeline.events
    rows = device_rows(timeline, steps.device)
    of_row = steps.of_row[rows]
    mine = (of_row < 0) & (events.start[rows] >= steps.start) & (events.start[rows] < steps.end)
    if len(used):
        mine |= (of_row >= used[0]) & (of_row <= used[-1])
    rows = rows[mine]
    found: I64 = rows[np.lexsort((events.end[rows], events.start[rows]))]
    return found


def _stream_free(timeline: Timeline, device: int, rows: I64) -> I64:
    """When the row before each on its stream ended; its own start where it is the first of the trace."""
    events = timeline.events
    every = device_rows(timeline, device)
    order = every[np.lexsort((events.end[every], events.start[every], events.stream[every]))]
    before = np.full(len(events), -1, np.int64)
    before[order[1:]] = np.where(events.stream[order[1:]] == events.stream[order[:-1]], order[:-1], -1)
    found = before[rows]
    free: I64 = np.where(found >= 0, events.end[np.maximum(found, 0)], events.start[rows])
    return free


def _elsewhere(timeline: Timeline, links: Links, device: int, start: I64, end: I64) -> F64:
    """Of each stretch, the share in which other devices run what the same processes launched."""
    events = timeline.events
    rows = timeline.rows(*DEVICE_KINDS)
    rows = rows[links.launch[rows] >= 0]
    launcher = events.process[links.launch[rows]]
    mine = events.device[rows] == device
    other = rows[~mine & np.isin(launcher, np.unique(launcher[mine]))]
    covered = union(events.start[other], events.end[other]).covered_within(start, np.maximum(start, end))
    share: F64 = covered / np.maximum(end - start, 1)
    return share
