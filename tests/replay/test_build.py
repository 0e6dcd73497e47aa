"""From a timeline to its graph: who waits for whom, and that odd traces still make one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from book import Book
from examples import drawn
from findwall.model.causes import cause_index
from findwall.model.events import Kind, Timeline
from findwall.replay.blame import blame
from findwall.replay.build import build
from findwall.replay.calibrate import Calibration, play_with
from findwall.replay.change import HostWork, NoWait, Scale, without
from findwall.replay.graph import LAUNCHING, NOTHING, Graph, Node
from findwall.replay.simulate import critical_path
from findwall.step.cores import cores_as_device
from findwall.step.device_queue import line_up
from findwall.step.host_activity import watch_host
from findwall.step.links import link
from findwall.step.step_bounds import find_steps
from findwall.step.step_facts import Queue
from machine import AUTOGRAD, CALL, JOBS, STREAMS, TAIL, Do, Machine, period, run
from sketch import DRAWINGS, Drawing, facts_of, hosts_own, sketch

AS_TRACED = Calibration()
US = 1_000


def lined_up(timeline: Timeline) -> Queue:
    links = link(timeline)
    return line_up(timeline, links, find_steps(timeline, links))


def graph_of(timeline: Timeline, on_cores: bool = False) -> Graph:
    links = link(timeline)
    queue = line_up(timeline, links, find_steps(timeline, links))
    return build(timeline, links, watch_host(timeline, links), queue, on_cores)


def step(graph: Graph) -> float:
    return play_with(graph, AS_TRACED).step


def well_formed(graph: Graph) -> None:
    """Nothing comes before what it waits for, all columns have one length, and all of it can be played."""
    at = np.arange(len(graph))
    assert (graph.chain < at).all()
    assert (graph.cause < at).all()
    assert (graph.chain >= -len(graph)).all()
    assert (graph.cause >= -len(graph)).all()
    assert (graph.host.length >= 0).all()
    for column in (
        "turn",
        "lag",
        "own",
        "owner",
        "row",
        "track",
        "step",
        "paced",
        "elsewhere",
        "inside",
    ):
        assert len(getattr(graph, column)) == len(graph), column
    for part in graph.parts.values():
        assert (part.length <= graph.host.length + 1).all()
    found = blame(graph, Calibration(2.0))
    assert np.isfinite(found.replay.step)
    assert np.isfinite(found.idle.values).all()
    assert critical_path(graph, found.replay).length.sum() == pytest.approx(
        found.replay.step * graph.steps, abs=1
    )


def changed(timeline: Timeline, **columns: Any) -> Timeline:
    return replace(timeline, events=replace(timeline.events, **columns))


# -- any timeline --------------------------------------------------------------------------------

MORE = st.builds(Do, st.just("wait"), st.just(0), st.sampled_from(STREAMS), st.sampled_from(STREAMS))


@drawn(13)
@given(DRAWINGS)
def test_a_drawing_makes_a_graph(drawing: Drawing) -> None:
    well_formed(graph_of(drawing.timeline))


@drawn(20)
@given(JOBS, st.lists(MORE, max_size=3), st.randoms())
def test_event_waits_do_not_change_how_long_the_job_takes(
    job: list[Do], waits: list[Do], random: Any
) -> None:
    for one in waits:
        job.insert(random.randrange(1, len(job) + 1), one)
    graph = graph_of(run(job))
    well_formed(graph)
    assert step(graph) == pytest.approx(period(job), abs=2)


@drawn(20)
@given(JOBS, st.data())
def test_times_that_lie_still_make_a_graph(job: list[Do], data: st.DataObject) -> None:
    """Clocks that jump: any row of the device may be anywhere, and of no length."""
    timeline = run(job, traced=3, warm_up=1)
    rows = np.flatnonzero(timeline.events.device >= 0)
    start, end = timeline.events.start.copy(), timeline.events.end.copy()
    moves = st.lists(
        st.sampled_from([0, 0, -200 * US, -300, 40 * US]), min_size=len(rows), max_size=len(rows)
    )
    start[rows] += np.array(data.draw(moves))
    lengths = st.lists(st.sampled_from([0, 1, 30 * US]), min_size=len(rows), max_size=len(rows))
    end[rows] = start[rows] + np.array(data.draw(lengths))
    well_formed(graph_of(changed(timeline, start=start, end=end)))


@drawn(13)
@given(JOBS, st.integers(-20, 20))
def test_clocks_that_disagree_do_not_change_the_step(job: list[Do], us: int) -> None:
    """No synchronize and no copy: what waits for what is told from the times, and those are off."""
    job = [one for one in job if one.what not in ("sync", "copy")]
    timeline = run(job)
    skew = np.where(timeline.events.device >= 0, us * US, 0)
    found = graph_of(changed(timeline, start=timeline.events.start + skew, end=timeline.events.end + skew))
    assert step(found) == pytest.approx(period(job), abs=2)


# -- threads -------------------------------------------------------------------------------------


def test_a_thread_takes_over_where_another_is_done() -> None:
    """Forward on one thread, backward on another, the optimizer on the first again."""
    back = {"thread": AUTOGRAD}
    job = [
        Do("work", 40),
        Do("launch", 5),
        Do("work", 60, **back),
        Do("launch", 5, **back),
        Do("work", 30, **back),
    ]
    job += [Do("work", 20), Do("launch", 5)]
    graph = graph_of(run(job))
    assert step(graph) == pytest.approx(period(job), abs=2)
    resumes = np.flatnonzero(graph.is_kind(Node.RESUME))
    assert len(resumes) >= 2 * graph.steps
    assert (graph.track[graph.chain[resumes]] != graph.track[resumes]).all()
    # Half the host time on both threads is half the step: neither runs beside the other.
    half = HostWork("host-work", 0.5).apply(HostWork(LAUNCHING, 0.5).apply(graph))
    assert step(half) == pytest.approx(period(job) / 2, rel=0.01)


def test_threads_that_work_at_the_same_time_do_not_wait_for_each_other() -> None:
    timeline = run([Do("launch", 5), Do("work", 40), Do("launch", 5, stream=8), Do("work", 40)])
    events = timeline.events
    other = np.isin(np.arange(len(events)), link(timeline).launch[events.stream == 8])
    thread = np.where(other, AUTOGRAD, events.thread).astype(events.thread.dtype)
    well_formed(graph_of(changed(timeline, thread=thread)))


# -- streams -------------------------------------------------------------------------------------

TWO_STREAMS = [
    Do("launch", 60, stream=8),
    Do("wait", stream=7, on=8),
    Do("launch", 10, stream=7),
    Do("launch", 10, stream=7),
    Do("sync"),
]


def test_a_stream_waits_for_an_event_of_another() -> None:
    graph = graph_of(run(TWO_STREAMS))
    waits = np.flatnonzero(graph.is_kind(Node.WAIT))
    assert len(waits) == graph.steps
    assert (graph.own[graph.cause[waits]] == 60 * US).all()
    slow = graph.row[graph.rows[graph.own[graph.rows] == 60 * US]]
    faster = [Do("launch", 30, stream=8), *TWO_STREAMS[1:]]
    assert step(Scale(slow, np.float64(0.5)).apply(graph)) == pytest.approx(period(faster), abs=2)


def test_a_stream_waits_for_an_event_of_the_step_before() -> None:
    job = [
        Do("wait", stream=7, on=8),
        Do("launch", 10),
        Do("work", 20),
        Do("sync"),
        Do("launch", 60, stream=8),
    ]
    graph = graph_of(run(job))
    waits = np.flatnonzero(graph.is_kind(Node.WAIT))
    assert len(waits) == graph.steps
    assert graph.cause[waits[0]] < 0
    assert step(graph) == pytest.approx(period(job), abs=2)


def test_rows_of_a_step_before_the_trace_are_not_counted_twice() -> None:
    """They run beside the first step, as the last step's run beside the one after it."""
    job = [Do("launch", 100), Do("launch", 60, stream=8), Do("launch", 60, stream=8), Do("work", 90)]
    graph = graph_of(run(job))
    assert np.bincount(graph.step[graph.rows]).tolist() == [3] * graph.steps


