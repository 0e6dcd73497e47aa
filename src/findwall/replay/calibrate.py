"""The two costs that a trace does not show, fitted until the replay takes the true step.

- What a recorded host event costs the host: the profiler's own time. 0 to 8 µs; where nothing decides it,
  2.9. Solved for on 14 host-bound H200 jobs of known step it was 1.3 to 6.1; on six more, each traced twice
  with six sets of the profiler's options, 1.2 to 6.1 (`benchmarks/profiler_cost.py`). Shapes, stacks and
  memory add rows, and little to the cost of each.
- The host's pace: how long the same host work took while the steps were timed, against while they were
  traced. 0.5 to 1 times: never longer, or causes would get idle time that nobody saw. Copies from pageable
  memory, which the host makes itself, keep that pace too. On 29 recorded jobs it was between 0.68 (pageable
  copies, compiling) and 1.15 (a collector on a shared CPU: what is beyond 1 there is of unknown cause). A CPU
  job's ops are its work, not idle time: they may take longer than traced.

One true step cannot tell the two apart, so they move together, each as far as is likely for it: a job with
many events then explains itself by their cost, one with few by its pace. Fitting never makes the device
faster or slower. What remains between the replay and the true step is left over, and told.
"""

from __future__ import annotations

import msgspec
import numpy as np

from findwall.model.catalogue import MENTION_SHARE, SMALL_PART
from findwall.model.intervals import F64
from findwall.replay.graph import LAUNCHING, Graph
from findwall.replay.simulate import Lags, Replay, play
from findwall.units import NS_PER_US

LOW_US, LIKELY_US, HIGH_US = 1.2, 2.9, 6.1  # what a recorded host event costs
HIGHEST_COST_US = 8.0
SLOWEST_PACE, FASTEST_PACE = 1.0, 0.5
# A CPU job's work is the host's too, and shares its cores with whatever else runs.
SLOWEST_ON_CORES = 1.0 / FASTEST_PACE
# How far one unit of doubt moves each: about the spread of the cost over the jobs above, and a twentieth of
# the host's time, which is what host-bound jobs vary by from run to run.
COST_DOUBT_US = 0.8
PACE_DOUBT = 0.05
# Units of doubt: there both costs stand at their ends, on cores too.
FURTHEST = max(HIGHEST_COST_US / COST_DOUBT_US, -np.log(FASTEST_PACE) / PACE_DOUBT)
CLOSE = 1e-5  # of the step: near enough
HALVINGS = 20
# Units of doubt that reach the high end of the profiler's likely cost. Where the device is the slower side,
# the true step says only that the host is no slower: so much cheaper it may be.
CHEAPER = 3.0


class Calibration(msgspec.Struct, frozen=True):
    """How the host really ran."""

    cost_us: float = 0.0  # the profiler's, for each host event
    pace: float = 1.0  # of what is left of the host's time


class Fit(msgspec.Struct, frozen=True):
    """A calibration and the replay it gives; `left_over` is the true step less the replayed one, in ns."""

    calibration: Calibration
    replay: Replay
    left_over: float


def host_parts(graph: Graph, calibration: Calibration) -> dict[str, F64]:
    """What the host does before each node, in ns, for a host that ran so; by the cause it counts for."""
    cost = calibration.cost_us * NS_PER_US
    pace = min(calibration.pace, SLOWEST_PACE)
    named, recorded = np.zeros(len(graph)), np.zeros(len(graph))
    found = {}
    for name, part in graph.parts.items():
        timed = name in graph.measured
        kept = part.length if timed else np.maximum(part.length - cost * part.events, 0.0) * pace
        found[name] = kept
        named += part.length
        recorded += part.events
    rest = np.maximum(graph.host.length - named, 0.0)
    events = np.maximum(graph.host.events - recorded, 0.0)
    found[LAUNCHING] = np.maximum(rest - cost * events, SMALL_PART * rest) * pace
    return found


