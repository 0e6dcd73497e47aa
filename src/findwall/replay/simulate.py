"""Play a graph: when everything happens, how long the step is, when the device stands still, and why.

The recursion is played in plain Python, so that no order of launches, waits and streams needs a case of its
own: 10,000 nodes take a few milliseconds a repeat. Long runs of one stream, whose causes are all known when
they begin, are added up at once.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from findwall.model.intervals import F64, I64
from findwall.replay.graph import NOTHING, Graph, Node

SETTLED = 1e-6  # of the step: repeats that differ by less are the steady state
MOST_REPEATS = 8
# The first repeat starts with nothing under way; after this many steps that no longer shows, and the second
# repeat is the steady state.
MANY_STEPS = 4
LONG_RUN = 256  # nodes: from here on numpy is faster than the loop; chosen by hand
LEAP = 1000  # repeats that are skipped where each is like the last but not all is in step yet


class Lags(msgspec.Struct, frozen=True):
    """What the recursion is played with; `Graph` holds who waits for whom."""

    chain: F64
    cause: F64
    own: F64


class Replay(msgspec.Struct, frozen=True):
    """One repeat of the steps in their steady state. Times in ns; columns over the graph's device rows."""

    step: float  # the mean over the kinds of steps there are
    length: float  # of the whole repeat
    gap: F64  # idle before each row
    busy: F64  # what each row adds to the time the device works: overlap counted once
    times: F64  # of every node, in this repeat
    before: F64  # of every node, in the repeat before
    lags: Lags
    weight: F64  # what each row counts for in the mean step

    @property
    def lost(self) -> F64:
        """Idle before each row, as much as it counts for."""
        return self.gap * self.weight

    @property
    def idle(self) -> float:
        return float(self.lost.sum())


def play(graph: Graph, lags: Lags) -> Replay:
    """Repeat the steps until they take the same time twice, or once where they do not repeat."""
    skeleton = _skeleton(graph, lags)
    stretches = _stretches(skeleton)
    rows = skeleton.place[graph.rows]
    before = np.zeros(len(skeleton.own))
    reach, step = 0.0, np.inf
    growth = before
    for left in reversed(range(_repeats(graph))):
        now = _sweep(before, stretches)
        reached = float(now[rows].max(initial=reach))
        last, step = step, reached - reach
        earlier, growth = growth, now - before
        settled = abs(step - last) <= SETTLED * step
        if left == 0 or (settled and (left < 3 or growth.max(initial=0.0) <= step * (1.0 + SETTLED))):
            break
        if settled and np.allclose(growth, earlier, rtol=SETTLED, atol=SETTLED * step):
            # A thread or stream falls behind what decides the step so far, and will decide it one day.
            now = now + LEAP * growth
            reached, step = float(now[rows].max(initial=reached)), np.inf
        before, reach = now, reached
    times = skeleton.of_all(now)
    ends = times[graph.rows]
    gap, busy = _idle(ends - lags.own[graph.rows], ends, reach)
    weight = graph.weight[graph.rows]
    mean = step if graph.share is None else float(((gap + busy) * weight).sum())
    return Replay(mean / graph.steps, step, gap, busy, times, skeleton.of_all(before), lags, weight)


def _repeats(graph: Graph) -> int:
    if not graph.repeats:
        return 1
    return 2 if graph.steps >= MANY_STEPS else MOST_REPEATS


class _Skeleton(msgspec.Struct, frozen=True):
    """The graph without the host's moments that wait for nothing but their own thread: those only add up.

    Predecessors count from the repeat before: its nodes come first, then this repeat's.
    """

    chain: I64
    cause: I64
    chain_lag: F64
    cause_lag: F64
    own: F64
    place: I64  # of every node of the graph: where the node it adds up from stands in the skeleton
    offset: F64  # and what it adds

    def of_all(self, times: F64) -> F64:
        return times[self.place] + self.offset


def _skeleton(graph: Graph, lags: Lags) -> _Skeleton:
    count = len(graph)
    alone = np.isin(graph.kind, (Node.ISSUE, Node.RETURN, Node.CLOSE)) & (lags.cause == NOTHING)
    alone &= graph.chain >= 0
    order = np.argsort(graph.track, kind="stable")
    waits = ~alone[order]
    last = np.maximum.accumulate(np.where(waits, np.arange(count), 0))
    total = np.cumsum(np.where(waits, 0.0, lags.chain[order]))
    anchor, offset = np.empty(count, np.int64), np.empty(count)
    anchor[order], offset[order] = order[last], total - total[last]
    kept = np.flatnonzero(~alone)
    place = np.zeros(count, np.int64)
    place[kept] = np.arange(len(kept))
    place = place[anchor]

    def target(index: I64) -> I64:
        return place[index] + np.where(index >= 0, len(kept), 0)

    def added(index: I64) -> F64:
        # Nothing came before a step that is played once.
        return np.where((index >= 0) | graph.repeats, offset[index], 0.0)

    chain, cause = graph.chain[kept], graph.cause[kept]
    return _Skeleton(
        chain=target(chain),
        cause=target(cause),
        chain_lag=lags.chain[kept] + added(chain),
        cause_lag=lags.cause[kept] + added(cause),
        own=lags.own[kept],
        place=place,
        offset=offset,
    )


