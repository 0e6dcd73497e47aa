"""Play a graph: when everything happens, how long the step is, when the device stands still, and why.

The recursion is played in plain Python over lists: 10,000 nodes take about 3 ms a repeat, and no order of
launches, waits and streams needs a case of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from findwall.model.intervals import F64, I64
from findwall.replay.graph import Graph

SETTLED = 1e-6  # of the step: repeats that differ by less are the steady state
MOST_REPEATS = 8
LEAP = 1000  # repeats that are skipped where each is like the last but not all is in step yet


@dataclass(frozen=True, slots=True)
class Lags:
    """What the recursion is played with; `Graph` holds who waits for whom."""

    chain: F64
    cause: F64
    own: F64


@dataclass(frozen=True, slots=True)
class Replay:
    """One repeat of the steps in their steady state. Times in ns; columns over the graph's device rows."""

    step: float
    gap: F64  # idle before each row
    busy: F64  # what each row adds to the time the device works: overlap counted once
    times: F64  # of every node, in this repeat
    before: F64  # of every node, in the repeat before
    lags: Lags

    @property
    def idle(self) -> float:
        return float(self.gap.sum())


def play(graph: Graph, lags: Lags) -> Replay:
    """Repeat the steps until they take the same time twice, or once where they do not repeat."""
    count = len(graph)
    chain, cause = (graph.chain + count).tolist(), (graph.cause + count).tolist()
    columns = lags.chain.tolist(), lags.cause.tolist(), lags.own.tolist()
    rows = graph.rows
    before = np.zeros(count)
    reach, step = 0.0, np.inf
    for left in reversed(range(MOST_REPEATS if graph.repeats else 1)):
        now = np.array(_sweep(before.tolist(), chain, cause, *columns), np.float64)
        reached = float(now[rows].max(initial=reach))
        last, step = step, reached - reach
        grown = now - before
        settled = abs(step - last) <= SETTLED * step
        if left == 0 or (settled and (left < 3 or grown.max(initial=0.0) <= step * (1.0 + SETTLED))):
            break
        if settled:
            # A thread or stream falls behind what decides the step so far, and will decide it one day.
            now = now + LEAP * grown
            reached, step = float(now[rows].max(initial=reached)), np.inf
        before, reach = now, reached
    gap, busy = _idle(now[rows] - lags.own[rows], now[rows], reach)
    return Replay(step / graph.steps, gap, busy, now, before, lags)


def _sweep(
    before: list[float],
    chain: list[int],
    cause: list[int],
    chain_lag: list[float],
    cause_lag: list[float],
    own: list[float],
) -> list[float]:
    times = list(before)
    add = times.append
    for one, other, lag, more, length in zip(chain, cause, chain_lag, cause_lag, own, strict=True):
        ready, then = times[one] + lag, times[other] + more
        add((ready if ready > then else then) + length)
    return times[len(before) :]


def _idle(start: F64, end: F64, reach: float) -> tuple[F64, F64]:
    """Of each row the idle time before it and the busy time it adds, after all that came before `reach`."""
    order = np.lexsort((end, start))
    reached = np.concatenate([[reach], np.maximum(np.maximum.accumulate(end[order]), reach)])[:-1]
    gap, busy = np.empty(len(start)), np.empty(len(start))
    gap[order] = np.maximum(start[order] - reached, 0.0)
    busy[order] = np.maximum(end[order] - np.maximum(start[order], reached), 0.0)
    return gap, busy


@dataclass(frozen=True, slots=True)
class Path:
    """The chain of nodes that makes the step as long as it is, last first, and what each adds to it in ns."""

    node: I64
    length: F64
    waited: I64  # 1 where the node waited for its `cause`, 0 where for its own thread or stream


def critical_path(graph: Graph, replay: Replay) -> Path:
    """Walk back from the last row of the repeat to the moment one repeat earlier."""
    count = len(graph)
    rows = graph.rows
    times = np.concatenate([replay.before, replay.times])
    found: list[tuple[int, float, int]] = []
    node = int(rows[np.argmax(replay.times[rows])]) + count if len(rows) else -1
    reached = float(times[node]) if node >= 0 else 0.0
    stop, shift, again = reached - replay.step * graph.steps, 0.0, MOST_REPEATS
    while node >= 0 and reached > stop and again > 0:
        here = node - count
        ready = times[graph.chain[here] + count] + replay.lags.chain[here]
        then = times[graph.cause[here] + count] + replay.lags.cause[here]
        waited = int(then > ready)
        node = int((graph.cause if waited else graph.chain)[here]) + count
        # A row inside another, or a call that returns before its copy ends, is later than what it follows.
        since = min(max(float(times[node]) - shift, stop), reached)
        found.append((here, reached - since, waited))
        reached = since
        if node < count:
            # A host that is done after its device: on into the repeat before, which is like this one.
            node, again = node + count, again - 1 if graph.repeats else 0
            shift += float(times[node] - times[node - count])
    columns = list(zip(*found, strict=True)) if found else [(), (), ()]
    return Path(np.array(columns[0], np.int64), np.array(columns[1], float), np.array(columns[2], np.int64))
