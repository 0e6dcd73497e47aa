"""The host's moments as the graph needs them: launches, waits, hand-overs between threads, batches."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import numpy as np

from findwall.model.catalogue import MAJORITY_SHARE, WORTH_IT
from findwall.model.causes import cause_index
from findwall.model.events import Kind, Timeline
from findwall.model.intervals import F64, I64, Intervals, union
from findwall.replay.graph import LONGEST_TURNAROUND_NS, HostTime, Node
from findwall.step.device_queue import device_rows
from findwall.step.host_activity import LOADER
from findwall.step.step_facts import OWNERS, Host, Links, Queue, rows_matching

# A launch blocks when its queue is full (1,024 entries on NVIDIA's): behind so many rows a long one is a wait
# and not work of the host.
FULL_QUEUE_ROWS = 256
WORKERS = re.compile("MultiProcessing", re.IGNORECASE)
WHOLE_DEVICE = re.compile(r"(Device|Ctx)Synchronize", re.IGNORECASE)
# A stretch with no op and no runtime call longer than this is work of its own (logging, saving, Python), not
# the dispatcher between two ops.
HOST_WORK_NS = 200_000
# Nor is one that starts no event at all for this long, even inside an op: that op computes on the host,
# initialises a library, or waits for a lock.
EVENTLESS_NS = 2_000_000


class Points(msgspec.Struct, frozen=True):
    """Moments of the host in any order. All columns have one length."""

    kind: I64  # -> Node
    time: I64
    until: I64  # where the host's own time before it ends: the entry of a call that then waits
    since: I64  # where that time begins; -1: at the moment before on its thread
    thread: I64
    row: I64  # the runtime call; -1 none
    target: I64  # device row it waits for; -1 none
    tail: F64  # ns after the target's end
    owner: I64  # `cause_index` of what the wait counts for; -1 none

    def __len__(self) -> int:
        return len(self.kind)


def points(kind: Node, time: I64, thread: I64, **columns: I64 | F64) -> Points:
    """Moments of one kind; what is not given is "none"."""
    none = np.full(len(time), -1, np.int64)
    filled: dict[str, Any] = {"until": time, "since": none, "row": none, "target": none, "owner": none}
    filled |= {"tail": np.zeros(len(time)), **columns}
    return Points(kind=np.full(len(time), kind, np.int64), time=time, thread=thread, **filled)


def joined(parts: list[Points]) -> Points:
    columns = Points.__struct_fields__
    return Points(**{name: np.concatenate([getattr(one, name) for one in parts]) for name in columns})


def host_points(timeline: Timeline, links: Links, host: Host, queue: Queue, on_cores: bool) -> Points:
    """Every moment of the window at which a launching thread acts on the device or waits for something."""
    events = timeline.events
    calls = np.unique(links.launch[queue.row])
    calls = calls[calls >= 0]
    if on_cores:
        found = _runs_itself(timeline, links, queue)
    else:
        found = [
            points(Node.ISSUE, events.start[calls], events.thread[calls].astype(np.int64), row=calls),
            *_blocking(timeline, links, host, queue),
            _full_queue(timeline, links, queue, calls),
        ]
    found.append(_batches(timeline, host, queue))
    every = joined(found)
    threads = np.unique(every.thread[every.thread >= 0])
    threads = threads if len(threads) else host.threads
    ends = [
        points(Node.OPEN, np.full(len(threads), queue.opens), threads),
        points(Node.CLOSE, np.full(len(threads), queue.closes), threads),
    ]
    every = joined([every, *ends])
    return joined([every, _handovers(timeline, every, threads)])


def _runs_itself(timeline: Timeline, links: Links, queue: Queue) -> list[Points]:
    """On cores an op begins once the host has come to it, and the host is back when the op is done."""
    calls = links.launch[queue.row]
    mine = calls >= 0
    rows, calls = queue.row[mine], calls[mine]
    start, end = timeline.events.start[rows], timeline.events.end[rows]
    thread = timeline.events.thread[calls].astype(np.int64)
    return [
        points(Node.ISSUE, start, thread, row=calls),
        points(Node.RETURN, end, thread, until=start, row=calls, target=rows),
    ]


def _blocking(timeline: Timeline, links: Links, host: Host, queue: Queue) -> list[Points]:
    """Returns from calls that wait for the device, and what each waited for."""
    calls = host.blocking
    mine = (calls.start >= queue.opens) & (calls.start < queue.closes)
    rows, entered, left = calls.row[mine], calls.start[mine], calls.end[mine]
    owner = np.array([cause_index(name) for name in OWNERS])[calls.owner[mine]]
    target, tail = _waited_for(timeline, links, queue, entered, left)
    _own_copies(timeline, links, queue, rows, left, target, tail)
    until = np.where(target >= 0, entered, left)
    thread = timeline.events.thread[rows].astype(np.int64)
    found = points(Node.RETURN, left, thread, until=until, row=rows, target=target, tail=tail, owner=owner)
    return [found, _other_streams(timeline, queue, found, until)]


def _other_streams(timeline: Timeline, queue: Queue, found: Points, entered: I64) -> Points:
    """A call that waits for the whole device waits for the last row of every stream, not only the latest."""
    events = timeline.events
    streams = np.unique(queue.stream)
    whole = timeline.named(WHOLE_DEVICE, found.row)
    calls = np.flatnonzero((found.target >= 0) & (whole[events.name[found.row]] if len(whole) else False))
    more: list[tuple[int, int]] = []
    for index in calls.tolist() if len(streams) > 1 else []:
        for stream in streams[streams != events.stream[found.target[index]]].tolist():
            mine = (queue.stream == stream) & (queue.issued <= entered[index]) & queue.launched
            mine &= queue.end <= found.time[index]
            if mine.any():
                more.append((index, int(queue.row[np.flatnonzero(mine)[-1]])))
    at = np.array([index for index, _ in more], np.int64)
    return points(
        Node.RETURN,
        found.time[at],
        found.thread[at],
        until=found.until[at],
        row=found.row[at],
        target=np.array([row for _, row in more], np.int64),
        tail=found.tail[at],
        owner=found.owner[at],
    )


def _own_copies(
    timeline: Timeline, links: Links, queue: Queue, calls: I64, left: I64, target: I64, tail: F64
) -> None:
    """A pageable copy's call ends with the copy, or a little before: all of it is with the driver then."""
    copies = queue.row[queue.paced]
    copy_of = dict(zip(links.launch[copies].tolist(), copies.tolist(), strict=True))
    for index, call in enumerate(calls.tolist() if copy_of else []):
        if (copy := copy_of.get(call)) is not None:
            target[index] = copy
            tail[index] = float(left[index] - timeline.events.end[copy])