def test_waits_between_streams_are_read_off_the_times_alone() -> None:
    """Traces do not always have the calls that make a stream wait; and it may wait for room alone."""
    timeline = run(TWO_STREAMS)
    silent = replace(timeline, names=[name.replace("WaitEvent", "Query") for name in timeline.names])
    assert graph_of(silent).is_kind(Node.WAIT).sum() == graph_of(timeline).is_kind(Node.WAIT).sum() > 0


def test_a_call_for_the_whole_device_waits_for_every_stream() -> None:
    """The stream that ended first while it was recorded may be the last one once the other is faster."""
    job = [Do("launch", 60, stream=8), Do("launch", 50, stream=7), Do("sync"), Do("work", 20)]
    graph = graph_of(run(job))
    slow = graph.row[graph.rows[graph.own[graph.rows] == 60 * US]]
    faster = [Do("launch", 6, stream=8), *job[1:]]
    assert step(Scale(slow, np.float64(0.1)).apply(graph)) == pytest.approx(period(faster), abs=2)


def test_recorded_synchronizations_change_nothing() -> None:
    """Some traces have rows of their own for what waited for what; older ones and other tools do not."""
    timeline = run(TWO_STREAMS)
    syncs = timeline.events.take(np.flatnonzero(timeline.events.device >= 0))
    syncs = replace(syncs, kind=np.full(len(syncs), Kind.SYNC, np.uint8))
    columns = {
        name: np.concatenate([getattr(timeline.events, name), getattr(syncs, name)])
        for name in type(syncs).__struct_fields__
    }
    assert step(graph_of(changed(timeline, **columns))) == step(graph_of(timeline))


