"""The device's rows of the counted steps, in the order they ran, and what the device waited for before each.

A row belongs to the step that launched it. Rows that nobody is known to have launched belong to the window
they ran in.
"""

from __future__ import annotations

import numpy as np

from findwall.model.events import DEVICE_KINDS, Bool, Kind, Timeline
from findwall.model.intervals import F64, I64, union
from findwall.step.links import PAGEABLE
from findwall.step.step_bounds import begun
from findwall.step.step_facts import Links, Queue, Steps


def line_up(timeline: Timeline, links: Links, steps: Steps, only: int | None = None) -> Queue:
    """The rows of the counted steps, or of one of them alone."""
    events = timeline.events
    used, repeats = _counted(timeline, steps)
    used = used if only is None else used[only : only + 1]
    rows = _rows_of(timeline, steps, used, repeats)
    start, end = events.start[rows], events.end[rows]
    launch = links.launch[rows]
    launched = launch >= 0
    first = int(events.start[launch[launched]].min()) if launched.any() else steps.start
    issued = np.where(launched, events.start[np.maximum(launch, 0)], min(first, steps.start))
    idle_from, idle_until = _idle(timeline, steps, rows, repeats)
    since_free, since_issue = _waited(timeline, links, steps.device, rows, repeats)
    opens, closes = _host_time(timeline, links, steps, used, repeats)
    copies = events.kind[rows] == Kind.MEMCPY
    pageable = timeline.named(PAGEABLE, rows[copies])
    return Queue(
        row=rows,
        step=np.searchsorted(used, np.maximum(steps.of_row[rows], used[0])) if len(used) else rows,
        start=start,
        end=end,
        stream=events.stream[rows],
        launched=launched,
        issued=issued,
        idle_from=idle_from,
        idle_until=idle_until,
        since_free=since_free,
        since_issue=since_issue,
        paced=copies & pageable[events.name[rows]],
        elsewhere=_elsewhere(timeline, links, steps.device, idle_from, idle_until),
        device=steps.device,
        steps=max(len(used), 1),
        begins=steps.start,
        opens=opens,
        closes=closes,
        repeats=repeats,
        used=used,
    )


def device_rows(timeline: Timeline, device: int) -> I64:
    """All rows of one device."""
    rows = timeline.rows(*DEVICE_KINDS)
    mine: I64 = rows[timeline.events.device[rows] == device]
    return mine


def _counted(timeline: Timeline, steps: Steps) -> tuple[I64, bool]:
    """The counted steps by their number, and whether they come again: another one follows, or would."""
    found = begun(timeline, steps)
    if steps.found_by != "span" and (steps.closed or len(found) > steps.count):
        return found[: steps.count], True
    of_row = steps.of_row[device_rows(timeline, steps.device)]
    return np.unique(of_row[of_row >= 0])[-max(steps.count, 1) :], False


def _rows_of(timeline: Timeline, steps: Steps, used: I64, repeats: bool) -> I64:
    events = timeline.events
    rows = device_rows(timeline, steps.device)
    of_row = steps.of_row[rows]
    mine = (of_row < 0) & (events.start[rows] >= steps.start) & (events.start[rows] < steps.end)
    if len(used):
        counted = (of_row >= used[0]) & (of_row <= used[-1])
        if repeats:
            mine &= ~_of_a_step_before(timeline, rows, counted)
        mine |= counted
    rows = rows[mine]
    return rows[np.lexsort((events.end[rows], events.start[rows]))]


def _of_a_step_before(timeline: Timeline, rows: I64, counted: Bool) -> Bool:
    """Rows that come before the counted steps' first one on their stream, and so were launched before it."""
    start = timeline.events.start[rows]
    streams, index = np.unique(timeline.events.stream[rows], return_inverse=True)
    first = np.full(len(streams), np.iinfo(np.int64).max)
    np.minimum.at(first, index[counted], start[counted])
    before: Bool = (start < first[index]) & np.isin(index, index[counted])
    return before


def _host_time(timeline: Timeline, links: Links, steps: Steps, used: I64, repeats: bool) -> tuple[int, int]:
    """From the first launch of these steps to the first of the next one.

    A step that does not come again is the host's own range of it.
    """
    if len(used) == 0:
        return steps.start, steps.end
    edges = int(steps.host[used[0]]), int(steps.host[min(used[-1] + 1, len(steps.host) - 1)])
    if not repeats:
        return edges
    rows = device_rows(timeline, steps.device)
    rows = rows[(links.launch[rows] >= 0) & (steps.of_row[rows] >= 0)]
    issued = timeline.events.start[links.launch[rows]]
    mine, after = issued[steps.of_row[rows] == used[0]], issued[steps.of_row[rows] > used[-1]]
    opens = int(mine.min()) if len(mine) else edges[0]
    return opens, max(int(after.min()) if len(after) else edges[1], opens)


def _idle(timeline: Timeline, steps: Steps, rows: I64, repeats: bool) -> tuple[I64, I64]:
    """From when to when the device idled before each row; nothing where it had work all along.

    What came before the first row may not be in the trace: then the same gap after the last step is told.
    """
    events = timeline.events
    start, end = events.start[rows], events.end[rows]
    if len(rows) == 0:
        return start, start
    every = device_rows(timeline, steps.device)
    earlier = events.end[every[events.start[every] < start[0]]]
    opened = int(earlier.max()) if len(earlier) else int(start[0]) if repeats else steps.start
    idle_from = np.concatenate([[opened], np.maximum(np.maximum.accumulate(end), opened)[:-1]])
    idle_until = np.maximum(start, idle_from)
    if repeats and len(earlier) == 0 and steps.end > end.max():
        idle_from[0], idle_until[0] = end.max(), steps.end
    return idle_from, idle_until


def _waited(timeline: Timeline, links: Links, device: int, rows: I64, repeats: bool) -> tuple[I64, I64]:
    """How long each row started after the row before it on its stream, and after its launch.

    The first row of the trace on a stream has none before it; the like of it in the next steps has.
    """
    events = timeline.events
    every = device_rows(timeline, device)
    order = every[np.lexsort((events.end[every], events.start[every], events.stream[every]))]
    before, after = np.full((2, len(events)), -1, np.int64)
    same = events.stream[order[1:]] == events.stream[order[:-1]]
    before[order[1:][same]] = order[:-1][same]
    after[order[:-1][same]] = order[1:][same]
    last = dict(zip(events.stream[rows].tolist(), rows.tolist(), strict=True))  # on each stream
    like = rows.copy()
    for at in np.flatnonzero(before[rows] < 0).tolist() if repeats else []:
        later = after[last[int(events.stream[rows[at]])]]
        like[at] = later if later >= 0 else rows[at]
    launch = links.launch[like]
    issued = np.where(launch >= 0, events.start[np.maximum(launch, 0)], events.start[like])
    found = before[like]
    unknown = np.minimum(issued, events.start[like])
    free = np.where(found >= 0, events.end[np.maximum(found, 0)], unknown)
    return events.start[like] - free, events.start[like] - issued


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
