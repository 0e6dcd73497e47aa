"""How a graph is taken apart and put together again: what edits have in common."""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from findwall.model.causes import cause_index
from findwall.model.events import Bool
from findwall.model.intervals import F64, I64
from findwall.replay.calibrate import SLOWEST_PACE, Calibration, lags
from findwall.replay.graph import LAUNCHING, NOTHING, Graph, HostTime, Node
from findwall.replay.simulate import play, waits

SILENCE = "host-work"  # the cause that host time with no op in it counts for
# What a CPU job's thread takes to give memory back to the system, at the most. Measured on two cores of a
# Xeon with torch 2.13: tensors of 64 to 256 MB took 0.04 to 0.14 ns a byte, smaller ones next to nothing.
FREEING_NS_A_BYTE = 0.14
# Times that late batches are put right: once is exact where each is waited for; where a host that is ahead
# finds some of them there, the next time comes closer. Chosen by hand.
APPROACHES = 3


def nodes_of(graph: Graph, rows: I64) -> tuple[I64, I64]:
    """The nodes of some device rows, and which of the rows are in the graph."""
    mine = graph.rows
    order = np.argsort(graph.row[mine], kind="stable")
    known = graph.row[mine][order]
    if len(known) == 0 or len(rows) == 0:
        return mine[:0], np.zeros(0, np.int64)
    at = np.minimum(np.searchsorted(known, rows), len(known) - 1)
    hit = np.flatnonzero(known[at] == rows)
    return mine[order[at[hit]]], hit


def batches_waited_for(graph: Graph, cause: str) -> Bool:
    """Nodes in which the host waits for a batch that a worker makes, of the cause they count for."""
    found: Bool = graph.is_kind(Node.RETURN) & (graph.owner == cause_index(cause))
    found &= (graph.lag > NOTHING) & (graph.kind[graph.cause] == Node.ARRIVAL)
    return found


def with_later_batches(graph: Graph, takers: Bool, total: float, calibration: Calibration) -> Graph:
    """Batches that arrive so much later, or earlier, that who takes them waits for `total` of all steps on a
    host that runs so: each as much as it is waited for already."""
    arrivals = graph.cause[takers]
    weight = graph.weight[takers]
    for _ in range(APPROACHES):
        waited = waits(graph, play(graph, lags(graph, calibration)))[takers]
        missing = total - float((waited * weight).sum())
        by = waited if waited.any() else np.ones(len(waited))
        length = graph.host.length.copy()
        np.add.at(
            length,
            arrivals,
            missing * by / (float((by * weight).sum()) * min(calibration.pace, SLOWEST_PACE)),
        )
        length[arrivals] = np.maximum(length[arrivals], 0.0)
        graph = replace(graph, host=HostTime(length, graph.host.events, graph.host.after))
    return graph


def marked(graph: Graph, nodes: I64) -> Bool:
    """Which nodes are these."""
    found = np.zeros(len(graph), bool)
    found[nodes] = True
    return found


def launching(graph: Graph, rows: I64) -> Bool:
    """Which nodes launch some device rows."""
    return marked(graph, launches_of(graph, marked(graph, nodes_of(graph, rows)[0])))


def launches_of(graph: Graph, wanted: Bool) -> I64:
    """The launches of the wanted device rows, one a row."""
    rows = np.flatnonzero(wanted & graph.is_kind(Node.ROW))
    cause = graph.cause[rows]
    cause = cause[cause >= 0]
    found: I64 = cause[graph.kind[cause] == Node.ISSUE]
    return found


def with_launching(graph: Graph, nodes: Bool, factor: float) -> Graph:
    """Host time that counts for launching, before these nodes, scaled."""
    named, recorded = np.zeros(len(graph)), np.zeros(len(graph))
    for part in graph.parts.values():
        named += part.length
        recorded += part.events
    saved = np.where(nodes & ~graph.is_kind(Node.ARRIVAL), 1.0 - factor, 0.0)
    length = graph.host.length - saved * np.maximum(graph.host.length - named, 0.0)
    events = graph.host.events - saved * np.maximum(graph.host.events - recorded, 0.0)
    return replace(graph, host=HostTime(length, events, graph.host.after))


