"""From a timeline to the graph of its steps.

Who issued what comes from the links, what the host did from `host`, the order on a stream from the rows
themselves. Two things are not always written down and are then read off the times: an event wait (a row that
was launched, whose stream was free, and that started just when a row of another stream ended), and a thread
that waits for another (silent while the other worked, and back when that was done).
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from findwall.model.events import Bool, Timeline
from findwall.model.intervals import F64, I64
from findwall.replay.device_side import DeviceSide, line_up_rows
from findwall.replay.graph import NOTHING, Graph, HostTime, Node
from findwall.replay.host_side import Points, batches_come_again, host_points, host_time, host_work
from findwall.step.device_queue import device_rows
from findwall.step.step_facts import Host, Links, Queue


def build(timeline: Timeline, links: Links, host: Host, queue: Queue, on_cores: bool = False) -> Graph:
    """The graph of a queue's steps."""
    device = line_up_rows(timeline, queue, on_cores)
    points = host_points(timeline, links, host, queue, on_cores)
    nodes = _in_order(points, queue, device)
    chain, since = _chains(nodes, points, queue, batches_come_again(timeline, host, queue))
    cause, lag = _causes(timeline, links, nodes, points, queue, device)
    # A call that waits for nothing that is known has taken its time itself.
    alone = (nodes.kind == Node.RETURN) & (lag == NOTHING)
    nodes = replace(nodes, until=np.where(alone, nodes.time, nodes.until))
    count = len(nodes.kind)
    on_device = np.isin(nodes.kind, (Node.ROW, Node.WAIT))
    turn = np.zeros(count)
    turn[nodes.kind == Node.ROW] = device.turn[nodes.of[nodes.kind == Node.ROW]]
    if not queue.repeats:
        # Nothing came before: a row waits for its launch, or was seen to start so long after the beginning.
        first = np.flatnonzero(on_device & (chain < 0))
        begin = np.where(queue.launched, NOTHING, queue.start - queue.begins)
        turn[first] = begin[nodes.of[first]]
    length, parts = _host_times(host, nodes, since, on_device, queue)
    return Graph(
        kind=nodes.kind.astype(np.uint8),
        chain=chain,
        cause=cause,
        turn=turn,
        lag=lag,
        own=_of_rows(nodes, (queue.end - queue.start).astype(np.float64), 0.0),
        host=length,
        parts=parts,
        owner=_of_points(nodes, points.owner, -1),
        row=np.where(on_device, _of_rows(nodes, queue.row, -1), _of_points(nodes, points.row, -1)),
        track=nodes.track,
        step=_steps(nodes, queue),
        paced=_of_rows(nodes, queue.paced, False).astype(bool),
        elsewhere=_of_rows(nodes, queue.elsewhere, 0.0),
        inside=_of_rows(nodes, _inside(host, queue, on_cores), 0.0),
        freeing=np.zeros(count),
        steps=queue.steps,
        on_cores=on_cores,
        repeats=queue.repeats,
        measured=frozenset(),
        latency=device.latency,
        turnaround=device.turnaround,
    )


class _Nodes(msgspec.Struct, frozen=True):
    """All moments of both sides, in the order they are played."""

    kind: I64
    time: I64
    until: I64
    track: I64  # threads first, then streams
    of: I64  # the host's point or the device's row that each node is


def _in_order(points: Points, queue: Queue, device: DeviceSide) -> _Nodes:
    """Put them in an order in which nothing comes before what it waits for."""
    waiting = np.flatnonzero(device.waits_for >= 0)
    rows = np.arange(len(queue.row))
    streams = np.unique(queue.stream, return_inverse=True)[1].reshape(-1) if len(rows) else rows
    threads = np.unique(points.thread, return_inverse=True)[1].reshape(-1) if len(points) else points.thread
    base = int(threads.max(initial=-1)) + 1
    began = np.where(queue.launched, np.maximum(queue.start, queue.issued), queue.start)
    # A row can seem to start before the one before it on its stream where clocks jump: its place is kept.
    for stream in np.unique(streams).tolist():
        mine = streams == stream
        began[mine] = np.maximum.accumulate(began[mine])
    kind = np.concatenate([points.kind, np.full(len(waiting), Node.WAIT), np.full(len(rows), Node.ROW)])
    time = np.concatenate([points.time, began[waiting], began])
    track = np.concatenate([threads, base + streams[waiting], base + streams])
    of = np.concatenate([np.arange(len(points)), waiting, rows])
    until = np.concatenate([points.until, began[waiting], began])
    # The first moment of a thread comes before all else of it, the last after.
    edge = np.where(kind == Node.OPEN, -1, np.where(kind == Node.CLOSE, 1, 0))
    order = np.lexsort((of, kind, time, edge))
    return _Nodes(kind[order], time[order], until[order], track[order], of[order])


