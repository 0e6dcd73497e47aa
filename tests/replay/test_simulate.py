"""A graph played again takes as long as its job did, and idle and busy time make up the step."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace

from drawn_graphs import GRAPHS, US, Draft
from examples import drawn
from findwall.replay import simulate
from findwall.replay.calibrate import Calibration, play_with
from findwall.replay.change import Change, NoWait, Scale
from findwall.replay.device_side import TURNAROUND_NS
from findwall.replay.graph import Graph, Node
from findwall.replay.simulate import critical_path
from machine import JOBS, TAIL, Do, period, run
from sketch import DRAWINGS, Drawing, facts_of

AS_TRACED = Calibration()


@drawn(20)
@given(JOBS)
def test_unchanged_it_takes_as_long_as_the_job(job: list[Do]) -> None:
    """Two nanoseconds: the trace holds whole ones."""
    assert play_with(facts_of(run(job)).graph, AS_TRACED).step == pytest.approx(period(job), abs=2)


@drawn(20)
@given(JOBS)
def test_without_synchronizing_it_takes_as_long_as_that_job_would(job: list[Do]) -> None:
    """The call itself stays, as long as it takes where there is nothing to wait for."""
    step = play_with(NoWait("host-sync").apply(facts_of(run(job)).graph), AS_TRACED).step
    syncs = sum(one.what == "sync" for one in job)
    truth = period([one for one in job if one.what != "sync"])
    assert truth - 2 <= step <= truth + syncs * TAIL + 2


@drawn(20)
@given(JOBS)
def test_with_faster_kernels_it_takes_as_long_as_that_job_would(job: list[Do]) -> None:
    """One stream: a synchronize is known to wait for the row that ended last, not for one of each stream.

    Nor is it known how long a call takes where there is nothing to wait for.
    """
    job = [Do(one.what, one.us) for one in job]
    facts = facts_of(run(job))
    faster = Scale(facts.queue.row[~facts.queue.paced], np.float64(0.5)).apply(facts.graph)
    truth = period([Do(one.what, one.us / 2 if one.what == "launch" else one.us) for one in job])
    syncs = sum(one.what == "sync" for one in job)
    assert truth - syncs * TAIL - 2 <= play_with(faster, AS_TRACED).step <= truth + 2


@drawn(27)
@given(DRAWINGS)
def test_a_drawing_takes_as_long_as_its_host_or_its_device(drawing: Drawing) -> None:
    """Drawn steps begin with an empty queue, and their calls return whatever the device does.

    So only those without calls that wait are what a machine would do, and the first steps of those may be
    shorter than what they settle to: the replay gives the longer of the host's step and the device's. Rows
    that were queued keep the delay they were drawn with, the others are given the usual turn-around.
    """
    cpu = drawing.cpu.translate(str.maketrans("csf", "nnn"))
    drawing = replace(drawing, cpu=cpu, lengths=drawing.lengths[:1])
    facts = drawing.facts
    (delay, length), letter = drawing.lengths[0], drawing.us * 1000
    rows = 1 + drawing.cpu.count("o")
    host = (1 + len(drawing.cpu)) * letter
    step = play_with(facts.graph, AS_TRACED).step
    assert step >= max(host, rows * length * letter) - 2
    assert step <= max(host, rows * (length + delay) * letter + rows * TURNAROUND_NS) + 2


def same(graph: Graph, other: Graph) -> None:
    one, two = play_with(graph, AS_TRACED), play_with(other, AS_TRACED)
    assert two.step == pytest.approx(one.step, rel=1e-9, abs=1e-3)
    np.testing.assert_allclose(two.gap, one.gap, atol=1e-3)


@drawn(33)
@given(GRAPHS)
def test_idle_and_busy_time_make_up_the_step(graph: Graph) -> None:
    again = play_with(graph, AS_TRACED)
    assert np.isfinite(again.step)
    assert (again.gap >= 0).all()
    assert (again.busy >= 0).all()
    assert again.idle + again.busy.sum() == pytest.approx(again.step * graph.steps, abs=1e-2)


@drawn(33)
@given(GRAPHS)
def test_the_critical_path_is_as_long_as_the_steps(graph: Graph) -> None:
    again = play_with(graph, AS_TRACED)
    path = critical_path(graph, again)
    assert (path.length >= 0).all()
    assert path.length.sum() == pytest.approx(again.step * graph.steps, abs=1e-2)


def test_the_critical_path_goes_on_into_the_repeat_before() -> None:
    """The host works on after its last kernel has ended."""
    draft = Draft()
    draft.add(Node.OPEN, 0)
    at = draft.add(Node.ISSUE, 0, length=30 * US)
    draft.row(10, 0, cause=at, lag=2 * US, own=7 * US)
    draft.add(Node.CLOSE, 0, length=40 * US)
    graph = draft.graph()
    again = play_with(graph, AS_TRACED)
    path = critical_path(graph, again)
    assert again.step == 70 * US
    assert path.length.sum() == again.step
    assert set(path.node.tolist()) == {0, 1, 2, 3}


def test_a_row_inside_another_does_not_lengthen_the_path() -> None:
    draft = Draft()
    draft.row(10, 0, own=50 * US)
    draft.row(10, 1, turn=-40 * US, own=10 * US)
    draft.row(10, 2, turn=30 * US, own=10 * US)
    graph = draft.graph()
    assert critical_path(graph, play_with(graph, AS_TRACED)).length.sum() == 60 * US


def test_who_is_slower_decides_however_long_it_takes_to_catch_up() -> None:
    """The device's own delay hides for many steps that its host is slower."""
    draft = Draft()
    draft.add(Node.OPEN, 0)
    draft.row(10, 0, turn=60 * US, own=30 * US)
    at = draft.add(Node.ISSUE, 0, length=10 * US)
    draft.row(10, 1, cause=at, lag=0.0, own=10 * US)
    draft.add(Node.CLOSE, 0, length=91 * US)
    assert play_with(draft.graph(), AS_TRACED).step == pytest.approx(101 * US)


