"""Every gap is somebody's, and only one's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from drawn_graphs import GRAPHS, PARTS, US, Draft
from examples import drawn
from findwall.model.causes import UNKNOWN, cause_index
from findwall.replay.blame import blame
from findwall.replay.calibrate import Calibration, play_with
from findwall.replay.change import NoWait
from findwall.replay.graph import LAUNCHING, Graph, Node
from findwall.replay.step_reading import Blame
from machine import JOBS, Do, run
from sketch import DRAWINGS, Drawing, facts_of, sketch

STEPS = "|         " * 3


def idle(cpu: str, gpu: str) -> dict[str, float]:
    """Idle milliseconds a step by cause."""
    facts = facts_of(sketch(cpu=cpu * 3, gpu=gpu * 3, steps=STEPS))
    found = {cause: round(ns / 1e6, 1) for cause, ns in blame(facts.graph, Calibration()).idle.items()}
    return {cause: ms for cause, ms in found.items() if ms > 0}


def check(found: Blame, graph: Graph) -> None:
    """Idle and busy time make up the step, what lies before each row the idle time; nothing is negative."""
    busy = found.replay.busy.sum() / graph.steps
    assert found.idle.total + busy == pytest.approx(found.replay.step, abs=1.5)
    assert (found.idle.values >= 0).all()
    for cause, column in found.before.items():
        assert len(column) == len(found.row)
        assert (column >= 0).all()
        own = found.turnaround if cause == LAUNCHING else 0.0
        assert found.idle[cause] == pytest.approx(column.sum() + own, abs=1e-3)
    assert (found.turning >= 0).all()
    assert found.turning.sum() == pytest.approx(found.turnaround, abs=1e-3)
    named = sum(found.idle[cause] for cause in found.before)
    assert named == pytest.approx(found.idle.total, abs=1e-3)


@drawn(27)
@given(GRAPHS, st.floats(0, 8), st.floats(0.5, 1.25))
def test_the_blame_of_any_graph_sums_to_its_idle_time(graph: Graph, cost_us: float, pace: float) -> None:
    check(blame(graph, Calibration(cost_us, pace)), graph)


@drawn(13)
@given(DRAWINGS)
def test_the_blame_of_a_drawing_sums_to_its_idle_time(drawing: Drawing) -> None:
    graph = drawing.facts.graph
    check(blame(graph, Calibration(1.0)), graph)


@drawn(13)
@given(JOBS)
def test_the_blame_of_a_job_sums_to_its_idle_time(job: list[Do]) -> None:
    graph = facts_of(run(job)).graph
    check(blame(graph, Calibration()), graph)


@pytest.mark.parametrize(
    ("cpu", "gpu", "expected"),
    [
        ("ddddd osss", "      mmmm", {"loader-starved": 5.0, "host-work": 1.0}),
        ("mmmmm osss", "      mmmm", {"allocator": 5.0, "host-work": 1.0}),
        ("jjjjj osss", "      mmmm", {"recompilation": 5.0, "host-work": 1.0}),
        ("ggggg osss", "      mmmm", {"gc-pause": 5.0, "host-work": 1.0}),
        ("      osss", "      mmmm", {"host-work": 6.0}),
        ("nnnnnnonnn", "      mmmm", {"launch-bound": 6.0}),  # ops that launch nothing
        ("nnnnnnosss", "      mmmm", {"host-sync": 3.0, "launch-bound": 3.0}),  # half would be hidden
        ("o         ", "mmmmmmmmmm", {}),
    ],
)
def test_a_gap_goes_to_what_the_host_did(cpu: str, gpu: str, expected: dict[str, float]) -> None:
    assert idle(cpu, gpu) == expected


def test_a_drained_queue_is_the_synchronizes_fault() -> None:
    """The gaps after it look like slow launching, but would not be there without it."""
    found = idle("osssnono  ", "mmmm  m m ")
    assert found["host-sync"] > found.get("launch-bound", 0.0)


def test_without_a_synchronize_the_queue_stays_full() -> None:
    facts = facts_of(sketch(cpu="osssoooo  " * 3, gpu="mmmm mMmM " * 3, steps=STEPS))
    with_it = play_with(facts.graph, Calibration())
    assert play_with(NoWait("host-sync").apply(facts.graph), Calibration()).idle < with_it.idle


def test_other_threads_delay_nobody() -> None:
    """The loader's own thread is not the one that launches."""
    timeline = sketch(cpu="dddddd    " * 3 + "\n" + "      o   " * 3, gpu="      mmmm" * 3, steps=STEPS)
    loader = [name.startswith("enumerate") for name in timeline.names]
    thread = timeline.events.thread.copy()
    thread[[loader[int(name)] for name in timeline.events.name]] = 99
    facts = facts_of(replace(timeline, events=replace(timeline.events, thread=thread)))
    found = blame(facts.graph, Calibration())
    assert found.idle["loader-starved"] == 0
    assert found.idle["host-work"] == pytest.approx(6e6, abs=1e4)


