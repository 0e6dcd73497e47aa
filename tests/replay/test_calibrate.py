"""How the host really ran: cheaper is never slower, and the fit gives the asked step or says what is left."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace

from drawn_graphs import GRAPHS, US, Draft
from examples import drawn
from findwall.model.catalogue import SMALL_PART
from findwall.replay.calibrate import (
    COST_DOUBT_US,
    HIGHEST_COST_US,
    LIKELY_US,
    SLOWEST_PACE,
    Calibration,
    fit,
    host_parts,
    lags,
    play_with,
)
from findwall.replay.graph import LAUNCHING, Graph, Node
from sketch import DRAWINGS, Drawing, facts_of, sketch

CHEAPEST, DEAREST = Calibration(HIGHEST_COST_US, 0.5), Calibration(0.0, SLOWEST_PACE)


def launching(us: float = 50.0, events: float = 4.0, own: float = 10.0) -> Graph:
    """A host that launches one row a step."""
    draft = Draft()
    draft.add(Node.OPEN, 0)
    at = draft.add(Node.ISSUE, 0, length=us * US, events=events)
    draft.row(10, 0, cause=at, lag=6 * US, own=own * US)
    draft.add(Node.CLOSE, 0)
    return draft.graph()


@drawn(27)
@given(GRAPHS, st.floats(0, 8), st.floats(0, 8), st.floats(0.5, 1.25), st.floats(0.5, 1.25))
def test_a_cheaper_host_is_never_slower(
    graph: Graph, cost: float, more: float, pace: float, less: float
) -> None:
    dear, cheap = Calibration(min(cost, more), max(pace, less)), Calibration(max(cost, more), min(pace, less))
    assert play_with(graph, cheap).step <= play_with(graph, dear).step * (1 + 1e-5) + 1e-3


@drawn(13)
@given(DRAWINGS, st.floats(0, 8))
def test_a_drawn_host_given_its_time_back_is_never_slower(drawing: Drawing, cost_us: float) -> None:
    graph = drawing.facts.graph
    assert play_with(graph, Calibration(cost_us)).step <= play_with(graph, Calibration()).step + 1


@drawn(27)
@given(GRAPHS, st.floats(0, 1))
def test_the_fit_gives_a_step_that_some_host_could_have_had(graph: Graph, share: float) -> None:
    low, high = play_with(graph, CHEAPEST).step, play_with(graph, DEAREST).step
    step = low + share * (high - low)
    likely = play_with(graph, Calibration(LIKELY_US)).step
    # A host that does not decide the step is not made slower until it does.
    decides = play_with(graph, Calibration(LIKELY_US - COST_DOUBT_US)).step > 1.01 * likely
    assume(step > 0 and (step <= likely or decides))
    found = fit(graph, step)
    assert found.left_over == pytest.approx(0, abs=1e-4 * step)
    assert play_with(graph, found.calibration).step == pytest.approx(step, rel=1e-4)


@drawn(20)
@given(GRAPHS, st.floats(1.01, 3), st.booleans())
def test_what_no_host_explains_is_left_over(graph: Graph, times: float, longer: bool) -> None:
    low, high = play_with(graph, CHEAPEST).step, play_with(graph, DEAREST).step
    assume(low > 0)
    step, nearest = (high * times, high) if longer else (low / times, low)
    found = fit(graph, step)
    # A host that does not decide the step is not made slower until it does.
    likely = play_with(graph, Calibration(LIKELY_US)).step
    unmoved = longer and found.calibration == Calibration(LIKELY_US)
    assert found.replay.step == pytest.approx(likely if unmoved else nearest, rel=1e-4)
    assert found.left_over == pytest.approx(step - found.replay.step)


def test_where_the_host_decides_nothing_its_costs_are_the_likely_ones() -> None:
    found = fit(launching(own=500.0), 700 * US)
    assert found.calibration == Calibration(LIKELY_US, 1.0)
    assert found.left_over == pytest.approx(200 * US)


def test_an_op_never_costs_nothing() -> None:
    parts = host_parts(launching(us=10.0, events=100.0), Calibration(8.0))
    assert parts[LAUNCHING].sum() == pytest.approx(SMALL_PART * 10 * US)


def test_what_was_timed_keeps_its_length() -> None:
    draft = Draft()
    draft.add(Node.ISSUE, 0, length=50 * US, events=4.0, share=1.0, part=1)
    graph = draft.graph(measured=frozenset({"gc-pause"}))
    assert host_parts(graph, Calibration(5.0, 0.5))["gc-pause"].sum() == 50 * US
    untimed = replace(graph, measured=frozenset())
    assert host_parts(untimed, Calibration(5.0, 0.5))["gc-pause"].sum() == 15 * US


def test_copies_from_pageable_memory_keep_the_hosts_pace_and_kernels_their_own() -> None:
    draft = Draft()
    draft.row(10, 0, own=10 * US, paced=True)
    draft.row(10, 1, own=10 * US)
    assert lags(draft.graph(), Calibration(2.0, 0.5)).own.tolist() == [5 * US, 10 * US]


def test_on_cores_the_work_is_the_hosts_too() -> None:
    draft = Draft()
    draft.row(10, 0, own=10 * US)
    graph = draft.graph(on_cores=True, inside=np.array([2.0]))
    assert lags(graph, Calibration(1.0, 0.5)).own.tolist() == [4 * US]
    assert lags(graph, Calibration(8.0)).own.tolist() == [pytest.approx(SMALL_PART * 10 * US)]


def test_a_host_given_its_time_back_closes_gaps() -> None:
    facts = facts_of(sketch(cpu="o..." * 9, gpu="k..." * 9, steps=("|" + " " * 11) * 3, us=4))
    idle = [play_with(facts.graph, Calibration(cost)).idle for cost in (0.0, 2.0, 8.0)]
    assert idle[0] > idle[1] > idle[2]


def test_queued_kernels_keep_their_turn_around() -> None:
    """Launched long ago: no host can close the gap between them."""
    facts = facts_of(sketch(cpu="ooo       " * 3, gpu="kkkk.kk.kk" * 3, steps="|         " * 3, us=10))
    assert play_with(facts.graph, Calibration(8.0)).gap[1] == 10 * US