class _Walk(msgspec.Struct, frozen=True):
    """Nodes one after the other, whatever they wait for."""

    columns: list[list[Any]]  # chain, cause, chain lag, cause lag, own
    begin: int

    def play(self, times: F64) -> None:
        view = times.data  # numbers go in and out of it several times faster than of the array
        for at, (chain, cause, lag, more, length) in enumerate(zip(*self.columns, strict=True), self.begin):
            ready, then = view[chain] + lag, view[cause] + more
            view[at] = (ready if ready > then else then) + length


class _Run(msgspec.Struct, frozen=True):
    """Nodes that follow each other and wait for nothing among them: what delays one delays all after it."""

    chain: int  # what the first follows
    cause: I64
    delay: F64  # from the cause to the node's end, less what the run takes up to there
    taken: F64  # by the run up to each node's end
    begin: int

    def play(self, times: F64) -> None:
        late = np.append(times[self.chain], times[self.cause] + self.delay)
        times[self.begin : self.begin + len(self.taken)] = np.maximum.accumulate(late)[1:] + self.taken


def _stretches(skeleton: _Skeleton) -> list[_Walk | _Run]:
    """All nodes in order: long runs, and what lies between."""
    count = len(skeleton.own)
    columns: list[NDArray[Any]] = [skeleton.chain, skeleton.cause]
    columns += [skeleton.chain_lag, skeleton.cause_lag, skeleton.own]
    found: list[_Walk | _Run] = []
    at = 0
    for begin, end in [*_long_runs(skeleton), (count, count)]:
        if begin > at:
            found.append(_Walk([column[at:begin].tolist() for column in columns], count + at))
        if end > begin:
            run = slice(begin, end)
            taken = np.cumsum(skeleton.chain_lag[run] + skeleton.own[run])
            delay = skeleton.cause_lag[run] + skeleton.own[run] - taken
            found.append(_Run(int(skeleton.chain[begin]), skeleton.cause[run], delay, taken, count + begin))
        at = end
    return found


def _long_runs(skeleton: _Skeleton) -> list[tuple[int, int]]:
    """Where each node follows the one before it, and waits for nothing that comes after the run began."""
    count = len(skeleton.own)
    here = np.arange(count)
    breaks = (skeleton.chain != count + here - 1) | (here == 0)
    # Nothing can be added up over a node that follows nobody; it and the next begin anew.
    alone = ~np.isfinite(skeleton.chain_lag)
    breaks |= alone | np.append(True, alone[:-1])[:count]
    since = np.maximum.accumulate(np.where(breaks, here, 0))
    breaks |= (skeleton.cause_lag > NOTHING) & (skeleton.cause >= count + since)
    edges = np.append(np.flatnonzero(breaks), count)
    long = np.flatnonzero(np.diff(edges) >= LONG_RUN)
    return list(zip(edges[long].tolist(), edges[long + 1].tolist(), strict=True))


def _sweep(before: F64, stretches: list[_Walk | _Run]) -> F64:
    """One repeat: the times of its nodes after those of the repeat before."""
    times: F64 = np.append(before, np.zeros(len(before)))
    for stretch in stretches:
        stretch.play(times)
    now: F64 = times[len(before) :].copy()
    return now


def _idle(start: F64, end: F64, reach: float) -> tuple[F64, F64]:
    """Of each row the idle time before it and the busy time it adds, after all that came before `reach`."""
    order = np.lexsort((end, start))
    reached = np.concatenate([[reach], np.maximum(np.maximum.accumulate(end[order]), reach)])[:-1]
    gap, busy = np.empty(len(start)), np.empty(len(start))
    gap[order] = np.maximum(start[order] - reached, 0.0)
    busy[order] = np.maximum(end[order] - np.maximum(start[order], reached), 0.0)
    return gap, busy


def waits(graph: Graph, replay: Replay) -> F64:
    """How long each node waited for something else than its own thread or stream."""
    times = np.concatenate([replay.before, replay.times])
    ready = times[graph.chain + len(graph)] + replay.lags.chain
    with np.errstate(invalid="ignore"):  # a node that nothing leads to, in a damaged trace, waits for nothing
        waited: F64 = np.maximum(replay.times - replay.lags.own - ready, 0.0)
    waited[np.isnan(waited)] = 0.0
    return waited


class Path(msgspec.Struct, frozen=True):
    """The chain of nodes that makes the step as long as it is, last first, and what each adds to it in ns."""

    node: I64
    length: F64


def critical_path(graph: Graph, replay: Replay) -> Path:
    """Walk back from the last row of the repeat to the moment one repeat earlier."""
    count = len(graph)
    rows = graph.rows
    times = np.concatenate([replay.before, replay.times])
    found: list[tuple[int, float]] = []
    node = int(rows[np.argmax(replay.times[rows])]) + count if len(rows) else -1
    reached = float(times[node]) if node >= 0 else 0.0
    stop, shift, again = reached - replay.length, 0.0, MOST_REPEATS
    while node >= 0 and reached > stop and again > 0:
        here = node - count
        ready = times[graph.chain[here] + count] + replay.lags.chain[here]
        then = times[graph.cause[here] + count] + replay.lags.cause[here]
        node = int((graph.cause if then > ready else graph.chain)[here]) + count
        # A row inside another, or a call that returns before its copy ends, is later than what it follows.
        since = min(max(float(times[node]) - shift, stop), reached)
        found.append((here, reached - since))
        reached = since
        if node < count:
            # A host that is done after its device: on into the repeat before, which is like this one.
            node, again = node + count, again - 1 if graph.repeats else 0
            shift += float(times[node] - times[node - count])
    columns = list(zip(*found, strict=True)) if found else [(), ()]
    return Path(np.array(columns[0], np.int64), np.array(columns[1], float))