def test_waiting_for_workers_is_the_loaders() -> None:
    job = [Do("batch", 5000), Do("launch", 100), Do("work", 50), Do("sync")]
    found = blame(facts_of(run(job)).graph, Calibration())
    assert found.replay.step == pytest.approx(5e6, abs=2)
    # 4.9 ms less the launching and waiting that would be left without it
    assert found.idle["loader-starved"] == pytest.approx(4.88e6, rel=0.01)


SILENT_US = st.integers(1000, 3000)


@drawn(30)
@given(early=SILENT_US, late=SILENT_US, every=st.integers(9000, 20_000), busy=st.integers(10, 1000))
def test_a_wait_for_workers_counts_for_the_time_it_was_made_in(
    early: int, late: int, every: int, busy: int
) -> None:
    """In one gap the host is silent, waits for a batch, and is silent again. Another loader has its batches
    there: when that was last asked says nothing of this wait."""
    there = Do("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 60)
    job = [Do("batch", every), Do("silence", late), Do("launch", 300), Do("sync")]
    job += [there, Do("launch", busy), Do("silence", early)]
    found = blame(facts_of(run(job)).graph, Calibration())
    worked = late + early - busy  # with the device idle
    assert found.idle["host-work"] == pytest.approx(worked * US, abs=20 * US)
    assert found.idle["loader-starved"] == pytest.approx((every - worked - busy - 300) * US, abs=100 * US)


def test_what_two_causes_do_in_one_gap_is_shared_by_what_the_host_did_in_it() -> None:
    draft = Draft()
    draft.add(Node.OPEN, 0)
    draft.add(Node.RESUME, 0, length=30 * US, share=1.0, part=PARTS.index("gc-pause"))
    at = draft.add(Node.ISSUE, 0, length=10 * US, share=1.0, part=PARTS.index("host-work"))
    draft.row(10, 0, cause=at, lag=0.0, own=5 * US)
    found = blame(draft.graph(), Calibration())
    # The gap is 35 long; the collection began 5 before it, while the row still ran.
    assert found.idle["gc-pause"] == pytest.approx(25 * US)
    assert found.idle["host-work"] == pytest.approx(10 * US)


def test_turn_around_is_the_devices_own_and_counts_for_launching() -> None:
    draft = Draft()
    draft.row(10, 0, turn=2 * US, own=10 * US)
    found = blame(draft.graph(), Calibration())
    assert found.turnaround == found.idle[LAUNCHING] == 2 * US
    assert found.before[LAUNCHING].sum() == 0.0
    assert not found.lacks_rows


def test_a_long_gap_of_queued_rows_is_of_unknown_cause_or_another_devices() -> None:
    draft = Draft()
    draft.row(10, 0, turn=200 * US, own=10 * US)
    found = blame(draft.graph(), Calibration())
    assert found.idle[UNKNOWN] == 200 * US
    assert found.lacks_rows
    found = blame(draft.graph(elsewhere=np.array([0.75])), Calibration())
    assert found.idle["pipeline-bubble"] == 150 * US
    assert found.idle[UNKNOWN] == 50 * US


def test_idle_time_that_shortens_no_step_is_still_somebodys() -> None:
    """Two streams: one is late because of its host, but the other one decides the step."""
    draft = Draft()
    draft.add(Node.OPEN, 0)
    draft.row(10, 0, turn=2 * US, own=12 * US)
    at = draft.add(Node.ISSUE, 0, length=1 * US)
    draft.row(11, 1, cause=at, lag=0.0, own=2 * US)
    graph = draft.graph(repeats=False)
    found = blame(graph, Calibration())
    check(found, graph)
    assert found.idle[LAUNCHING] == 1 * US


def test_the_loader_is_left_out_before_the_wait_it_makes_hurt() -> None:
    """Without the loading the synchronize would hurt nobody."""
    draft = Draft()
    draft.add(Node.OPEN, 0)
    at = draft.add(Node.ISSUE, 0, length=100 * US, share=1.0, part=PARTS.index("loader-starved"))
    row = draft.row(10, 0, cause=at, lag=0.0, own=50 * US)
    draft.add(Node.RETURN, 0, cause=row, lag=0.0, owner=cause_index("host-sync"))
    found = blame(draft.graph(), Calibration())
    assert found.idle["loader-starved"] == 100 * US
    assert found.idle["host-sync"] == 0.0


def test_a_job_without_rows_is_nobodys() -> None:
    found = blame(Draft().graph(), Calibration())
    assert found.idle.total == 0.0
    assert len(found.row) == 0