def test_thousands_of_streams() -> None:
    job = [Do("launch", 5, stream=stream) for stream in range(2000)]
    graph = graph_of(run(job, traced=2, warm_up=0))
    assert step(graph) == pytest.approx(2000 * CALL, abs=2)


def test_rows_at_the_same_time_keep_their_order() -> None:
    timeline = run([Do("launch", 0), Do("launch", 0), Do("sync")])
    rows = np.flatnonzero(timeline.events.device >= 0)
    start = timeline.events.start.copy()
    start[rows[1::2]] = start[rows[::2]]
    well_formed(
        graph_of(
            changed(
                timeline, start=start, end=np.where(timeline.events.device >= 0, start, timeline.events.end)
            )
        )
    )


# -- launches ------------------------------------------------------------------------------------


def test_several_rows_of_one_launch() -> None:
    """A CUDA graph: the first follows the launch, the others each other."""
    job = [Do("launch", 30, rows=4), Do("work", 20), Do("sync")]
    graph = graph_of(run(job))
    assert step(graph) == pytest.approx(period(job), abs=2)
    assert graph.is_kind(Node.ISSUE).sum() == graph.steps
    assert len(np.unique(graph.cause[graph.rows])) == graph.steps


def test_a_copy_from_pageable_memory_holds_its_call() -> None:
    job = [Do("launch", 5), Do("copy", 80), Do("work", 10)]
    graph = graph_of(run(job))
    assert graph.paced.sum() == graph.steps
    returns = np.flatnonzero(graph.is_kind(Node.RETURN))
    assert graph.paced[graph.cause[returns]].all()
    assert (graph.lag[returns] == TAIL).all()
    assert (graph.owner[returns] == cause_index("copy-exposed")).all()
    half = play_with(graph, Calibration(0.0, 0.5)).step
    assert half < 0.75 * step(graph)  # the host makes the copy: at twice the pace it takes half as long