def _full_queue(timeline: Timeline, links: Links, queue: Queue, calls: I64) -> Points:
    """Returns from launches that waited for room in the queue."""
    events = timeline.events
    entered, left = events.start[calls], events.end[calls]
    issued = np.sort(queue.issued[queue.launched])
    pending = np.searchsorted(issued, entered) - np.searchsorted(np.sort(queue.end), entered)
    # A launch blocks when its queue is full (1,024 entries on NVIDIA's): behind many rows it is a wait.
    full = (left - entered > LONGEST_TURNAROUND_NS) & (pending >= FULL_QUEUE_ROWS)
    calls, entered, left = calls[full], entered[full], left[full]
    target, tail = _waited_for(timeline, links, queue, entered, left)
    thread = events.thread[calls].astype(np.int64)
    until = np.where(target >= 0, entered, left)
    return points(Node.RETURN, left, thread, until=until, row=calls, target=target, tail=tail)


def _waited_for(timeline: Timeline, links: Links, queue: Queue, entered: I64, left: I64) -> tuple[I64, F64]:
    """The row whose end each call waited for: of those launched before it the last that was then done."""
    events = timeline.events
    rows = device_rows(timeline, queue.device)
    rows = rows[np.argsort(events.end[rows], kind="stable")]
    # Of unknown launch: at the latest when it started, and before the steps where it ran before them.
    launch = np.where(links.launch[rows] >= 0, links.launch[rows], rows)
    ends, issued = events.end[rows], events.start[launch]
    first = queue.start.min(initial=queue.closes)
    issued[(links.launch[rows] < 0) & (events.start[rows] < first)] = min(queue.opens, first)
    target, tail = np.full(len(entered), -1, np.int64), np.zeros(len(entered))
    at = np.searchsorted(ends, left, side="right") - 1
    for index, (here, enter, leave) in enumerate(
        zip(at.tolist(), entered.tolist(), left.tolist(), strict=True)
    ):
        while here >= 0 and issued[here] > enter:
            here -= 1
        if here >= 0 and ends[here] > enter:
            target[index], tail[index] = rows[here], max(leave - ends[here], 0)
    return target, tail


