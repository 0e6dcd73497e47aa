"""What is different: edits of a graph, made before it is played again.

An edit names the timeline's rows or a cause, never the graph's nodes, so that a fix can say what it does
without knowing how the step is played. Edits that touch different things can be made in any order; of two
that touch the same, both count (times are scaled by both, what one drops stays dropped).
"""

from __future__ import annotations

from typing import Protocol

import msgspec
import numpy as np
from msgspec.structs import replace

from findwall.model.causes import cause_index
from findwall.model.intervals import F64, I64
from findwall.replay.calibrate import Calibration
from findwall.replay.graph import NOTHING, Graph, HostTime, Node
from findwall.replay.rewiring import (
    at_step_starts,
    batches_waited_for,
    carved,
    in_all,
    launches_of,
    launching,
    marked,
    nodes_of,
    rechained,
    with_arrivals,
    with_host_work,
    with_issue_time,
    with_later_batches,
    with_launching,
    with_part,
    without_freeing,
    without_parts,
)


class Edit(Protocol):
    """One thing that is different."""

    def apply(self, graph: Graph) -> Graph: ...


class Change(msgspec.Struct, frozen=True):
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


class Scale(msgspec.Struct, frozen=True):
    """Device rows take so many times as long; 0 is nothing at all, but they are still launched."""

    rows: I64
    factor: F64

    def apply(self, graph: Graph) -> Graph:
        own = graph.own.copy()
        nodes, known = nodes_of(graph, self.rows)
        factor = np.broadcast_to(self.factor, self.rows.shape)[known]
        own[nodes] *= factor
        return without_freeing(replace(graph, own=own), nodes[factor == 0])


class Replace(msgspec.Struct, frozen=True):
    """Device rows are others that take so many nanoseconds each, launched as these are."""

    rows: I64
    ns: F64

    def apply(self, graph: Graph) -> Graph:
        own, paced = graph.own.copy(), graph.paced.copy()
        nodes, known = nodes_of(graph, self.rows)
        own[nodes] = np.broadcast_to(self.ns, self.rows.shape)[known]
        paced[nodes] = False
        return replace(graph, own=own, paced=paced)


class Longer(msgspec.Struct, frozen=True):
    """Device rows take so many nanoseconds more: something new runs with them."""

    rows: I64
    ns: F64

    def apply(self, graph: Graph) -> Graph:
        own = graph.own.copy()
        nodes, known = nodes_of(graph, self.rows)
        own[nodes] += np.broadcast_to(self.ns, self.rows.shape)[known]
        return replace(graph, own=own)


class Drop(msgspec.Struct, frozen=True):
    """Device rows and their launches are gone, and the host time that led to each launch with them; of a CPU
    job what it takes to give their memory back, too."""

    rows: I64

    def apply(self, graph: Graph) -> Graph:
        nodes, _ = nodes_of(graph, self.rows)
        graph = without_freeing(graph, nodes)
        own, turn, lag = graph.own.copy(), graph.turn.copy(), graph.lag.copy()
        # A row that ended before the one it follows leaves what comes after it where it is.
        turn[nodes] = np.minimum(turn[nodes] + own[nodes], 0.0)
        own[nodes], lag[nodes] = 0.0, NOTHING
        gone = marked(graph, nodes)
        left = np.bincount(launches_of(graph, ~gone), minlength=len(graph))
        idle = np.unique(launches_of(graph, gone))
        launches = marked(graph, idle[left[idle] == 0])
        calls = graph.row[launches]  # such a call does not block any more either
        lag[graph.is_kind(Node.RETURN) & np.isin(graph.row, calls)] = NOTHING
        return with_launching(replace(graph, own=own, turn=turn, lag=lag), launches, 0.0)


class Launch(msgspec.Struct, frozen=True):
    """The host takes so many times as long to issue these device rows: its time before each launch."""

    rows: I64
    factor: float

    def apply(self, graph: Graph) -> Graph:
        return with_launching(graph, launching(graph, self.rows), self.factor)


class Issue(msgspec.Struct, frozen=True):
    """The host takes so many nanoseconds to issue each of these device rows, in place of what it takes today
    or besides it."""

    rows: I64
    ns: F64
    besides: bool = False

    def apply(self, graph: Graph) -> Graph:
        nodes, known = nodes_of(graph, self.rows)
        each = np.broadcast_to(self.ns, self.rows.shape)[known]
        cause = graph.cause[nodes]
        issued = (cause >= 0) & (graph.kind[cause] == Node.ISSUE)
        return with_issue_time(graph, cause[issued], each[issued], self.besides)