def _of_rows(nodes: _Nodes, column: NDArray[Any], default: float) -> NDArray[Any]:
    mine = np.isin(nodes.kind, (Node.ROW,))
    found = np.full(len(nodes.kind), default, dtype=column.dtype)
    found[mine] = column[nodes.of[mine]]
    return found


def _of_points(nodes: _Nodes, column: NDArray[Any], default: float) -> NDArray[Any]:
    mine = ~np.isin(nodes.kind, (Node.ROW, Node.WAIT))
    found = np.full(len(nodes.kind), default, dtype=column.dtype)
    found[mine] = column[nodes.of[mine]]
    return found


def _chains(nodes: _Nodes, points: Points, queue: Queue, period: int) -> tuple[I64, I64]:
    """Each node's predecessor on its own thread or stream, and where the host time before it begins."""
    count = len(nodes.kind)
    order = np.lexsort((np.arange(count), nodes.track))
    chain, since = np.empty(count, np.int64), np.empty(count, np.int64)
    same = nodes.track[order[1:]] == nodes.track[order[:-1]]
    chain[order[1:]] = np.where(same, order[:-1], -1)
    chain[order[:1]] = -1
    first = order[np.concatenate([[True], ~same])] if count else order
    last = order[np.concatenate([~same, [True]])] if count else order
    chain[first] = last - count  # of the repeat before
    since[:] = nodes.time[chain]
    since[first] = nodes.until[first]
    # Batches come as fast in the next repeat: from the last of this one to its first again.
    arrival = first[nodes.kind[first] == Node.ARRIVAL]
    again = nodes.time[chain[arrival]] - period
    since[arrival] = again if queue.repeats else queue.opens
    resumes = np.flatnonzero(nodes.kind == Node.RESUME)
    begun = points.since[nodes.of[resumes]]
    acts = np.flatnonzero(np.isin(nodes.kind, (Node.ISSUE, Node.RETURN)))
    when_acted = nodes.time[acts]
    for node, when in zip(resumes.tolist(), begun.tolist(), strict=True):
        # The other thread's last moment before it.
        low, high = np.searchsorted(when_acted, [when, when + 1])
        candidates = acts[low:high]
        candidates = candidates[(nodes.track[candidates] != nodes.track[node]) & (candidates < node)]
        if len(candidates):
            chain[node], since[node] = candidates[-1], when
    return chain, since


def _causes(
    timeline: Timeline, links: Links, nodes: _Nodes, points: Points, queue: Queue, device: DeviceSide
) -> tuple[I64, F64]:
    """What each node waits for besides its own thread or stream."""
    count = len(nodes.kind)
    cause, lag = np.full(count, -1, np.int64), np.full(count, NOTHING)
    at = np.arange(count)
    row_node = np.full(len(timeline.events), count, np.int64)  # `count`: not in the graph
    mine = nodes.kind == Node.ROW
    row_node[queue.row[nodes.of[mine]]] = at[mine]
    issues = nodes.kind == Node.ISSUE
    call_node = np.full(len(timeline.events), count, np.int64)
    call_node[points.row[nodes.of[issues]]] = at[issues]
    launch = links.launch[queue.row[nodes.of[mine]]]
    known = np.flatnonzero(launch >= 0)
    cause[at[mine][known]] = call_node[launch[known]]
    lag[at[mine][known]] = device.lag[nodes.of[mine]][known]
    waits = np.flatnonzero(nodes.kind == Node.WAIT)
    target = np.full(count, -1, np.int64)
    target[waits] = device.waits_for[nodes.of[waits]]
    lag[waits] = device.wait_lag[nodes.of[waits]]
    returns = np.flatnonzero(nodes.kind == Node.RETURN)
    returns = returns[points.target[nodes.of[returns]] >= 0]
    target[returns] = points.target[nodes.of[returns]]
    lag[returns] = points.tail[nodes.of[returns]]
    aimed = np.flatnonzero(target >= 0)
    cause[aimed] = row_node[target[aimed]]
    outside = aimed[cause[aimed] == count]
    cause[outside] = _in_the_repeat_before(timeline, queue, row_node, target[outside], count)
    _arrivals(nodes, points, cause, lag)
    # Nothing waits for what comes after it, nor a step that is played once for one before it.
    lost = (cause >= at) | (cause < -count) | ((cause < 0) & ~np.full(count, queue.repeats))
    lag[lost] = NOTHING
    cause[lost] = -1
    return cause, lag