def _batches(timeline: Timeline, host: Host, queue: Queue) -> Points:
    """Batches that worker processes made while a launching thread waited: arrivals, and who they were for.

    Workers that fall behind set the pace: they are as slow when the host is faster. Where they keep up,
    nothing tells how fast they are.
    """
    events = timeline.events
    rows = _stays(timeline, host, queue)
    rows = rows[events.duration[rows] >= HOST_WORK_NS]
    # Workers that are waited for less keep up: a stay is what taking a batch takes, or one batch that came
    # late. That they are so little slower than the host would be chance, and a host without a profiler would
    # then wait for them far longer than it was seen to.
    if int(events.duration[rows].sum()) < WORTH_IT * (queue.closes - queue.opens):
        rows = rows[:0]  # time of the host, as long as it was
    thread = events.thread[rows].astype(np.int64)
    owner = np.full(len(rows), cause_index("loader-starved"))
    arrivals = points(Node.ARRIVAL, events.end[rows], np.full(len(rows), -2, np.int64), row=rows)
    taken = points(Node.RETURN, events.end[rows], thread, until=events.start[rows], row=rows, owner=owner)
    return joined([arrivals, taken])


def _stays(timeline: Timeline, host: Host, queue: Queue) -> I64:
    """Ranges of the window in which a launching thread takes a batch from worker processes, in order."""
    events = timeline.events
    rows = timeline.rows(Kind.ANNOTATION, Kind.OP)
    rows = rows_matching(timeline, rows_matching(timeline, rows, LOADER), WORKERS)
    rows = rows[np.isin(events.thread[rows], host.threads)]
    rows = rows[(events.start[rows] >= queue.opens) & (events.end[rows] <= queue.closes)]
    outer = np.ones(len(rows), bool)  # the same wait may be recorded twice, one range inside the other
    rows = rows[np.lexsort((-events.end[rows], events.start[rows]))]
    if len(rows):
        outer[1:] = events.start[rows[1:]] >= np.maximum.accumulate(events.end[rows])[:-1]
    return rows[outer]


def batches_come_again(timeline: Timeline, host: Host, queue: Queue) -> int:
    """From the batches of these steps to those of their repeat: host time, but for what only the file's
    beginning took.

    A row with none before it in the file that starts later after its launch than its like of the next steps
    waited for device work that the file does not hold, and a call that blocked meanwhile did too. Where
    workers set the pace the host makes up for that: it waits for the next batches for so much less, each time
    by the longest wait at most. What it does not make up for is no time of these steps.
    """
    events = timeline.events
    whole = max(queue.closes - queue.opens, 0)
    late = queue.launched & (queue.start - queue.issued > queue.since_issue)
    behind = union(queue.issued[late] + queue.since_issue[late], queue.start[late])
    rows = device_rows(timeline, queue.device)
    unseen = behind & union(host.blocking.start, host.blocking.end)
    unseen = unseen - union(events.start[rows], events.end[rows])
    stays = _stays(timeline, host, queue)
    if len(unseen) == 0 or len(stays) == 0:
        return whole
    stayed = events.duration[stays[events.start[stays] >= unseen.end[0]]]
    longest = stayed.max(initial=0)
    waited = np.flatnonzero(stayed >= MAJORITY_SHARE * longest)  # for the next batch again
    made_up = int((longest - stayed[: waited[0] + 1]).sum()) if len(waited) else 0
    return max(whole - max(unseen.length - made_up, 0), 0)


