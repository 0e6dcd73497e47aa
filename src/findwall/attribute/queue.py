"""The device's queue, run again on paper with a host that is not being profiled.

Kernel durations in a trace are true; the gaps are not, because every recorded host event costs the
host a few microseconds. So: take the launches, give the host that time back, and let the device take
the kernels in order. What idles then is the idle of the job and not of its profile. The same run with
a kind of blocking call left out tells what that call really costs: blame is counterfactual.
"""

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


@dataclass(frozen=True, slots=True)
class Rerun:
    """The queue run again: idle before each row, and the window's length."""

    gap: F64
    length: float


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


def rerun(queue: Queue, host: Host, cost_ns: float, without: int | None = None) -> Rerun:
    """Run the queue with each host event `cost_ns` cheaper, and one owner's blocking calls left out."""
    if queue.synchronous or len(queue.row) == 0:
        return _rerun_synchronous(queue, host, cost_ns)
    order = np.lexsort((queue.start, queue.issued))
    issued = queue.issued[order].astype(np.float64)
    own = queue.own[order].astype(np.float64)
    gap = queue.gap[order]
    waits = (queue.start - queue.issued)[order].astype(np.float64)
    # A row that ran beside another starts no gap and waits for nobody. The row that closes the window has no
    # time of its own in it, but the gap before it is the window's.
    beside = ((own == 0) & (gap == 0)) | (queue.start < queue.before)[order]
    turn = np.where(beside, 0.0, np.where(queue.queued[order], gap, np.minimum(gap, queue.turnaround)))
    latency = np.where(queue.queued[order] | (gap == 0), np.minimum(waits, queue.latency), waits)
    ready = issued - _saved(queue, host, queue.issued[order], cost_ns) + np.maximum(latency, 0)
    ready[beside] = -np.inf
    ends, length = _play(queue, host, order, ready, turn, own, cost_ns, without)
    idle = ends - own - np.concatenate([[float(queue.opens)], ends[:-1]]) if len(ends) else ends
    result = np.zeros(len(order))
    result[order] = np.maximum(idle, 0)
    return Rerun(result, length)


def _rerun_synchronous(queue: Queue, host: Host, cost_ns: float) -> Rerun:
    """Where the host runs the work itself, each gap shrinks by the cost of its own events and no more."""
    events = (host.weight_before(queue.start) - host.weight_before(queue.before)) / 1000.0
    gap = np.maximum(queue.gap - events * cost_ns, 0.0)
    return Rerun(gap, float(queue.own.sum() + gap.sum()))


def _saved(queue: Queue, host: Host, at: I64, cost_ns: float) -> F64:
    """Host time given back until each moment, counted from the window's first launch."""
    anchor = host.weight_before(queue.issued.min(keepdims=True))[0]
    saved: F64 = (host.weight_before(at) - anchor) / 1000.0 * cost_ns
    return saved


def _play(
    queue: Queue,
    host: Host,
    order: I64,
    ready: F64,
    turn: F64,
    own: F64,
    cost_ns: float,
    without: int | None,
) -> tuple[F64, float]:
    """Segment by segment between blocking calls: each call moves the host to when its work was done."""
    ends = np.empty(len(order))
    issued = queue.issued[order]
    trace_end = queue.end[order]
    calls = _calls_in(queue, host)
    edges = np.searchsorted(issued, host.blocking.end[calls], side="left")
    shift = 0.0  # how much later than `ready` says the host is, after waiting in blocking calls
    last = float(queue.opens)
    begin = 0
    for call, edge in zip(calls.tolist(), edges.tolist(), strict=True):
        last = _segment(ends, ready, turn, own, begin, edge, shift, last)
        begin = edge
        if host.blocking.owner[call] == without:
            shift -= _length(queue, host, call, cost_ns)
        else:
            shift = _after_call(queue, host, call, issued, trace_end, ends, cost_ns, shift)
    last = _segment(ends, ready, turn, own, begin, len(order), shift, last)
    length = float(ends.max() - queue.opens) if len(order) else 0.0
    return ends, length


def _calls_in(queue: Queue, host: Host) -> I64:
    """Blocking calls that fall inside the window's launches."""
    if len(queue.row) == 0:
        return np.empty(0, np.int64)
    inside = (host.blocking.end > queue.issued.min()) & (host.blocking.start < queue.issued.max())
    calls: I64 = np.flatnonzero(inside)
    return calls


def _segment(
    ends: F64, ready: F64, turn: F64, own: F64, begin: int, end: int, shift: float, last: float
) -> float:
    """Max-plus recursion end[k] = max(ready[k], end[k-1] + turn[k]) + own[k], in one sweep."""
    if end <= begin:
        return last
    part = slice(begin, end)
    path = np.cumsum(turn[part] + own[part])
    free = ready[part] + shift - (path - own[part])
    ends[part] = path + np.maximum(np.maximum.accumulate(free), last)
    return float(ends[end - 1])


def _length(queue: Queue, host: Host, call: int, cost_ns: float) -> float:
    """What a blocking call takes of the host: the time it gets back where the call is left out."""
    ends = np.array([host.blocking.start[call], host.blocking.end[call]])
    saved_in, saved_out = _saved(queue, host, ends, cost_ns).tolist()
    return max(float(ends[1] - ends[0]) - float(saved_out - saved_in), 0.0)


def _after_call(
    queue: Queue,
    host: Host,
    call: int,
    issued: I64,
    trace_end: I64,
    ends: F64,
    cost_ns: float,
    shift: float,
) -> float:
    """The host's new shift once a blocking call returns: when what it waited for is done."""
    entered, left = int(host.blocking.start[call]), int(host.blocking.end[call])
    launched = int(np.searchsorted(issued, entered, side="right"))
    # What it waited for: the latest row launched before it that was done when it returned.
    window = slice(max(launched - 64, 0), launched)
    done = np.flatnonzero(trace_end[window] <= left)
    saved_in, saved_out = _saved(queue, host, np.array([entered, left]), cost_ns).tolist()
    entered_now = entered - saved_in + shift
    if len(done) == 0:
        left_now = entered_now + (left - entered)
    else:
        target = int(done[-1]) + window.start
        tail = left - max(entered, int(trace_end[target]))
        left_now = max(entered_now, float(ends[target])) + max(tail, 0)
    return float(left_now - (left - saved_out))