def test_steps_that_never_settle_still_have_their_idle_and_busy_time() -> None:
    """Two threads that take turns: every other repeat is longer."""
    draft = Draft()
    draft.add(Node.OPEN, 0)
    draft.add(Node.OPEN, 1)
    at = draft.add(Node.ISSUE, 0, length=10 * US)
    draft.row(10, 0, cause=at, lag=0.0, own=10 * US)
    at = draft.add(Node.ISSUE, 1, length=70 * US)
    draft.row(10, 1, cause=at, lag=0.0, own=20 * US)
    # Each takes over from the other.
    here, there = draft.last[0], draft.last[1]
    draft.add(Node.CLOSE, 0, chain=there)
    draft.add(Node.CLOSE, 1, chain=here)
    graph = draft.graph()
    again = play_with(graph, AS_TRACED)
    assert again.step > 0
    assert again.idle + again.busy.sum() == pytest.approx(again.step)


@drawn(100)
@given(GRAPHS)
def test_runs_that_are_added_up_at_once_end_as_when_walked(graph: Graph) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simulate, "LONG_RUN", 2)
        at_once = play_with(graph, AS_TRACED)
    walked = play_with(graph, AS_TRACED)
    assert at_once.step == pytest.approx(walked.step, rel=1e-9)
    assert at_once.times == pytest.approx(walked.times, rel=1e-9, abs=1e-3)


def test_what_does_not_repeat_is_played_once_from_its_start() -> None:
    draft = Draft()
    draft.add(Node.OPEN, 0)
    at = draft.add(Node.ISSUE, 0, length=30 * US)
    draft.row(10, 0, cause=at, lag=6 * US, own=10 * US)
    draft.add(Node.CLOSE, 0, length=40 * US)
    again = play_with(draft.graph(repeats=False), AS_TRACED)
    assert again.step == 46 * US
    assert again.gap.tolist() == [36 * US]


def test_nothing_takes_no_time() -> None:
    for repeats in (True, False):
        graph = Draft().graph(repeats=repeats)
        again = play_with(graph, AS_TRACED)
        assert again.step == 0.0
        assert len(critical_path(graph, again).node) == 0


@drawn(12)
@given(GRAPHS, st.booleans())
def test_an_empty_change_changes_nothing(graph: Graph, none: bool) -> None:
    assume(len(graph.rows))
    same(graph, Change().apply(graph) if none else Scale(graph.row[graph.rows], np.float64(1.0)).apply(graph))


def test_an_overlap_counts_once() -> None:
    facts = facts_of(run([Do("launch", 40, stream=7), Do("launch", 40, stream=8), Do("sync")]))
    again = play_with(facts.graph, AS_TRACED)
    assert again.busy.sum() / facts.graph.steps == pytest.approx(43_000, abs=2)  # launched 3 us apart
