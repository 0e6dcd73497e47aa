"""What is different: edits of a graph, made before it is played again.

An edit names the timeline's rows or a cause, never the graph's nodes, so that a fix can say what it does
without knowing how the step is played. Edits that touch different things can be made in any order; of two
that touch the same, both count (times are scaled by both, what one drops stays dropped).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from findwall.model.causes import cause_index
from findwall.model.events import Bool
from findwall.model.intervals import F64, I64
from findwall.replay.graph import LAUNCHING, NOTHING, Graph, HostTime, Node


class Edit(Protocol):
    """One thing that is different."""

    def apply(self, graph: Graph) -> Graph: ...


@dataclass(frozen=True, slots=True)
class Change:
    """Edits that are made together."""

    edits: tuple[Edit, ...] = ()

    def __add__(self, other: Change) -> Change:
        return Change(self.edits + other.edits)

    def __bool__(self) -> bool:
        return bool(self.edits)

    def apply(self, graph: Graph) -> Graph:
        for edit in self.edits:
            graph = edit.apply(graph)
        return graph


@dataclass(frozen=True, slots=True)
class Scale:
    """Device rows take so many times as long; 0 is nothing at all, but they are still launched."""

    rows: I64
    factor: F64

    def apply(self, graph: Graph) -> Graph:
        own = graph.own.copy()
        nodes, known = _nodes(graph, self.rows)
        own[nodes] *= np.broadcast_to(self.factor, self.rows.shape)[known]
        return replace(graph, own=own)


@dataclass(frozen=True, slots=True)
class Replace:
    """Device rows are others that take so many nanoseconds each, launched as these are."""

    rows: I64
    ns: F64

    def apply(self, graph: Graph) -> Graph:
        own, paced = graph.own.copy(), graph.paced.copy()
        nodes, known = _nodes(graph, self.rows)
        own[nodes] = np.broadcast_to(self.ns, self.rows.shape)[known]
        paced[nodes] = False
        return replace(graph, own=own, paced=paced)


@dataclass(frozen=True, slots=True)
class Drop:
    """Device rows and their launches are gone, and the host time that led to each launch with them."""

    rows: I64

    def apply(self, graph: Graph) -> Graph:
        nodes, _ = _nodes(graph, self.rows)
        own, turn, lag = graph.own.copy(), graph.turn.copy(), graph.lag.copy()
        # A row that ended before the one it follows leaves what comes after it where it is.
        turn[nodes] = np.minimum(turn[nodes] + own[nodes], 0.0)
        own[nodes], lag[nodes] = 0.0, NOTHING
        gone = np.zeros(len(graph), bool)
        gone[nodes] = True
        left = np.bincount(_launches(graph, ~gone), minlength=len(graph))
        idle = np.unique(_launches(graph, gone))
        launches = np.zeros(len(graph), bool)
        launches[idle[left[idle] == 0]] = True
        calls = graph.row[launches]  # such a call does not block any more either
        lag[graph.is_kind(Node.RETURN) & np.isin(graph.row, calls)] = NOTHING
        return _scaled_rest(replace(graph, own=own, turn=turn, lag=lag), launches, 0.0)


@dataclass(frozen=True, slots=True)
class Launch:
    """The host takes so many times as long to issue these device rows: its time before each launch."""

    rows: I64
    factor: float

    def apply(self, graph: Graph) -> Graph:
        nodes, _ = _nodes(graph, self.rows)
        wanted = np.zeros(len(graph), bool)
        wanted[nodes] = True
        launches = np.zeros(len(graph), bool)
        launches[np.unique(_launches(graph, wanted))] = True
        return _scaled_rest(graph, launches, self.factor)


@dataclass(frozen=True, slots=True)
class HostWork:
    """What the host does for one cause takes so many times as long."""

    cause: str
    factor: float

    def apply(self, graph: Graph) -> Graph:
        if self.cause == LAUNCHING:
            return _scaled_rest(graph, np.ones(len(graph), bool), self.factor)
        part = graph.parts.get(self.cause)
        if part is None:
            return graph
        saved = 1.0 - self.factor
        host = HostTime(
            graph.host.length - saved * part.length, graph.host.events - saved * part.events, graph.host.after
        )
        return replace(graph, host=host, parts={**graph.parts, self.cause: part.scaled(self.factor)})


@dataclass(frozen=True, slots=True)
class NoWait:
    """Blocking calls of one cause, or some calls alone, no longer wait."""

    cause: str = ""
    calls: I64 | None = None

    def apply(self, graph: Graph) -> Graph:
        returns = graph.is_kind(Node.RETURN)
        if self.cause:
            returns &= graph.owner == cause_index(self.cause)
        if self.calls is not None:
            returns &= np.isin(graph.row, self.calls)
        return replace(graph, lag=np.where(returns, NOTHING, graph.lag))


@dataclass(frozen=True, slots=True)
class StepLater:
    """Blocking calls of one cause wait for what the step before launched: values are read a step later."""

    cause: str

    def apply(self, graph: Graph) -> Graph:
        calls = graph.is_kind(Node.RETURN) & (graph.owner == cause_index(self.cause)) & (graph.lag > NOTHING)
        if not graph.repeats:
            return NoWait(self.cause).apply(graph)
        cause = graph.cause.copy()
        for node in np.flatnonzero(calls).tolist():
            cause[node] = _a_step_earlier(graph, int(cause[node]))
        return replace(graph, cause=cause)


@dataclass(frozen=True, slots=True)
class Ready:
    """Device rows start as soon as what is known to keep them is done: no wait of unknown reason."""

    rows: I64
    turn: float | None = None  # ns from row to row; None: as the trace has it of queued rows

    def apply(self, graph: Graph) -> Graph:
        nodes, _ = _nodes(graph, self.rows)
        turn, lag = graph.turn.copy(), graph.lag.copy()
        turn[nodes] = np.minimum(turn[nodes], graph.turnaround if self.turn is None else self.turn)
        lag[nodes] = np.minimum(lag[nodes], graph.latency)
        return replace(graph, turn=turn, lag=lag)


@dataclass(frozen=True, slots=True)
class HostPaced:
    """Copies that the host makes itself, at its own pace, or no longer does."""

    rows: I64
    paced: bool

    def apply(self, graph: Graph) -> Graph:
        paced = graph.paced.copy()
        paced[_nodes(graph, self.rows)[0]] = self.paced
        return replace(graph, paced=paced)


@dataclass(frozen=True, slots=True)
class OtherStream:
    """Device rows run on a stream of their own, in their order, beside everything else."""

    rows: I64

    def apply(self, graph: Graph) -> Graph:
        nodes, _ = _nodes(graph, self.rows)
        if len(nodes) == 0:
            return graph
        track, turn = graph.track.copy(), graph.turn.copy()
        before = graph.chain[nodes]
        waits = before[(before >= 0) & (graph.kind[before] == Node.WAIT)]  # a row takes its event wait along
        track[waits] = track[nodes] = int(track.max()) + 1
        turn[nodes] = np.minimum(turn[nodes], graph.turnaround)
        return replace(graph, track=track, turn=turn, chain=_rechained(graph, track))


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Host work of one cause is done by so many others ahead of the step, which waits if it is not ready."""

    cause: str
    ways: float

    def apply(self, graph: Graph) -> Graph:
        part = graph.parts.get(self.cause)
        moved = HostWork(self.cause, 0.0).apply(graph)
        if part is None or not part.length.any():
            return moved
        return _with_arrivals(moved, part, self.ways, cause_index(self.cause))