def with_issue_time(graph: Graph, launches: I64, ns: F64, besides: bool) -> Graph:
    """Host time that counts for launching, before these launches: so much, in place of what was recorded or
    besides it."""
    graph = with_launching(graph, marked(graph, launches[:0] if besides else launches), 0.0)
    length = graph.host.length.copy()
    np.add.at(length, launches, ns)
    return replace(graph, host=HostTime(length, graph.host.events, graph.host.after))


def with_host_work(graph: Graph, cause: str, factor: float, longest: float = np.inf) -> Graph:
    """What the host does for one cause, scaled; of a cause with a name of its own only stretches that are not
    longer."""
    if cause == LAUNCHING:
        return with_launching(graph, np.ones(len(graph), bool), factor)
    part = graph.parts.get(cause)
    if part is None:
        return graph
    scale = np.where(part.length <= longest, factor, 1.0)
    saved = 1.0 - scale
    host = HostTime(
        graph.host.length - saved * part.length, graph.host.events - saved * part.events, graph.host.after
    )
    return replace(graph, host=host, parts={**graph.parts, cause: part.scaled(scale)})


def with_freeing(graph: Graph, rows: I64, nbytes: F64) -> Graph:
    """A CPU job's graph that knows what of its silence may be memory given back: behind a device row that
    moved so many bytes as much as they may take. Where nobody knows how many they are, all of it."""
    part = graph.parts.get(SILENCE)
    nodes, known = nodes_of(graph, rows)
    if part is None or len(nodes) == 0:
        return graph
    most = np.zeros(len(graph))
    most[nodes] = np.nan_to_num(nbytes[known] * FREEING_NS_A_BYTE, nan=np.inf)
    row, behind = _behind(graph)
    freeing = np.zeros(len(graph))
    freeing[row] = np.minimum(part.length[behind], most[row])
    return replace(graph, freeing=freeing)


def without_freeing(graph: Graph, nodes: I64) -> Graph:
    """The memory of these device rows is not there to be given back."""
    part = graph.parts.get(SILENCE)
    if part is None or not graph.freeing.any():
        return graph
    row, behind = _behind(graph)
    mine = np.isin(row, nodes)
    less = np.zeros(len(graph))
    less[behind[mine]] = np.minimum(graph.freeing[row[mine]], part.length[behind[mine]])
    host = HostTime(graph.host.length - less, graph.host.events, graph.host.after)
    left = HostTime(part.length - less, part.events, part.after)
    return replace(graph, host=host, parts={**graph.parts, SILENCE: left})


def _behind(graph: Graph) -> tuple[I64, I64]:
    """Device rows for which the host waits, and the moment of its thread right behind each."""
    count = len(graph)
    after = np.flatnonzero(graph.kind == Node.ISSUE)
    before = graph.chain[after] % count
    back = (graph.kind[before] == Node.RETURN) & (graph.lag[before] > NOTHING)
    row = graph.cause[before[back]] % count
    return row, after[back]


def without_parts(graph: Graph, nodes: Bool) -> Graph:
    """Host time of all causes with a name of their own gone before these nodes."""
    length, events = graph.host.length.copy(), graph.host.events.copy()
    kept = np.where(nodes, 0.0, 1.0)
    for part in graph.parts.values():
        length -= (1.0 - kept) * part.length
        events -= (1.0 - kept) * part.events
    parts = {cause: part.scaled(kept) for cause, part in graph.parts.items()}
    return replace(graph, host=HostTime(length, events, graph.host.after), parts=parts)


def with_part(graph: Graph, cause: str, length: F64) -> Graph:
    part = HostTime(length, np.zeros(len(graph)), np.zeros(len(graph)))
    host = HostTime(graph.host.length + length, graph.host.events, graph.host.after)
    return replace(
        graph, host=host, parts={**graph.parts, cause: part}, measured=graph.measured | frozenset({cause})
    )


def carved(graph: Graph, total: float) -> tuple[F64, Graph]:
    """Host time of no known reason taken out, up to `total`: silence first, then what seems launching."""
    taken = np.zeros(len(graph))
    for cause in ("host-work", LAUNCHING):
        part = graph.parts.get(cause)
        if cause == LAUNCHING:
            named = sum((one.length for one in graph.parts.values()), np.zeros(len(graph)))
            available = np.where(graph.is_kind(Node.ARRIVAL), 0.0, np.maximum(graph.host.length - named, 0.0))
        else:
            available = part.length if part is not None else np.zeros(len(graph))
        there = in_all(graph, available)
        share = min((total - in_all(graph, taken)) / there, 1.0) if there > 0 else 0.0
        if share > 0:
            taken = taken + available * share
            graph = with_host_work(graph, cause, 1.0 - share)
    return taken, graph