def test_a_call_waits_for_a_row_of_the_step_before() -> None:
    job = [Do("launch", 5), Do("sync"), Do("work", 10), Do("launch", 90)]
    graph = graph_of(run(job))
    well_formed(graph)
    returns = np.flatnonzero(graph.is_kind(Node.RETURN))
    assert (graph.lag[returns] > NOTHING).all()
    assert graph.own[graph.cause[returns]].tolist() == [5 * US] * graph.steps
    faster = Scale(graph.row[graph.rows], np.float64(0.5)).apply(graph)
    truth = period([Do("launch", 2.5), Do("sync"), Do("work", 10), Do("launch", 45)])
    assert step(faster) == pytest.approx(truth, abs=2)


def test_a_call_at_the_start_of_a_step_waits_for_the_last_row_of_the_one_before() -> None:
    """The steps are counted from launch to launch, so it stands at the end of the step it waits for."""
    job = [Do("sync"), Do("work", 10), Do("launch", 90)]
    graph = graph_of(run(job))
    returns = np.flatnonzero(graph.is_kind(Node.RETURN))
    assert (graph.own[graph.cause[returns]] == 90 * US).all()
    assert (graph.lag[returns] == TAIL).all()
    truth = period([Do("sync"), Do("work", 10), Do("launch", 45)])
    assert step(Scale(graph.row[graph.rows], np.float64(0.5)).apply(graph)) == pytest.approx(truth, abs=2)


def test_a_call_that_waits_for_nothing_that_is_known_takes_its_time_itself() -> None:
    """A single step that begins with a wait for what was there before it."""
    book = Book()
    book._add(Kind.ANNOTATION, "ProfilerStep#0", 0, 200 * US)
    book._add(Kind.KERNEL, "mul_kernel", -50 * US, 95 * US, device=0, stream=7, thread=107)
    book._add(Kind.RUNTIME, "cudaDeviceSynchronize", 10 * US, 100 * US)
    book._add(Kind.OP, "aten::mul", 100 * US, 110 * US)
    book._add(Kind.RUNTIME, "cudaLaunchKernel", 100 * US, 105 * US, correlation=1)
    book._add(Kind.KERNEL, "mul_kernel", 106 * US, 150 * US, device=0, stream=7, correlation=1, thread=107)
    graph = graph_of(book.timeline())
    assert not graph.repeats
    assert step(graph) == 150 * US
    assert step(without("host-sync").apply(graph)) == 60 * US


def test_a_launch_waits_for_room_in_the_queue() -> None:
    machine, begins = Machine(), []
    for _ in range(3):
        begins.append(machine.now)
        for _ in range(300):
            machine.do(Do("launch", 20))
        issued = machine.now  # one more, when half of them are done
        machine.correlation += 1
        left = machine.free[7] - 150 * 21 * US
        machine._host(Kind.RUNTIME, "cudaLaunchKernel", left - issued, 0, machine.correlation)
        machine._row(Kind.KERNEL, "mul_kernel", Do("launch", 20), issued)
    for at, (start, end) in enumerate(zip(begins, [*begins[1:], machine.now], strict=True)):
        machine._add(Kind.ANNOTATION, f"ProfilerStep#{at}", start, end)
    graph = graph_of(machine.timeline())
    returns = np.flatnonzero(graph.is_kind(Node.RETURN))
    assert len(returns) == graph.steps
    assert (graph.owner[returns] == -1).all()
    assert (graph.lag[returns] >= 0).all()
    # Faster kernels make room sooner.
    assert step(Scale(graph.row[graph.rows], np.float64(0.5)).apply(graph)) < 0.6 * step(graph)


def test_rows_that_nobody_launched_keep_their_place() -> None:
    timeline = run([Do("launch", 30), Do("work", 50), Do("sync")])
    plain = graph_of(timeline)
    gone = np.where(timeline.events.is_kind(Kind.RUNTIME), -1, timeline.events.correlation)
    graph = graph_of(changed(timeline, correlation=gone))
    well_formed(graph)
    assert not graph.is_kind(Node.ISSUE).any()
    # Not even their steps are known: the whole span is one.
    assert not graph.repeats
    assert step(graph) > step(plain)


# -- batches -------------------------------------------------------------------------------------

STARVED = [Do("batch", 5000), Do("launch", 100), Do("work", 400), Do("launch", 900), Do("sync")]