@dataclass(frozen=True, slots=True)
class Measured:
    """Host time of one cause as it was timed, ns a step, in place of what the trace shows of it.

    What the trace shows of it is scaled. What it does not show lies in host time without a name as far as
    that reaches (`hidden`: a collection looks like silence), else it is added at the start of each step.
    Batches that worker processes make keep their pace: how long they are waited for follows from the rest.
    """

    cause: str
    ns: float
    hidden: bool = False

    def apply(self, graph: Graph) -> Graph:
        if (graph.is_kind(Node.RETURN) & (graph.owner == cause_index(self.cause)) & _takes(graph)).any():
            return graph
        total = self.ns * graph.steps
        part = graph.parts.get(self.cause, HostTime.none(len(graph)))
        shown = float(part.length.sum())
        if shown > 0 and not self.hidden:
            graph = HostWork(self.cause, 0.0).apply(graph)
            return _with_part(graph, self.cause, part.length * (total / shown))
        graph = HostWork(self.cause, 0.0).apply(graph)
        length, graph = _carved(graph, total) if self.hidden else (np.zeros(len(graph)), graph)
        missing = total - float(length.sum())
        if missing > 0:
            length = length + _at_step_starts(graph, missing)
        return _with_part(graph, self.cause, length)


def without(cause: str) -> Change:
    """A cause left out: the host does nothing for it and waits for nothing of it."""
    return Change((HostWork(cause, 0.0), NoWait(cause)))


def fused(rows: I64, ns: float) -> Change:
    """Rows become one that takes `ns`: the first is replaced, the others are gone."""
    return Change((Replace(rows[:1], np.array([ns])), Drop(rows[1:]))) if len(rows) else Change()


# -- how edits are made -----------------------------------------------------------------------------