class HostWork(msgspec.Struct, frozen=True):
    """What the host does for one cause takes so many times as long: all of it, or only short stretches."""

    cause: str
    factor: float
    longest: float = np.inf  # ns: of the stretch before one launch or wait, as recorded

    def apply(self, graph: Graph) -> Graph:
        return with_host_work(graph, self.cause, self.factor, self.longest)


class NoHostWork(msgspec.Struct, frozen=True):
    """What the host does for causes of their own before it issues these device rows is gone: its batches, its
    Python. What it takes to issue them stays."""

    rows: I64

    def apply(self, graph: Graph) -> Graph:
        return without_parts(graph, launching(graph, self.rows))


class NoWait(msgspec.Struct, frozen=True):
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


class Ready(msgspec.Struct, frozen=True):
    """Device rows start as soon as what is known to keep them is done: no wait of unknown reason."""

    rows: I64
    turn: float | None = None  # ns from row to row; None: as the trace has it of queued rows

    def apply(self, graph: Graph) -> Graph:
        nodes, _ = nodes_of(graph, self.rows)
        turn, lag = graph.turn.copy(), graph.lag.copy()
        turn[nodes] = np.minimum(turn[nodes], graph.turnaround if self.turn is None else self.turn)
        lag[nodes] = np.minimum(lag[nodes], graph.latency)
        return replace(graph, turn=turn, lag=lag)


class HostPaced(msgspec.Struct, frozen=True):
    """Copies that the host makes itself, at its own pace, or no longer does."""

    rows: I64
    paced: bool

    def apply(self, graph: Graph) -> Graph:
        paced = graph.paced.copy()
        paced[nodes_of(graph, self.rows)[0]] = self.paced
        return replace(graph, paced=paced)


class OtherStream(msgspec.Struct, frozen=True):
    """Device rows run on a stream of their own, in their order, beside everything else."""

    rows: I64

    def apply(self, graph: Graph) -> Graph:
        nodes, _ = nodes_of(graph, self.rows)
        if len(nodes) == 0:
            return graph
        track, turn = graph.track.copy(), graph.turn.copy()
        before = graph.chain[nodes]
        waits = before[(before >= 0) & (graph.kind[before] == Node.WAIT)]  # a row takes its event wait along
        track[waits] = track[nodes] = int(track.max()) + 1
        turn[nodes] = np.minimum(turn[nodes], graph.turnaround)
        return replace(graph, track=track, turn=turn, chain=rechained(graph, track))


class Elsewhere(msgspec.Struct, frozen=True):
    """Host work of one cause is done by so many others ahead of the step, which waits if it is not ready."""

    cause: str
    ways: float

    def apply(self, graph: Graph) -> Graph:
        part = graph.parts.get(self.cause)
        moved = HostWork(self.cause, 0.0).apply(graph)
        if part is None or not part.length.any():
            return moved
        return with_arrivals(moved, part, self.ways, cause_index(self.cause))


class Measured(msgspec.Struct, frozen=True):
    """Host time of one cause as it was timed, ns a step, in place of what the trace shows of it.

    What the trace shows of it is scaled. What it does not show lies in host time without a name as far as
    that reaches (`hidden`: a collection looks like silence), else it is added at the start of each step.
    Batches that worker processes make come as much later or earlier as they are waited for on a host that
    runs as in `calibration`.
    """

    cause: str
    ns: float
    hidden: bool = False
    calibration: Calibration = Calibration()

    def apply(self, graph: Graph) -> Graph:
        total = self.ns * graph.steps
        takers = batches_waited_for(graph, self.cause)
        if takers.any():
            return with_later_batches(graph, takers, total, self.calibration)
        part = graph.parts.get(self.cause, HostTime.none(len(graph)))
        shown = in_all(graph, part.length)
        if shown > 0 and not self.hidden:
            graph = HostWork(self.cause, 0.0).apply(graph)
            return with_part(graph, self.cause, part.length * (total / shown))
        graph = HostWork(self.cause, 0.0).apply(graph)
        length, graph = carved(graph, total) if self.hidden else (np.zeros(len(graph)), graph)
        missing = total - in_all(graph, length)
        if missing > 0:
            length = length + at_step_starts(graph, missing)
        return with_part(graph, self.cause, length)


def without(cause: str) -> Change:
    """A cause left out: the host does nothing for it and waits for nothing of it."""
    return Change((HostWork(cause, 0.0), NoWait(cause)))