def at_step_starts(graph: Graph, total: float) -> F64:
    """Time shared out over the first launch of every step."""
    issues = np.flatnonzero(graph.is_kind(Node.ISSUE))
    length = np.zeros(len(graph))
    first = issues[np.unique(graph.step[issues], return_index=True)[1]]
    if len(first):
        length[first] = total / len(first)
    return length


def rechained(graph: Graph, track: I64) -> I64:
    """Chains of the device's nodes by new tracks; the host's stay."""
    count = len(graph)
    device = np.flatnonzero(np.isin(graph.kind, (Node.ROW, Node.WAIT)))
    order = device[np.lexsort((device, track[device]))]
    chain = graph.chain.copy()
    same = track[order[1:]] == track[order[:-1]]
    first = np.concatenate([[True], ~same])
    last = np.concatenate([~same, [True]])
    chain[order[1:]] = np.where(same, order[:-1], -1)
    chain[order[first]] = order[last] - count
    found: I64 = chain
    return found


def told_once(graph: Graph, nodes: I64) -> Bool:
    """Of nodes that follow the same one, the first: where a thread hands over at the end of the last step,
    the stretch before the next lies before both threads' nodes."""
    found = np.zeros(len(nodes), bool)
    found[np.unique(graph.chain[nodes], return_index=True)[1]] = True
    return found


def in_all(graph: Graph, length: F64) -> float:
    """Host time of all steps together: each stretch counts once, by how often such a step comes."""
    at = np.flatnonzero(length > 0)
    at = at[told_once(graph, at)]
    return float((length * graph.weight)[at].sum())


def with_arrivals(graph: Graph, part: HostTime, ways: float, owner: int) -> Graph:
    """Where the work was done it now arrives, made one after the other, `ways` at a time, and is taken."""
    at = np.flatnonzero(part.length > 0)
    count, more = len(graph), 2 * len(at)
    # Right before the node that did the work until now: its arrival, and the thread that waits for it.
    moved = np.arange(count) + 2 * np.searchsorted(at, np.arange(count), side="right")
    arrival = at + 2 * np.arange(len(at))
    take = arrival + 1

    def shifted(index: I64) -> I64:
        real = np.where(index >= 0, index, index + count)
        return np.where(index >= 0, moved[real], moved[real] - (count + more))

    def stretched(column: NDArray[Any], value: float) -> NDArray[Any]:
        out = np.full(count + more, value, dtype=column.dtype)
        out[moved] = column
        return out

    chain, cause = stretched(shifted(graph.chain), -1), stretched(shifted(graph.cause), -1)
    chain[arrival] = np.concatenate([arrival[-1:] - (count + more), arrival[:-1]])
    chain[take], chain[moved[at]] = chain[moved[at]], take
    lag, owners = stretched(graph.lag, NOTHING), stretched(graph.owner, -1)
    cause[take], lag[take], owners[take] = arrival, 0.0, owner
    length, events = stretched(graph.host.length, 0.0), stretched(graph.host.events, 0.0)
    mine = told_once(graph, at) / ways
    length[arrival], events[arrival] = part.length[at] * mine, part.events[at] * mine
    kind, track = stretched(graph.kind, Node.ARRIVAL), stretched(graph.track, int(graph.track.max()) + 1)
    kind[take], track[take] = Node.RETURN, graph.track[at]
    return replace(
        graph,
        kind=kind,
        chain=chain,
        cause=cause,
        turn=stretched(graph.turn, 0.0),
        lag=lag,
        own=stretched(graph.own, 0.0),
        host=HostTime(length, events, np.zeros(count + more)),
        parts={
            name: HostTime(stretched(one.length, 0.0), stretched(one.events, 0.0), stretched(one.after, 0.0))
            for name, one in graph.parts.items()
        },
        owner=owners,
        row=stretched(graph.row, -1),
        track=track,
        step=stretched(graph.step, 0),
        paced=stretched(graph.paced, False),
        elsewhere=stretched(graph.elsewhere, 0.0),
        inside=stretched(graph.inside, 0.0),
        freeing=stretched(graph.freeing, 0.0),
    )