def _nodes(graph: Graph, rows: I64) -> tuple[I64, I64]:
    """The nodes of some device rows, and which of the rows are in the graph."""
    mine = graph.rows
    order = np.argsort(graph.row[mine], kind="stable")
    known = graph.row[mine][order]
    if len(known) == 0 or len(rows) == 0:
        return mine[:0], np.zeros(0, np.int64)
    at = np.minimum(np.searchsorted(known, rows), len(known) - 1)
    hit = np.flatnonzero(known[at] == rows)
    return mine[order[at[hit]]], hit


def _takes(graph: Graph) -> Bool:
    """Nodes that wait for a batch."""
    found: Bool = (graph.lag > NOTHING) & (graph.kind[graph.cause] == Node.ARRIVAL)
    return found


def _a_step_earlier(graph: Graph, node: int) -> int:
    """The device row at the same place of the step before; negative: of the repeat before."""
    count = len(graph)
    rows = graph.rows
    here = node if node >= 0 else node + count
    step = int(graph.step[here])
    mine, earlier = rows[graph.step[rows] == step], rows[graph.step[rows] == (step - 1) % graph.steps]
    at = min(int(np.searchsorted(mine, here)), len(earlier) - 1)
    found = int(earlier[at]) - (count if step == 0 else 0)
    return max(found if node >= 0 else found - count, -count)


def _launches(graph: Graph, wanted: Bool) -> I64:
    """The launches of the wanted device rows, one a row."""
    rows = np.flatnonzero(wanted & graph.is_kind(Node.ROW))
    cause = graph.cause[rows]
    cause = cause[cause >= 0]
    found: I64 = cause[graph.kind[cause] == Node.ISSUE]
    return found


def _scaled_rest(graph: Graph, nodes: Bool, factor: float) -> Graph:
    """Host time that counts for launching, before these nodes, scaled."""
    named, recorded = np.zeros(len(graph)), np.zeros(len(graph))
    for part in graph.parts.values():
        named += part.length
        recorded += part.events
    saved = np.where(nodes & ~graph.is_kind(Node.ARRIVAL), 1.0 - factor, 0.0)
    length = graph.host.length - saved * np.maximum(graph.host.length - named, 0.0)
    events = graph.host.events - saved * np.maximum(graph.host.events - recorded, 0.0)
    return replace(graph, host=HostTime(length, events, graph.host.after))


def _with_part(graph: Graph, cause: str, length: F64) -> Graph:
    part = HostTime(length, np.zeros(len(graph)), np.zeros(len(graph)))
    host = HostTime(graph.host.length + length, graph.host.events, graph.host.after)
    return replace(
        graph, host=host, parts={**graph.parts, cause: part}, measured=graph.measured | frozenset({cause})
    )


def _carved(graph: Graph, total: float) -> tuple[F64, Graph]:
    """Host time of no known reason taken out, up to `total`: silence first, then what seems launching."""
    taken = np.zeros(len(graph))
    for cause in ("host-work", LAUNCHING):
        part = graph.parts.get(cause)
        if cause == LAUNCHING:
            named = sum((one.length for one in graph.parts.values()), np.zeros(len(graph)))
            available = np.where(graph.is_kind(Node.ARRIVAL), 0.0, np.maximum(graph.host.length - named, 0.0))
        else:
            available = part.length if part is not None else np.zeros(len(graph))
        there = float(available.sum())
        share = min((total - float(taken.sum())) / there, 1.0) if there > 0 else 0.0
        if share > 0:
            taken = taken + available * share
            graph = HostWork(cause, 1.0 - share).apply(graph)
    return taken, graph


def _at_step_starts(graph: Graph, total: float) -> F64:
    """Time shared out over the first launch of every step."""
    issues = np.flatnonzero(graph.is_kind(Node.ISSUE))
    length = np.zeros(len(graph))
    first = issues[np.unique(graph.step[issues], return_index=True)[1]]
    if len(first):
        length[first] = total / len(first)
    return length


def _rechained(graph: Graph, track: I64) -> I64:
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


def _with_arrivals(graph: Graph, part: HostTime, ways: float, owner: int) -> Graph:
    """Where the work was done it now arrives, made one after the other, `ways` at a time, and is taken."""
    at = np.flatnonzero(part.length > 0)
    count, more = len(graph), 2 * len(at)
    # Right before the node that did the work until now: its arrival, and the thread that waits for it.
    moved = np.arange(count) + 2 * np.searchsorted(at, np.arange(count), side="right")
    arrival = at + 2 * np.arange(len(at))
    take = arrival + 1

    def shifted(index: I64) -> I64:
        real = np.where(index >= 0, index, index + count)
        found: I64 = np.where(index >= 0, moved[real], moved[real] - (count + more))
        return found

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
    length[arrival], events[arrival] = part.length[at] / ways, part.events[at] / ways
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
        queued=stretched(graph.queued, False),
        elsewhere=stretched(graph.elsewhere, 0.0),
        inside=stretched(graph.inside, 0.0),
    )