def test_batches_come_as_fast_when_the_rest_of_the_step_shrinks() -> None:
    graph = graph_of(run(STARVED))
    assert step(graph) == pytest.approx(5000 * US, abs=2)
    assert graph.is_kind(Node.ARRIVAL).sum() == graph.steps
    faster = Scale(graph.row[graph.rows], np.float64(0.1)).apply(HostWork(LAUNCHING, 0.1).apply(graph))
    assert step(faster) == pytest.approx(5000 * US, abs=2)
    assert step(without("loader-starved").apply(graph)) < 1600 * US


LOADER = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
UNSEEN_US = st.integers(0, 30_000)  # work of the device that is not in the file, when that begins


@drawn(30)
@given(late=st.floats(0, 1.7), host=st.integers(10, 4000), copies=st.booleans())
def test_workers_that_set_the_pace_do_so_whatever_came_before_the_file(
    late: float, host: int, copies: bool
) -> None:
    """The host makes up for the beginning: it waits for the next batches for so much less."""
    slack = 5000 - host - 400  # how long it waits for a batch otherwise
    first = Do("copy" if copies else "launch", 200)
    job = [Do("batch", 5000), first, Do("work", host), Do("launch", 100), Do("sync")]
    timeline = run(job, unseen_us=(1 + late) * slack)
    assert step(graph_of(timeline)) == pytest.approx(5000 * US, abs=10 * US)


@drawn(30)
@given(unseen=UNSEEN_US, take=st.integers(0, 9000), host=st.integers(90_000, 160_000), copies=st.booleans())
def test_what_came_before_the_file_does_not_lengthen_the_step(
    unseen: int, take: int, host: int, copies: bool
) -> None:
    """The first row waited for it, and the call that blocked with it; those of the next steps do not."""
    first = Do("copy" if copies else "launch", 200)
    job = [Do(LOADER, take), first, Do("work", host), Do("launch", 100), Do("sync")]
    graph = graph_of(run(job, unseen_us=unseen))
    assert step(graph) == pytest.approx(period(job), rel=1e-3)
    found = blame(graph, AS_TRACED).idle
    assert found["loader-starved"] <= take * US + 1
    assert found["host-work"] <= host * US + 1  # an op of milliseconds in which nothing starts


@drawn(30)
@given(takes=st.lists(st.integers(0, 2500), min_size=4, max_size=4), cost=st.floats(0, 500))
def test_taking_a_batch_is_no_reason_to_wait_longer_for_it(takes: list[int], cost: float) -> None:
    """However much faster the host is than recorded: workers that keep up are not seen at work."""
    machine = Machine()
    for at, take in enumerate([*takes, 0]):
        begin = machine.now
        machine.do(Do(LOADER, take))
        for _ in range(100):
            machine.do(Do("work", 1250))
        machine.do(Do("launch", 200))
        machine.do(Do("sync"))
        machine._add(Kind.ANNOTATION, f"ProfilerStep#{at}", begin, machine.now)
    graph = graph_of(machine.timeline())
    calibration = Calibration(cost)
    loader = blame(graph, calibration).idle["loader-starved"]
    assert loader <= sum(takes) * US / graph.steps + 1
    assert play_with(graph, calibration).step <= step(graph) - 99 * cost * US + 1


def test_a_loader_that_is_fast_enough_is_not_waited_for() -> None:
    graph = graph_of(run([Do("batch", 800), *STARVED[1:]]))
    assert not graph.is_kind(Node.ARRIVAL).any()


def test_one_wait_recorded_twice_is_one_batch() -> None:
    timeline = run(STARVED)
    again = np.arange(len(timeline.events))
    named = [name.startswith("enumerate") for name in timeline.names]
    again = np.concatenate([again, again[np.array(named)[timeline.events.name]]])
    twice = replace(timeline, events=timeline.events.take(np.sort(again)))
    assert graph_of(twice).is_kind(Node.ARRIVAL).sum() == graph_of(timeline).is_kind(Node.ARRIVAL).sum()


