"""The device's rows as the graph needs them: order on every stream, turn-around, latency, event waits."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from findwall.model.events import DEVICE_KINDS, Bool, Kind, Timeline
from findwall.model.intervals import F64, I64
from findwall.replay.graph import NOTHING
from findwall.structure.copies import PAGEABLE
from findwall.structure.host import names_matching
from findwall.structure.links import Links
from findwall.structure.steps import Steps

LATENCY_NS = 6_000.0  # from a launch to its kernel on an idle H200, where the trace has too few to measure it
TURNAROUND_NS = 1_000.0  # between two queued kernels, likewise
LONGEST_TURNAROUND_NS = 20_000.0  # a queued row that starts later waits for something that is not turn-around
TYPICAL_OF = 5  # a median of fewer is not trusted
# A row waits for one of another stream if it starts this soon after that one ended...
EVENT_WAIT_NS = 20_000
READY_NS = 5_000  # ...and had been launched, with its own stream free, at least this long before.
WAITS = re.compile("StreamWaitEvent", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Window:
    """The steps that become the graph: their rows on the device, their stretch of the host's time."""

    rows: I64  # in the order they started
    step: I64  # of each row
    steps: int
    opens: int  # host time
    closes: int
    repeats: bool  # the next step begins in the trace as well: its length is known, and it comes again


@dataclass(frozen=True, slots=True)
class DeviceSide:
    """The window's rows in the order they started. All columns have one length."""

    row: I64
    start: I64
    end: I64
    issued: I64  # start of the launch call; -1 where the trace has none
    stream: I64
    turn: F64  # ns after the row before on its stream
    lag: F64  # ns after its launch; -inf where that is not known
    queued: Bool
    paced: Bool
    waits_for: I64  # the timeline's row of another stream that it waits for; -1 none
    wait_lag: F64
    latency: float
    turnaround: float


def choose_window(timeline: Timeline, steps: Steps, only: int | None = None) -> Window:
    """Rows that the counted steps launched, and where the host began and ended them."""
    events = timeline.events
    rows = device_rows(timeline, steps.device)
    of_row = steps.of_row[rows]
    found = np.unique(of_row[of_row >= 0])
    repeats = steps.found_by != "span" and len(found) > steps.count
    used = found[: steps.count] if repeats else found[-max(steps.count, 1) :]
    used = used if only is None else used[only : only + 1]
    if len(used) == 0:
        return Window(rows[:0], rows[:0], 1, steps.start, steps.end, False)
    orphan = (of_row < 0) & (events.start[rows] >= steps.start) & (events.start[rows] < steps.end)
    rows = rows[((of_row >= used[0]) & (of_row <= used[-1])) | orphan]
    rows = rows[np.lexsort((events.end[rows], events.start[rows]))]
    step = np.searchsorted(used, np.maximum(steps.of_row[rows], used[0]))
    opens, closes = int(steps.host[used[0]]), int(steps.host[used[-1] + 1])
    return Window(rows, step, len(used), opens, closes, repeats)


def device_rows(timeline: Timeline, device: int) -> I64:
    rows = timeline.rows(*DEVICE_KINDS)
    mine: I64 = rows[timeline.events.device[rows] == device]
    return mine


def line_up_rows(timeline: Timeline, links: Links, steps: Steps, window: Window, on_cores: bool) -> DeviceSide:
    """Each row's place: what it follows on its stream, and how long after its launch it could start."""
    events = timeline.events
    rows = window.rows
    start, end = events.start[rows], events.end[rows]
    launch = links.launch[rows]
    issued = np.where(launch >= 0, events.start[np.maximum(launch, 0)], -1)
    free = _stream_free(timeline, steps.device, rows)
    gap = (start - free).astype(np.float64)
    waited = (start - issued).astype(np.float64)
    known = issued >= 0
    late = known & (gap > 0)
    latency = _typical(waited[late & (issued >= free)], LATENCY_NS)
    queued = ~known | (issued + min(latency, LATENCY_NS) <= free)
    if on_cores:
        queued = np.zeros(len(rows), bool)
    turnaround = _typical(gap[late & queued & (gap <= LONGEST_TURNAROUND_NS)], TURNAROUND_NS)
    waits_for, wait_lag = _event_waits(timeline, links, steps.device, rows, issued, free, latency)
    turn = np.where(queued | (gap < 0), gap, np.minimum(gap, turnaround))
    turn = np.where(waits_for >= 0, np.minimum(gap, turnaround), turn)
    lag = np.where(queued | (gap <= 0) | (waits_for >= 0), np.minimum(waited, latency), waited)
    lag = np.where(known, np.maximum(lag, 0.0), NOTHING)
    pageable = names_matching(timeline, PAGEABLE)
    paced = (events.kind[rows] == Kind.MEMCPY) & (pageable[events.name[rows]] if len(pageable) else False)
    return DeviceSide(
        row=rows,
        start=start,
        end=end,
        issued=issued,
        stream=events.stream[rows],
        turn=turn,
        lag=lag,
        queued=queued,
        paced=paced,
        waits_for=waits_for,
        wait_lag=wait_lag - turn,
        latency=latency,
        turnaround=turnaround,
    )


def _typical(values: F64, default: float) -> float:
    return float(np.median(values)) if len(values) >= TYPICAL_OF else default


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


def _event_waits(
    timeline: Timeline, links: Links, device: int, rows: I64, issued: I64, free: I64, latency: float
) -> tuple[I64, F64]:
    """For each row the row of another stream it waits for, and how long after that one's end it starts.

    A recorded wait names the event; without such records a wait is believed where the trace has calls that
    make streams wait, and the row had been ready for a while when the other one ended.
    """
    events = timeline.events
    waits_for, lag = np.full(len(rows), -1, np.int64), np.zeros(len(rows))
    every = device_rows(timeline, device)
    if len(np.unique(events.stream[every])) < 2 or not names_matching(timeline, WAITS).any():
        return waits_for, lag
    every = every[np.argsort(events.end[every], kind="stable")]
    start = events.start[rows]
    ready = np.maximum(issued + int(latency), free)
    candidates = np.flatnonzero((issued >= 0) & (start - ready >= READY_NS))
    ends = events.end[every]
    for at in candidates.tolist():
        here = int(np.searchsorted(ends, start[at], side="right")) - 1
        while here >= 0 and start[at] - ends[here] <= EVENT_WAIT_NS:
            if events.stream[every[here]] != events.stream[rows[at]] and ends[here] > ready[at]:
                waits_for[at], lag[at] = every[here], float(start[at] - ends[here])
                break
            here -= 1
    return waits_for, lag
