"""Steps of several kinds count for as much as they come; what was not recorded is nobody's idle time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace

from drawn_graphs import GRAPHS, US, Draft
from examples import drawn
from findwall.model.causes import UNKNOWN
from findwall.replay.blame import blame
from findwall.replay.calibrate import LIKELY_US, Calibration, play_with
from findwall.replay.graph import Graph, Node
from findwall.replay.true_step import read_step


def two_steps(short: float, long: float) -> Graph:
    """A kernel of 10 us a step; before the second one the host works `long` instead of `short`."""
    draft = Draft()
    draft.add(Node.OPEN, 0)
    for step, us in enumerate((short, long)):
        at = draft.add(Node.ISSUE, 0, row=1000 + step, length=us * US, share=1.0, part=2, step=step)
        draft.row(10, step, cause=at, lag=0.0, own=10 * US, step=step)
        draft.add(Node.RETURN, 0, cause=len(draft.nodes) - 1, lag=0.0, owner=0, row=2000 + step, step=step)
    draft.add(Node.CLOSE, 0, step=1)
    return draft.graph(2)


def test_a_step_in_sixteen_counts_for_a_sixteenth() -> None:
    graph = two_steps(20.0, 500.0)
    assert play_with(graph, Calibration()).step == pytest.approx(270 * US)
    graph = replace(graph, share=np.array([15 / 16, 1 / 16]))
    found = blame(graph, Calibration())
    assert found.replay.step == pytest.approx((15 * 30 + 510) / 16 * US)
    assert found.idle["host-work"] == pytest.approx((15 * 20 + 500) / 16 * US)


@drawn(50)
@given(GRAPHS, st.floats(0.01, 0.99), st.floats(0, 8))
def test_shares_keep_the_sum(graph: Graph, share: float, cost_us: float) -> None:
    assume(graph.steps == 2)
    graph = replace(graph, step=np.arange(len(graph)) * 2 // max(len(graph), 1))
    alike = blame(replace(graph, share=np.array([0.5, 0.5])), Calibration(cost_us))
    plain = blame(graph, Calibration(cost_us))
    np.testing.assert_allclose(alike.idle.values, plain.idle.values, atol=1.0)
    found = blame(replace(graph, share=np.array([share, 1 - share])), Calibration(cost_us))
    busy = float((found.replay.busy * found.replay.weight).sum()) / graph.steps
    assert found.idle.total + busy == pytest.approx(found.replay.step, abs=1.5)
    assert (found.idle.values >= 0).all()


@drawn(100)
@given(GRAPHS, st.floats(1.001, 20.0))
def test_idle_is_never_scaled_up(graph: Graph, times: float) -> None:
    """However long the true step is, no cause has more idle time than was recorded; the rest is unknown."""
    recorded = blame(graph, Calibration())
    # A drawn graph may take longer with the profiler's cost taken off: its nodes are in no real order.
    longest = max(recorded.replay.step, play_with(graph, Calibration(LIKELY_US)).step)
    assume(longest > 0)
    step = longest * times
    reading = read_step(graph, step / 1e9, "given").likely
    assert reading.busy + reading.idle.total == pytest.approx(step, rel=1e-6)
    assert reading.left_over == pytest.approx(step - reading.gaps.replay.step, abs=1.0)
    for cause, value in reading.idle.items():
        assert cause == UNKNOWN or value <= recorded.idle[cause] + 1.0 + 1e-4 * step


def test_rare_steps_are_what_was_seen_in_them() -> None:
    graph = two_steps(20.0, 20.0)
    reading = read_step(graph, 130e-6, "measured", {"host-work": 40e3, "unstable-steps": 60e3})
    assert sum(reading.likely.rare.values()) == pytest.approx(100e3)
    assert reading.likely.idle["unstable-steps"] == pytest.approx(60e3)
    assert reading.likely.idle["host-work"] == pytest.approx(60e3)
    assert reading.likely.left_over == pytest.approx(0, abs=1)
