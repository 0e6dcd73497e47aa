"""What of a rank's time is its own, and what is waiting for a communication.

A collective's kernel spins until the last rank has come. While other kernels run beside it the rank works;
from the end of the last of those until the collective's end it waits. Gaps that another kernel follows
before the collective ends are the host's: it was at work.
"""

from __future__ import annotations

import msgspec
import numpy as np

from findwall.model.events import Bool
from findwall.model.intervals import I64, Intervals, union


class OwnClock(msgspec.Struct, frozen=True):
    """A rank's time without its waits."""

    origin: int
    waits: Intervals

    def at(self, times: I64) -> I64:
        """Own progress at each time of the rank's clock."""
        progress: I64 = times - self.origin - self.waits.covered_before(times)
        return progress


def waits_of(start: I64, end: I64, work: Intervals, asked: I64) -> Intervals:
    """The stretches in which a rank waits for these communications. `work`: what else its device does;
    `asked`: when the host first issued something that had to wait for each."""
    last = np.searchsorted(work.start, end, side="left") - 1  # the last work that begins before the end
    idle = np.where(last >= 0, work.end[np.maximum(last, 0)], start) if len(work) else start
    return union(np.maximum(np.maximum(start, idle), asked), end)


def idle_beside(start: I64, end: I64, work: Intervals, asked: I64) -> tuple[I64, I64]:
    """The stretch of each communication in which the device does nothing before anything is seen to wait
    for it: the host is at work, or the call that waits is not recorded."""
    last = np.searchsorted(work.start, end, side="left") - 1
    idle = np.where(last >= 0, work.end[np.maximum(last, 0)], start) if len(work) else start
    begin = np.minimum(np.maximum(start, idle), end)
    return begin, np.maximum(np.minimum(asked, end), begin)


def asked_at(end: I64, begin: I64, issued: I64, blocked: Intervals) -> I64:
    """When the host first issued something that then waited for each of these communications: the first
    work that begins after it, or a call that blocks the host until it ends. `begin` and `issued` are of the
    work."""
    order = np.argsort(begin, kind="stable")
    after = np.searchsorted(begin[order], end, side="left")
    never = np.iinfo(np.int64).max // 2
    found = np.append(issued[order], never)[after]
    if len(blocked):
        at = np.minimum(np.searchsorted(blocked.end, end, side="left"), len(blocked) - 1)
        holds = (blocked.start[at] < end) & (blocked.end[at] >= end)
        found = np.where(holds, np.minimum(found, blocked.start[at]), found)
    nothing_after = (after == len(begin)) & (found == never)  # the trace ends: nobody knows
    asked: I64 = np.where(nothing_after, np.iinfo(np.int64).min // 2, found)
    return asked


def joined(start: I64, end: I64, sends: Bool, waits: Intervals) -> I64:
    """Whether a rank waits until the very end of each of these communications: what it does next needs it.

    Of several that end together any may be what it needs, but for a send where something else ends with it:
    nobody needs what they have given away.
    """
    found = np.zeros(len(end), np.int64)
    if len(waits) == 0:
        return found
    at = np.minimum(np.searchsorted(waits.end, end, side="left"), len(waits) - 1)
    ends = (waits.end[at] - end <= QUEUED_NS) & (end >= waits.start[at]) & (start < waits.end[at])
    other = np.zeros(len(waits), bool)
    other[at[ends & ~sends]] = True
    found[ends & ~(sends & other[at])] = 1
    return found


def ready_times(start: I64, launched: I64, before: I64, done: I64) -> I64:
    """When the input of each communication was there. One that waited in its stream for the one `before` it
    was ready once it was launched and the work issued before it was `done`; others began when they were
    ready."""
    queued = start <= before + QUEUED_NS
    found: I64 = np.where(queued, np.minimum(np.maximum(launched, done), start), start)
    return found


def in_turn(ready: I64, start: I64, stream: I64) -> I64:
    """What runs on one stream was issued in that order: none was ready before the one in front of it."""
    found: I64 = ready.copy()
    for one in np.unique(stream).tolist():
        mine = np.flatnonzero(stream == one)
        mine = mine[np.argsort(start[mine], kind="stable")]
        found[mine] = np.maximum.accumulate(found[mine])
    return found


def done_before(launched: I64, issued: I64, end: I64) -> I64:
    """When the work that was issued before each communication was done; before all time where there is
    none."""
    order = np.argsort(issued, kind="stable")
    reach = np.maximum.accumulate(end[order]) if len(order) else end
    last = np.searchsorted(issued[order], launched, side="right") - 1
    reach = np.append(reach, 0).astype(np.int64)
    found: I64 = np.where(last >= 0, reach[last], np.iinfo(np.int64).min // 2)
    return found


# Between the end of one communication and the start of the next that was queued behind it on its stream: a
# few microseconds on any device. Chosen by hand.
QUEUED_NS = 10_000


def before_on_stream(start: I64, end: I64, stream: I64) -> I64:
    """For each communication the end of the one before it on its stream; before all time where there is
    none."""
    found = np.full(len(start), np.iinfo(np.int64).min // 2)
    for one in np.unique(stream).tolist():
        mine = np.flatnonzero(stream == one)
        mine = mine[np.argsort(start[mine], kind="stable")]
        found[mine[1:]] = end[mine[:-1]]
    return found