def _arrivals(nodes: _Nodes, points: Points, cause: I64, lag: F64) -> None:
    """Who takes a batch waits for it to arrive."""
    arrived = np.flatnonzero(nodes.kind == Node.ARRIVAL)
    by_row = dict(zip(points.row[nodes.of[arrived]].tolist(), arrived.tolist(), strict=True))
    for node in np.flatnonzero(nodes.kind == Node.RETURN).tolist() if by_row else []:
        if (found := by_row.get(int(points.row[nodes.of[node]]))) is not None:
            cause[node], lag[node] = found, 0.0


def _in_the_repeat_before(timeline: Timeline, queue: Queue, row_node: I64, targets: I64, count: int) -> I64:
    """Rows launched before the first step: the row of the last step at the same distance from its end."""
    events = timeline.events
    found = np.full(len(targets), count, np.int64)
    if len(queue.row) == 0:
        return found
    every = device_rows(timeline, queue.device)
    for index, row in enumerate(targets.tolist()):
        stream = events.stream[row]
        mine = queue.row[queue.stream == stream]
        if len(mine) == 0:
            continue
        earlier = every[(events.stream[every] == stream) & (events.start[every] < events.start[mine[0]])]
        distance = int((events.start[earlier] > events.start[row]).sum()) + 1
        if row in earlier and distance <= len(mine):
            found[index] = row_node[mine[-distance]] - count
    return found


def _host_times(
    host: Host, nodes: _Nodes, since: I64, on_device: Bool, queue: Queue
) -> tuple[HostTime, dict[str, HostTime]]:
    """Host time before each node and what the host did in it; none before device rows."""
    since = np.where(on_device, nodes.until, since)
    low, high = int(min(since.min(initial=queue.opens), queue.opens)), max(queue.closes, queue.opens)
    whole = host_time(host, None, since, nodes.until)
    once = host_time(host, host.once, since, nodes.until)
    whole = HostTime(whole.length - once.length, whole.events, whole.after)
    activities = {**host.activities, "host-work": host_work(host, low, high) - host.once}
    parts = {
        name: found
        for name, when in activities.items()
        if (found := host_time(host, when, since, nodes.until)).length.any()
    }
    arrival = nodes.kind == Node.ARRIVAL  # made by other processes: no work of this host, and not profiled
    whole.events[arrival] = 0.0
    for part in parts.values():
        part.length[arrival] = 0.0
        part.events[arrival] = 0.0
    return whole, parts


def _steps(nodes: _Nodes, queue: Queue) -> I64:
    """The step of each node: a row's own, on the host that of the row that comes next."""
    count = len(nodes.kind)
    rows = np.flatnonzero(nodes.kind == Node.ROW)
    step = np.full(count, queue.steps - 1, np.int64)
    if len(rows) == 0:
        return step
    step[rows] = queue.step[nodes.of[rows]]
    hosts = np.flatnonzero(~np.isin(nodes.kind, (Node.ROW, Node.WAIT)))
    following = np.minimum(np.searchsorted(rows, hosts), len(rows) - 1)
    step[hosts] = step[rows[following]]
    return step


def _inside(host: Host, queue: Queue, on_cores: bool) -> F64:
    """Events that the profiler recorded while each op of a CPU job ran."""
    if not on_cores:
        return np.zeros(len(queue.row))
    return (host.weight_before(queue.end) - host.weight_before(queue.start)) / 1000.0