def _handovers(timeline: Timeline, every: Points, threads: I64) -> Points:
    """Threads that were silent while another one worked, and went on when that one was done."""
    events = timeline.events
    if len(threads) < 2:
        return points(Node.RESUME, threads[:0], threads[:0])
    busy = events.is_kind(Kind.OP, Kind.RUNTIME)
    low, high = int(every.time.min()), int(every.time.max())
    working = {}
    for thread in threads.tolist():
        rows = np.flatnonzero(busy & (events.thread == thread))
        working[thread] = union(events.start[rows], events.end[rows])
    found = [points(Node.RESUME, threads[:0], threads[:0])]
    for thread in threads.tolist():
        silent = working[thread].gaps(low, high)
        found.append(_taken_over(every, thread, silent.start, silent.end))
    return joined(found)


def _taken_over(every: Points, thread: int, start: I64, end: I64) -> Points:
    """For each silence of a thread the last moment of another thread in it, if there is one."""
    acts = np.isin(every.kind, (Node.ISSUE, Node.RETURN)) & (every.thread != thread)
    other = np.sort(every.time[acts])
    own = np.sort(every.time[every.thread == thread])
    at = np.searchsorted(other, end, side="right") - 1
    last = other[np.maximum(at, 0)] if len(other) else end
    hit = (at >= 0) & (last >= start) & (last < end)
    hit &= np.searchsorted(own, end) < len(own)  # nothing of this thread comes after it
    return points(Node.RESUME, end[hit], np.full(int(hit.sum()), thread), since=last[hit])


# -- host time between two moments ----------------------------------------------------------------


def host_work(host: Host, low: int, high: int) -> Intervals:
    """Stretches in which the launching threads run nothing that the trace names, long enough to be work."""
    silent = host.working.gaps(low, high)
    for when in host.activities.values():
        silent = silent - when
    long = silent.end - silent.start >= HOST_WORK_NS
    edges = np.sort(np.clip(np.concatenate([[low], host.event_time, [high]]), low, high))
    quiet = np.diff(edges) >= EVENTLESS_NS
    eventless = Intervals(edges[:-1][quiet], edges[1:][quiet])
    for when in host.activities.values():
        eventless = eventless - when
    return Intervals(silent.start[long], silent.end[long]) | eventless


def host_time(host: Host, when: Intervals | None, since: I64, until: I64) -> HostTime:
    """Length and recorded events of each stretch, or of what of it lies in some intervals."""
    until = np.maximum(since, until)
    if when is None:
        events = host.weight_before(until) - host.weight_before(since)
        return HostTime((until - since).astype(np.float64), events / 1000.0, np.zeros(len(since)))
    inside = np.concatenate([[0], np.cumsum(np.diff(host.event_weight) * _inside(when, host.event_time))])
    first = np.searchsorted(host.event_time, since, side="left")
    past = np.searchsorted(host.event_time, until, side="left")
    length = when.covered_within(since, until).astype(np.float64)
    return HostTime(length, (inside[past] - inside[first]) / 1000.0, _after(when, until))


def _after(when: Intervals, until: I64) -> F64:
    """From the last moment of some intervals before each time to that time."""
    if len(when) == 0:
        return np.zeros(len(until))
    last = np.maximum(np.searchsorted(when.start, until, side="left") - 1, 0)
    since: F64 = np.maximum(until - when.end[last], 0).astype(np.float64)
    return since


def _inside(when: Intervals, at: I64) -> I64:
    if len(when) == 0:
        return np.zeros(len(at), np.int64)
    index = np.searchsorted(when.start, at, side="right") - 1
    return ((index >= 0) & (at < when.end[np.maximum(index, 0)])).astype(np.int64)
