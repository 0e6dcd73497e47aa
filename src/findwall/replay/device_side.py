"""The device's rows as the graph needs them: order on every stream, turn-around, latency, event waits."""

from __future__ import annotations

import msgspec
import numpy as np

from findwall.model.events import Timeline
from findwall.model.intervals import F64, I64
from findwall.replay.graph import LONGEST_TURNAROUND_NS, NOTHING
from findwall.step.device_queue import device_rows
from findwall.step.step_facts import Queue

LATENCY_NS = 6_000.0  # from a launch to its kernel on an idle H200, where the trace has too few to measure it
TURNAROUND_NS = 1_000.0  # between two queued kernels, likewise
# It may also start in the last part of that row, where its blocks leave room.
TAIL_SHARE = 0.35  # of the row's time: seen in up to a third


class DeviceSide(msgspec.Struct, frozen=True):
    """What the queue's rows wait for, in their order. All columns have one length."""

    turn: F64  # ns after the row before on its stream
    lag: F64  # ns after its launch; -inf where that is not known
    waits_for: I64  # the timeline's row of another stream that it waits for; -1 none
    wait_lag: F64
    latency: float
    turnaround: float


def line_up_rows(timeline: Timeline, queue: Queue, on_cores: bool) -> DeviceSide:
    """Each row's place: what it follows on its stream, and how long after its launch it could start."""
    gap, waited = queue.since_free.astype(np.float64), queue.since_issue.astype(np.float64)
    late = queue.launched & (gap > 0)
    waits_for, wait_lag = _waits_between_streams(timeline, queue)
    waits = waits_for >= 0
    latency = _typical(waited[late & ~waits & (waited <= gap)], LATENCY_NS)
    queued = ~queue.launched | (waited - min(latency, LATENCY_NS) >= gap)
    if on_cores:
        queued = np.zeros(len(queue.row), bool)
    turnaround = _typical(gap[late & queued & (gap <= LONGEST_TURNAROUND_NS)], TURNAROUND_NS)
    turn = np.where((queued | (gap < 0)) & ~waits, gap, np.minimum(gap, turnaround))
    lag = np.where(queued | (gap <= 0) | waits, np.minimum(waited, latency), waited)
    if on_cores:  # all that lies between two ops is the host's
        turn, lag = np.minimum(turn, 0.0), np.zeros(len(lag))
    return DeviceSide(
        turn=turn,
        lag=np.where(queue.launched, np.maximum(lag, 0.0), NOTHING),
        waits_for=waits_for,
        wait_lag=wait_lag - turn,
        latency=latency,
        turnaround=turnaround,
    )


def _typical(values: F64, default: float) -> float:
    return float(np.median(values)) if len(values) else default


def _waits_between_streams(timeline: Timeline, queue: Queue) -> tuple[I64, F64]:
    """For each row the row of another stream it waits for, and how long after that one's end it starts.

    Told by the times: it had been ready for a while, its launch long past and its own stream free, and
    started right when the other one ended (an event, which traces seldom record) or in that one's tail (room
    on a full device: then the lag is negative).
    """
    events = timeline.events
    waits_for, lag = np.full(len(queue.row), -1, np.int64), np.zeros(len(queue.row))
    every = device_rows(timeline, queue.device)
    if len(np.unique(events.stream[every])) < 2:
        return waits_for, lag
    every = every[np.argsort(events.end[every], kind="stable")]
    ends, tails = events.end[every], (TAIL_SHARE * events.duration[every]).astype(np.int64)
    ready = queue.start - np.minimum(queue.since_issue - int(LATENCY_NS), queue.since_free)
    longest = int(tails.max())
    for at in np.flatnonzero(queue.launched & (queue.start - ready >= LATENCY_NS)).tolist():
        start = int(queue.start[at])
        since = max(start - int(LONGEST_TURNAROUND_NS), int(ready[at]) + 1)
        low, high = np.searchsorted(ends, [since, start + longest], side="right")
        near = np.arange(low, high)
        near = near[(events.stream[every[near]] != queue.stream[at]) & (ends[near] - start <= tails[near])]
        near = near[events.start[every[near]] < start]
        if len(near):
            best = near[np.argmin(np.abs(ends[near] - start))]
            waits_for[at], lag[at] = every[best], float(start - ends[best])
    return waits_for, lag
