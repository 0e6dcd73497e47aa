"""The device's rows of the window in the order they ran, and what the device waited for before each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from findwall.model.events import DEVICE_KINDS, Kind, Timeline
from findwall.model.intervals import F64, I64, union
from findwall.structure.copies import PAGEABLE
from findwall.structure.host import Host, names_matching
from findwall.structure.links import Links
from findwall.structure.steps import Steps

TURNAROUND_NS = 1_000  # between two queued kernels, where the trace has none to measure
# A queued kernel that starts later than this waits for something the trace does not show.
LONGEST_TURNAROUND_NS = 20_000
LATENCY_NS = 6_000  # from a launch call to its kernel on an idle device, where the trace has none


@dataclass(frozen=True, slots=True)
class Queue:
    """Device rows of the step window, in the order they run, with what the device waited for."""

    row: I64
    start: I64
    end: I64
    issued: I64  # host time of the launch call; before the window where the trace has none
    before: I64  # when the device ran out of work before this row
    own: I64  # time this row adds to the busy time: overlap counted once
    gap: I64  # idle before it, in the trace
    queued: NDArray[np.bool_]  # it was waiting in the queue: the gap is the device's own turn-around
    paced: NDArray[np.bool_]  # a copy from or to pageable memory: its length is the host's, not the device's
    latency: int
    turnaround: int
    opens: int  # device time at which the window begins
    elsewhere: F64  # share of the gap in which this process has another device at work
    synchronous: bool = False  # the host runs the work itself (a CPU job): nothing ever queues


def line_up(timeline: Timeline, links: Links, steps: Steps, synchronous: bool = False) -> Queue:
    """The rows of the window in device order, and the gap before each."""
    events = timeline.events
    rows = timeline.rows(*DEVICE_KINDS)
    inside = (
        (events.device[rows] == steps.device)
        & (events.end[rows] > steps.start)
        & (events.start[rows] <= steps.end)
    )
    rows = rows[inside]
    rows = rows[np.lexsort((events.end[rows], events.start[rows]))]
    start, end = np.maximum(events.start[rows], steps.start), np.minimum(events.end[rows], steps.end)
    launch = links.launch[rows]
    known = launch >= 0
    first = int(events.start[launch[known]].min()) if known.any() else steps.start
    issued = np.where(known, events.start[launch], min(first, steps.start))
    reach = np.maximum.accumulate(end) if len(end) else end
    before = np.concatenate([[steps.start], np.maximum(reach[:-1], steps.start)]) if len(end) else end
    gap = np.maximum(start - before, 0)
    own = np.maximum(end - np.maximum(start, before), 0)
    late = gap > 0
    waits = start - issued
    latency = _typical(waits[late & (issued >= before)], LATENCY_NS)
    queued = issued + min(latency, LATENCY_NS) <= before
    if synchronous:
        queued = np.zeros(len(rows), bool)
    turnaround = _typical(gap[late & queued & (gap <= LONGEST_TURNAROUND_NS)], TURNAROUND_NS)
    pageable = names_matching(timeline, PAGEABLE)
    paced = (events.kind[rows] == Kind.MEMCPY) & pageable[events.name[rows]]
    return Queue(
        rows,
        start,
        end,
        issued,
        before,
        own,
        gap,
        queued,
        paced,
        latency,
        turnaround,
        steps.start,
        _elsewhere(timeline, links, steps.device, before, start),
        synchronous,
    )


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


def _typical(values: I64, default: int) -> int:
    return int(np.median(values)) if len(values) >= 5 else default
