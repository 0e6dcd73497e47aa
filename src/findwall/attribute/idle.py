"""Why the device was idle: every gap given to what kept the host from feeding it.

A gap with the next kernel already queued is the device's own turn-around. Any other gap is split by
what the launching threads did in it. What then looks like slow launching, but would not be there had
an earlier blocking call not emptied the queue, belongs to that call (`queue.rerun` decides).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from findwall.structure.queue import LONGEST_TURNAROUND_NS, Queue, rerun
from findwall.model.events import Bool
from findwall.model.intervals import F64, I64, Intervals, union
from findwall.structure.host import OWNERS, Host

# A stretch with no op and no runtime call longer than this is work of its own (logging, saving,
# Python), not the dispatcher between two ops.
HOST_WORK_NS = 200_000
# Nor is one that starts no event at all for this long, even inside an op: that op computes on the
# host, initialises a library, or waits for a lock.
EVENTLESS_NS = 2_000_000
LACKING_SHARE = 0.05  # of the window idle with kernels long queued: more than real jobs ever show
TURNAROUND = "turn-around"
IDLE_CAUSES = (
    "copy-exposed",
    "host-sync",
    "exposed-collective",
    "pipeline-bubble",
    "loader-starved",
    "allocator",
    "recompilation",
    "gc-pause",
    "graph-breaks",
    "host-work",
    "launch-bound",
    TURNAROUND,
)


@dataclass(frozen=True, slots=True)
class Idle:
    """Idle time of the window at one cost per host event: a row a gap, a column a cause."""

    blame: F64  # nanoseconds; shape (rows of the queue, IDLE_CAUSES)
    length: float  # of the window, in nanoseconds

    @property
    def queued_too_long(self) -> float:
        """Idle time before rows long queued: they wait for something the trace does not show."""
        own = self.blame[:, IDLE_CAUSES.index(TURNAROUND)]
        return float(own[own > LONGEST_TURNAROUND_NS].sum())

    @property
    def lacks_rows(self) -> bool:
        """Whether so much of the window is such time that rows must be missing."""
        return self.queued_too_long > LACKING_SHARE * self.length

    def total(self, cause: str) -> float:
        return float(self.blame[:, IDLE_CAUSES.index(cause)].sum())


def blame_gaps(queue: Queue, host: Host, cost_ns: float) -> Idle:
    """Idle before every row, by cause, for a host that pays `cost_ns` less an event."""
    run = rerun(queue, host, cost_ns)
    blame = np.zeros((len(queue.row), len(IDLE_CAUSES)))
    if len(queue.row) == 0:
        return Idle(blame, run.length)
    queued = queue.queued | (queue.gap == 0)
    blame[queued, IDLE_CAUSES.index(TURNAROUND)] = run.gap[queued]
    _charge_other_devices(queue, queued, blame)
    late = np.flatnonzero(~queued)
    shares = _activity_shares(queue, host, late, cost_ns)
    blame[late, : len(IDLE_CAUSES) - 1] = shares * run.gap[late, None]
    _charge_blocking_calls(queue, host, run.gap, blame, cost_ns)
    return Idle(blame, run.length)


def _charge_other_devices(queue: Queue, queued: Bool, blame: F64) -> None:
    """A row long queued waits for another device of its process, as far as one is at work meanwhile."""
    turnaround = IDLE_CAUSES.index(TURNAROUND)
    waits = queued & (blame[:, turnaround] > LONGEST_TURNAROUND_NS)
    moved = np.where(waits, blame[:, turnaround] * queue.elsewhere, 0.0)
    blame[:, IDLE_CAUSES.index("pipeline-bubble")] += moved
    blame[:, turnaround] -= moved


def _activity_shares(queue: Queue, host: Host, late: I64, cost_ns: float) -> F64:
    """Each late gap's split by host activity, profiler's cost taken off each part; rows sum to one."""
    start, end = queue.before[late], queue.start[late]
    activities = dict(host.activities)
    activities["host-work"] = _long_silences(host, start, end, activities)
    parts = np.zeros((len(late), len(IDLE_CAUSES) - 1))
    for cause, when in activities.items():
        parts[:, IDLE_CAUSES.index(cause)] = _undilated(host, when, start, end, cost_ns)
    gap = (end - start).astype(np.float64)
    covered = sum(when.covered_within(start, end) for when in activities.values())
    inside = sum(_events_within(host, when, start, end) for when in activities.values())
    rest_events = (host.weight_before(end) - host.weight_before(start)) / 1000.0 - inside
    rest = np.maximum(gap - covered - rest_events * cost_ns, 0.0)
    parts[:, IDLE_CAUSES.index("launch-bound")] = rest
    total = parts.sum(axis=1, keepdims=True)
    # A gap that is all profiler cost has no true length; should any remain it is dispatch.
    parts[total[:, 0] <= 0, IDLE_CAUSES.index("launch-bound")] = 1.0
    shares: F64 = parts / np.maximum(parts.sum(axis=1, keepdims=True), 1e-12)
    return shares


def _long_silences(host: Host, start: I64, end: I64, activities: dict[str, Intervals]) -> Intervals:
    """Stretches of host time without op, call or known activity that are long enough to be work."""
    if len(start) == 0:
        return union(start, end)
    silent = union(start, end) - host.working
    for when in activities.values():
        silent = silent - when
    # A silence cut by the gap's edges is judged by its length on the host, not in the gap.
    low, high = int(start.min()), int(end.max())
    whole = host.working.gaps(low, high)
    for when in activities.values():
        whole = whole - when
    long = whole.end - whole.start >= HOST_WORK_NS
    work = silent & Intervals(whole.start[long], whole.end[long])
    eventless = union(start, end) & _eventless(host, low, high)
    for when in activities.values():
        eventless = eventless - when
    return work | eventless


def _eventless(host: Host, low: int, high: int) -> Intervals:
    """Stretches in which the launching threads start no event."""
    edges = np.concatenate([[low], host.event_time, [high]])
    edges = np.sort(np.clip(edges, low, high))
    long = np.diff(edges) >= EVENTLESS_NS
    return Intervals(edges[:-1][long], edges[1:][long])


def _events_within(host: Host, when: Intervals, start: I64, end: I64) -> F64:
    """Events (weighted) that start inside both the activity and each gap."""
    before = np.cumsum(np.diff(host.event_weight) * _inside(when, host.event_time))
    counted = np.concatenate([[0], before]) / 1000.0
    low = np.searchsorted(host.event_time, start, side="left")
    high = np.searchsorted(host.event_time, end, side="left")
    found: F64 = counted[high] - counted[low]
    return found


def _inside(when: Intervals, at: I64) -> I64:
    if len(when) == 0:
        return np.zeros(len(at), np.int64)
    index = np.searchsorted(when.start, at, side="right") - 1
    inside: I64 = ((index >= 0) & (at < when.end[np.maximum(index, 0)])).astype(np.int64)
    return inside


def _undilated(host: Host, when: Intervals, start: I64, end: I64, cost_ns: float) -> F64:
    length = when.covered_within(start, end) - _events_within(host, when, start, end) * cost_ns
    result: F64 = np.maximum(length, 0.0)
    return result


def _charge_blocking_calls(queue: Queue, host: Host, gap: F64, blame: F64, cost_ns: float) -> None:
    """Move dispatch gaps that exist only because a blocking call emptied the queue to that call."""
    launch = IDLE_CAUSES.index("launch-bound")
    for owner, cause in enumerate(OWNERS):
        if not (host.blocking.owner == owner).any():
            continue
        without = rerun(queue, host, cost_ns, without=owner)
        charged = np.minimum(blame[:, launch], np.maximum(gap - without.gap, 0.0))
        blame[:, IDLE_CAUSES.index(cause)] += charged
        blame[:, launch] -= charged
