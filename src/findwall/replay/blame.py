"""Why the device stands still: the same replay with a cause left out.

What the step is shorter by without a cause, all earlier ones being out already, is that cause's idle time, so
the parts sum to the idle time by construction. Launching is left out last: a launch that is late only
because a blocking call had emptied the queue is that call's fault. Launches that are made, or made late, only
because of checkpointing count for it: without it they would not be. What the host does (it waits for a batch,
compiles, saves) is left out before what makes it wait for the device: without the work the wait would hurt
nobody. Of several things that the host does in one step each would often shorten it alone; they are left out
together, and share what that saves by what the host was doing while the device stood still.
"""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from findwall.model.causes import UNKNOWN, ByCause, cause_index
from findwall.model.intervals import F64
from findwall.replay.calibrate import Calibration, host_parts, play_with
from findwall.replay.change import Change, without
from findwall.replay.graph import CHECKPOINTING, LAUNCHING, LONGEST_TURNAROUND_NS, Graph, Node
from findwall.replay.simulate import Replay, waits
from findwall.replay.step_reading import Blame

DOING = (
    "loader-starved",
    "allocator",
    "recompilation",
    "gc-pause",
    "graph-breaks",
    "host-work",
    "exposed-collective",
)
WAITING = ("copy-exposed", "host-sync")


def blame(graph: Graph, calibration: Calibration) -> Blame:
    """Leave the causes out one after the other, until only the device is left."""
    whole = play_with(graph, calibration)
    doing = [cause for cause in DOING if _has(graph, cause)]
    waiting = [cause for cause in WAITING if _has(graph, cause)]
    bare = sum((without(cause) for cause in doing), Change()).apply(graph)
    left = play_with(bare, calibration) if doing else whole
    before = _shared(graph, calibration, whole, left, doing)
    then, bare, left = _leave_out(bare, calibration, left, [*waiting, LAUNCHING])
    before |= then
    row = graph.row[graph.rows]
    if graph.checkpointing is not None:
        late = np.isin(row, graph.checkpointing)
        before[CHECKPOINTING] = np.where(late, before[LAUNCHING], 0.0)
        before[LAUNCHING] = np.where(late, 0.0, before[LAUNCHING])
    idle = ByCause.zeros()
    for cause, column in before.items():
        idle[cause] = float(column.sum())
    found = Blame(whole, idle, 0.0, row, before, np.zeros(len(row)))
    return _fitting(_with_own_gaps(bare, left, found), graph.steps)


def _shared(
    graph: Graph, calibration: Calibration, whole: Replay, left: Replay, doing: list[str]
) -> dict[str, F64]:
    """What leaving all of it out saves, given to each by what the host did in the gaps that go."""
    saved = _spread(np.maximum(whole.lost - left.lost, 0.0), max(whole.step - left.step, 0.0))
    if len(doing) < 2:
        return dict.fromkeys(doing, saved)
    parts, waited, none = host_parts(graph, calibration), waits(graph, whole), np.zeros(len(graph))
    did, found = {}, {}
    for cause in doing:
        # What the host does comes before the wait that a node ends with.
        work, wait = parts.get(cause, none), np.where(graph.owner == cause_index(cause), waited, 0.0)
        did[cause] = float(work.sum() + wait.sum())
        found[cause] = _meanwhile(graph, whole, work, _after(graph, whole, cause) + waited)
        found[cause] += _meanwhile(graph, whole, wait, none)
    total = sum(found.values(), np.zeros(len(saved)))
    most = max(sum(did.values()), 1e-9)
    return {
        cause: saved * np.divide(column, total, out=np.full(len(saved), did[cause] / most), where=total > 0)
        for cause, column in found.items()
    }


def _after(graph: Graph, replay: Replay, cause: str) -> F64:
    """How long before each node, or before its wait, the host stopped doing this."""
    part = graph.parts.get(cause)
    if part is None:
        return np.zeros(len(graph))
    recorded = graph.host.length
    stretch = np.divide(replay.lags.chain, recorded, out=np.zeros(len(graph)), where=recorded > 0)
    found: F64 = part.after * stretch
    return found


def _meanwhile(graph: Graph, replay: Replay, part: F64, after: F64) -> F64:
    """Of the gap before each device row, how long the host's threads did this."""
    rows = graph.rows
    until = replay.times[rows] - replay.lags.own[rows]
    since = until - replay.gap
    found = np.zeros(len(rows))
    host = ~np.isin(graph.kind, (Node.ROW, Node.WAIT))
    for track in np.unique(graph.track[host & (part > 0)]).tolist():
        mine = np.flatnonzero(host & (graph.track == track))
        end = np.concatenate([replay.before[mine] - after[mine], replay.times[mine] - after[mine]])
        length = np.tile(part[mine], 2)
        # How long it has been done until each moment: it grows while it is done and stands in between.
        moment = np.maximum.accumulate(np.stack([end - length, end], axis=1).reshape(-1))
        done = np.repeat(np.cumsum(length), 2)
        done[::2] -= length
        found += np.interp(until, moment, done) - np.interp(since, moment, done)
    return found


def _leave_out(
    graph: Graph, calibration: Calibration, left: Replay, causes: list[str]
) -> tuple[dict[str, F64], Graph, Replay]:
    """Idle time before each row that goes with each cause, ns a step; what is left of the graph."""
    before = {}
    step = left.step
    for cause in causes:
        graph = without(cause).apply(graph)
        now = play_with(graph, calibration)
        before[cause] = _spread(np.maximum(left.lost - now.lost, 0.0), max(step - now.step, 0.0))
        left, step = now, min(step, now.step)
    return before, graph, left


def _with_own_gaps(graph: Graph, alone: Replay, found: Blame) -> Blame:
    """The gaps of a device that never waits for its host: turn-around, other devices, what nobody knows."""
    own = alone.lost / graph.steps
    long = np.where(alone.gap > LONGEST_TURNAROUND_NS, own, 0.0)
    bubble = long * graph.elsewhere[graph.rows]
    for cause, column in (("pipeline-bubble", bubble), (UNKNOWN, long - bubble)):
        found.idle[cause] += float(column.sum())
        found.before[cause] = column
    turning = own - long
    found.idle[LAUNCHING] += float(turning.sum())
    return replace(found, turnaround=float(turning.sum()), turning=turning)


def _has(graph: Graph, cause: str) -> bool:
    return cause == LAUNCHING or cause in graph.parts or bool((graph.owner == cause_index(cause)).any())


def _spread(weights: F64, total: float) -> F64:
    """A total shared out by weights; evenly where there are none."""
    there = float(weights.sum())
    if there <= 0:
        return np.full(len(weights), total / max(len(weights), 1))
    found: F64 = weights * (total / there)
    return found


def _fitting(found: Blame, steps: int) -> Blame:
    """Streams that overlap otherwise once the host is out of the way: the parts are held to the idle time."""
    wanted, total = found.replay.idle / steps, found.idle.total
    if abs(total - wanted) <= 1.0:
        return found
    if total <= 0:
        # No step is shorter without any cause, yet the device then stands still elsewhere: its host's doing.
        found.idle[LAUNCHING] += wanted
        return replace(found, before={**found.before, LAUNCHING: found.replay.lost / steps})
    scale = wanted / total
    before = {cause: column * scale for cause, column in found.before.items()}
    return replace(
        found,
        idle=found.idle * scale,
        turnaround=found.turnaround * scale,
        before=before,
        turning=found.turning * scale,
    )
