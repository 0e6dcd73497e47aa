"""Batches of worker processes, as late as the job waited for them while nobody traced it.

Two things were timed of such a step: how long it is, and how long it waited. A trace shows neither: a host
that the profiler slows lets the workers catch up with it, and a queue that they filled while it started is
eaten up in the traced steps. So the wait is taken as it was timed, what is left of the step says how fast the
host is, and batches come as late as it then waits for them.
"""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from findwall.model.catalogue import WORTH_IT
from findwall.model.causes import cause_index
from findwall.replay.calibrate import Calibration, fit
from findwall.replay.change import Measured
from findwall.replay.graph import NOTHING, Graph, HostTime
from findwall.replay.rewiring import (
    at_step_starts,
    batches_waited_for,
    with_arrivals,
    with_host_work,
    with_later_batches,
)

LOADER = "loader-starved"


def as_waited_for(graph: Graph, waited: float, step: float) -> tuple[Graph, Calibration | None]:
    """The graph whose batches come as late as they were waited for, ns a step, and the host that fits a step
    of this length then. Workers that were hardly waited for keep up: how fast they are nothing tells."""
    waited = min(waited, step)
    late = waited >= WORTH_IT * step
    if late and not batches_waited_for(graph, LOADER).any():
        graph = _with_takers(graph, step)
    takers = batches_waited_for(graph, LOADER)
    held = Measured(LOADER, waited).apply(replace(graph, lag=np.where(takers, NOTHING, graph.lag)))
    if not late:
        return held, None
    calibration = fit(held, step).calibration
    graph = with_host_work(graph, LOADER, 0.0)
    graph = with_later_batches(graph, takers, waited * graph.steps, calibration)
    return replace(graph, measured=graph.measured | {LOADER}), calibration


def _with_takers(graph: Graph, step: float) -> Graph:
    """Batches that the trace saw nobody wait for: one a step, as far apart as those are long."""
    part = HostTime(at_step_starts(graph, step * graph.steps), np.zeros(len(graph)), np.zeros(len(graph)))
    return with_arrivals(with_host_work(graph, LOADER, 0.0), part, 1.0, cause_index(LOADER))