def test_in_a_single_step_a_batch_arrives_when_it_did() -> None:
    timeline = run(STARVED, traced=1)
    graph = graph_of(timeline)
    events = timeline.events
    assert not graph.repeats
    began = events.start[events.is_kind(Kind.ANNOTATION)].min()
    assert step(graph) == pytest.approx(events.end[events.device >= 0].max() - began, abs=2)


# -- what a trace may lack -----------------------------------------------------------------------


def test_a_single_step_is_played_once() -> None:
    timeline = run([Do("work", 30), Do("launch", 50), Do("work", 20), Do("sync")], traced=1)
    graph = graph_of(timeline)
    steps = find_steps(timeline, link(timeline))
    assert not graph.repeats
    assert step(graph) == pytest.approx(steps.end - steps.start, abs=2)
    well_formed(graph)


def test_a_span_without_steps_is_one() -> None:
    timeline = sketch(cpu=" o  o ", gpu="  kk kk")
    kept = [not name.startswith("ProfilerStep") for name in timeline.names]
    events = timeline.events.take(np.flatnonzero(np.array(kept)[timeline.events.name]))
    graph = graph_of(replace(timeline, events=events))
    assert not graph.repeats
    assert graph.steps == 1
    assert step(graph) == 6e6  # from the first op
    well_formed(graph)


def test_no_rows_at_all() -> None:
    graph = graph_of(hosts_own(sketch(cpu="nnn", gpu="")))
    well_formed(graph)
    assert step(graph) == 0.0
    assert step(NoWait().apply(graph)) == 0.0


def test_no_host_at_all() -> None:
    timeline = sketch(gpu="kk kk  kk")
    events = timeline.events.take(np.flatnonzero(timeline.events.device >= 0))
    graph = graph_of(replace(timeline, events=events))
    well_formed(graph)
    assert step(graph) == 9e6
    assert play_with(graph, AS_TRACED).idle == 3e6


def test_a_step_without_kernels_is_no_step() -> None:
    """The last one only copies, on a stream of its own: where it begins on the device is not known."""
    launch, copy = [Do("launch", 50), Do("work", 80)], [Do("copy", 10, stream=9), Do("work", 80)]
    machine, begins = Machine(), []
    for doing in (launch, copy):
        begins.append(machine.now)
        for one in doing:
            machine.do(one)
    for at, (start, end) in enumerate(zip(begins, [*begins[1:], machine.now], strict=True)):
        machine._add(Kind.ANNOTATION, f"ProfilerStep#{at}", start, end)
    timeline = machine.timeline()
    queue, steps = lined_up(timeline), find_steps(timeline, link(timeline))
    assert queue.steps == steps.count == 1
    assert not queue.repeats
    assert queue.opens == begins[1]
    assert step(graph_of(timeline)) == steps.end - steps.start


def test_on_cores_the_host_runs_the_work_itself() -> None:
    book = Book()
    for at in range(3):
        row = book._add(Kind.ANNOTATION, f"ProfilerStep#{at}", book.now, -1)
        for _ in range(2):
            book._add(Kind.OP, "aten::mm", book.now, book.now + 50 * US)
            book.now += 80 * US
        book.rows[row]["end"] = book.now
    graph = graph_of(cores_as_device(book.timeline()), on_cores=True)
    well_formed(graph)
    assert step(graph) == pytest.approx(160 * US, abs=2)
    # Faster work is a faster host.
    faster = Scale(graph.row[graph.rows], np.float64(0.0)).apply(graph)
    assert step(faster) == pytest.approx(
        68 * US, abs=2
    )  # 30 between two ops, and 4 to get to each one's work


def test_facts_of_a_drawing_have_its_graph() -> None:
    facts = facts_of(sketch(cpu="o.o..o  " * 3, gpu="k  k   k" * 3, steps="|       " * 3))
    again = play_with(facts.graph, AS_TRACED)
    assert again.idle + again.busy.sum() == pytest.approx(again.step * facts.graph.steps)
    assert set(facts.graph.row[facts.graph.rows].tolist()) == set(facts.queue.row.tolist())
