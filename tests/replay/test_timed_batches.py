"""Batches of workers come as late as they were waited for while nobody traced."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from drawn_graphs import US, Draft
from findwall.model.causes import cause_index
from findwall.replay.calibrate import Calibration, play_with
from findwall.replay.change import HostWork, without
from findwall.replay.graph import LAUNCHING, Graph, Node
from findwall.replay.timed_batches import as_waited_for
from findwall.replay.true_step import read_step

LOADER = "loader-starved"


def traced(*apart_us: float, host_us: float = 60, events: float = 10) -> Graph:
    """Steps whose batches come so far apart: the profiler has part in 60 us of the host a step."""
    draft = Draft()
    draft.add(Node.OPEN, 0)
    for step, apart in enumerate(apart_us):
        if apart:
            come = draft.add(Node.ARRIVAL, 20, length=apart * US, step=step)
            draft.add(
                Node.RETURN, 0, cause=come, lag=0.0, owner=cause_index(LOADER), row=90 + step, step=step
            )
        at = draft.add(Node.ISSUE, 0, row=1000 + step, length=host_us * US, events=events, step=step)
        draft.row(10, step, cause=at, lag=0.0, own=10 * US, step=step)
    draft.add(Node.CLOSE, 0, step=len(apart_us) - 1)
    return draft.graph(len(apart_us))


def reading_of(graph: Graph, waited_us: float, step_us: float) -> tuple[Graph, dict[str, float]]:
    graph, calibration = as_waited_for(graph, waited_us * US, step_us * US)
    found = read_step(graph, step_us * US / 1e9, "measured", calibration=calibration).likely
    assert found.step == pytest.approx(step_us * US)
    return graph, {cause: value / US for cause, value in found.idle.items()}


def test_a_wait_that_the_profiler_hid_is_as_long_as_it_was_timed() -> None:
    """The traced host took 60 us of 70; without the profiler it takes 30 of them, and waits 40."""
    graph, idle = reading_of(traced(70, 70), waited_us=40, step_us=70)
    assert idle[LOADER] == pytest.approx(40, abs=1)
    assert idle.get("unknown", 0.0) == pytest.approx(0, abs=1)
    host = as_waited_for(graph, 40 * US, 70 * US)[1]
    assert host is not None
    faster = HostWork(LAUNCHING, 0.5).apply(graph)
    assert play_with(faster, host).step == pytest.approx(70 * US, rel=1e-3)  # the workers set the pace
    assert play_with(without(LOADER).apply(graph), host).step == pytest.approx(30 * US, rel=0.02)


def test_kinds_of_steps_keep_their_shares_and_the_wait_that_was_timed() -> None:
    """Half of the traced steps waited, a quarter of all steps do: the wait is that of the timed steps."""
    graph = replace(traced(80, 0, 120, 0), share=np.array([0.125, 0.375, 0.125, 0.375]))
    _, idle = reading_of(graph, waited_us=40, step_us=70)
    assert idle[LOADER] == pytest.approx(40, abs=1)


def test_a_backlog_hides_nothing() -> None:
    """No traced step waited, for the queue was full: timed steps waited 40 us of 70."""
    graph, idle = reading_of(traced(0, 0), waited_us=40, step_us=70)
    assert idle[LOADER] == pytest.approx(40, abs=1)
    faster = HostWork(LAUNCHING, 0.5).apply(graph)
    host = as_waited_for(graph, 40 * US, 70 * US)[1] or Calibration()
    assert play_with(faster, host).step == pytest.approx(70 * US, rel=1e-3)


@pytest.mark.parametrize("apart_us", [0, 70])
def test_a_loader_that_is_hardly_waited_for_sets_no_pace(apart_us: float) -> None:
    graph, idle = reading_of(traced(apart_us, apart_us), waited_us=1, step_us=40)
    assert idle[LOADER] == pytest.approx(1, abs=0.1)
    assert play_with(HostWork(LAUNCHING, 0.1).apply(graph), Calibration()).step < 20 * US


def test_what_the_trace_waited_for_more_than_the_job_is_no_wait_of_the_job() -> None:
    _, idle = reading_of(traced(90, 90, host_us=50, events=0), waited_us=20, step_us=70)
    assert idle[LOADER] == pytest.approx(20, abs=1)
