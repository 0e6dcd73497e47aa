"""Why the device stands still: the same replay with one cause after the other left out.

What the step is shorter by without a cause, all earlier ones being out already, is that cause's idle time. So
the parts sum to the idle time by construction. The order decides who is blamed where two causes overlap: what
the host does (it waits for a batch, compiles, saves) comes before what makes it wait for the device (without
the work the wait would hurt nobody), and launching comes last: a launch that is late only because a blocking
call had emptied the queue is that call's fault.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from findwall.model.causes import UNKNOWN, ByCause, cause_index
from findwall.model.intervals import F64, I64
from findwall.replay.calibrate import Calibration, play_with
from findwall.replay.change import LAUNCHING, without
from findwall.replay.device_side import LONGEST_TURNAROUND_NS
from findwall.replay.graph import Graph
from findwall.replay.simulate import Replay

# Of the step: more idle time with rows long queued than real jobs ever show.
LACKING_SHARE = 0.05
ORDER = (
    "exposed-collective",
    "loader-starved",
    "allocator",
    "recompilation",
    "gc-pause",
    "graph-breaks",
    "host-work",
    "copy-exposed",
    "host-sync",
    LAUNCHING,
)


@dataclass(frozen=True, slots=True)
class Blame:
    """Idle time of the replayed step by cause, ns a step, and where it lies."""

    replay: Replay
    idle: ByCause  # the device's own turn-around counts for launching
    turnaround: float  # of that: no host can give it back
    row: I64  # the timeline's rows before which the device stood still, as in the columns below
    before: dict[str, F64]  # cause -> idle ns a step before each row; turn-around is not in it
    turning: F64  # turn-around before each row, ns a step

    @property
    def lacks_rows(self) -> bool:
        """Whether the device waits so long for what is queued that rows must be missing."""
        return self.idle[UNKNOWN] > LACKING_SHARE * self.replay.step


def blame(graph: Graph, calibration: Calibration) -> Blame:
    """Leave the causes out one by one, until only the device is left."""
    whole = play_with(graph, calibration)
    row = graph.row[graph.rows]
    idle, before = ByCause.zeros(), {}
    left, step = whole, whole.step
    for cause in ORDER:
        if not _has(graph, cause):
            continue
        graph = without(cause).apply(graph)
        now = play_with(graph, calibration)
        idle[cause] = max(step - now.step, 0.0)
        before[cause] = _spread(np.maximum(left.gap - now.gap, 0.0), idle[cause])
        left, step = now, min(step, now.step)
    return _fitting(_with_own_gaps(graph, left, Blame(whole, idle, 0.0, row, before, row * 0.0)), graph.steps)


def _with_own_gaps(graph: Graph, alone: Replay, found: Blame) -> Blame:
    """The gaps of a device that never waits for its host: turn-around, other devices, what nobody knows."""
    own = alone.gap / graph.steps
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
    if total <= 0 or abs(total - wanted) <= 1.0:
        return found
    scale = wanted / total
    before = {cause: column * scale for cause, column in found.before.items()}
    return replace(
        found,
        idle=found.idle * scale,
        turnaround=found.turnaround * scale,
        before=before,
        turning=found.turning * scale,
    )