def lags(graph: Graph, calibration: Calibration) -> Lags:
    """What the recursion is played with for a host that ran so."""
    host = sum(host_parts(graph, calibration).values(), np.zeros(len(graph)))
    own = graph.own
    if graph.on_cores:
        own = np.maximum(own - calibration.cost_us * NS_PER_US * graph.inside, SMALL_PART * own)
    own = np.where(graph.paced | graph.on_cores, own * calibration.pace, own)
    return Lags(host + graph.turn, graph.lag, own)


def play_with(graph: Graph, calibration: Calibration) -> Replay:
    """Play a graph for a host that ran so."""
    return play(graph, lags(graph, calibration))


def fit(graph: Graph, step_ns: float) -> Fit:
    """The likeliest calibration that gives this step; the nearest where none does."""
    doubt, found = _solve(graph, step_ns)
    calibration = _at(graph, doubt)
    return Fit(calibration, found, step_ns - found.step)


def cheapest(graph: Graph, calibration: Calibration, known: Replay) -> tuple[Calibration, Replay]:
    """Of the likely calibrations that give the same step as a known one, the one with the cheapest host."""
    cheaper = _at(graph, CHEAPER, max(LIKELY_US, calibration.cost_us))
    found = play_with(graph, cheaper) if cheaper.pace <= calibration.pace else known
    same = cheaper.pace <= calibration.pace and found.step >= (1.0 - MENTION_SHARE) * known.step
    return (cheaper, found) if same else (calibration, known)


def _solve(graph: Graph, step_ns: float) -> tuple[float, Replay]:
    """Units of doubt and the replay they give."""
    low, high = -FURTHEST, FURTHEST  # the more doubt, the cheaper the host
    best = play_with(graph, _at(graph, 0.0))
    if abs(best.step - step_ns) <= CLOSE * step_ns:
        return 0.0, best
    if best.step > step_ns:
        low = 0.0
    elif _on_slower_host(graph, _at(graph, -1.0)).step <= (1.0 + MENTION_SHARE) * best.step:
        return 0.0, best  # a slower host would not lengthen this step: something else did
    else:
        high = 0.0
    doubt = 0.0
    for end in (low, high):
        edge = play_with(graph, _at(graph, end))
        if end != 0.0 and (edge.step - step_ns) * (best.step - step_ns) >= 0:
            return _nearest(graph, step_ns, end, best, edge)
    for _ in range(HALVINGS):
        doubt = (low + high) / 2
        best = play_with(graph, _at(graph, doubt))
        if abs(best.step - step_ns) <= CLOSE * step_ns:
            break
        low, high = (doubt, high) if best.step > step_ns else (low, doubt)
    return doubt, best


def _on_slower_host(graph: Graph, calibration: Calibration) -> Replay:
    """The step on a host a unit of doubt slower than it may be: whether it is the host that decides."""
    found = lags(graph, calibration)
    host = sum(host_parts(graph, calibration).values(), np.zeros(len(graph)))
    own = np.where(graph.paced, found.own * (1.0 + PACE_DOUBT), found.own)
    return play(graph, Lags(found.chain + PACE_DOUBT * host, found.cause, own))


def _nearest(graph: Graph, step_ns: float, end: float, best: Replay, edge: Replay) -> tuple[float, Replay]:
    """No calibration reaches the step: the least doubt that comes as near as the furthest does."""
    if abs(best.step - edge.step) <= CLOSE * step_ns:
        return 0.0, best  # the host decides nothing here
    near, far = 0.0, end
    for _ in range(HALVINGS):
        middle = (near + far) / 2
        found = play_with(graph, _at(graph, middle))
        near, far = (near, middle) if abs(found.step - edge.step) <= CLOSE * step_ns else (middle, far)
    return far, edge


def _at(graph: Graph, doubt: float, likely_us: float = LIKELY_US) -> Calibration:
    cost = float(np.clip(likely_us + doubt * COST_DOUBT_US, 0.0, HIGHEST_COST_US))
    slowest = SLOWEST_ON_CORES if graph.on_cores else SLOWEST_PACE
    pace = float(np.clip(np.exp(-doubt * PACE_DOUBT), FASTEST_PACE, slowest))
    return Calibration(cost, pace)
