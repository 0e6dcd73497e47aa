"""Every edit: what it takes away is gone, what it leaves alone stays, in whatever order."""

from __future__ import annotations

from itertools import pairwise, permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from drawn_graphs import GRAPHS, ONE_STREAM, PARTS, US, Draft
from examples import drawn
from findwall.model.causes import cause_index
from findwall.model.intervals import I64
from findwall.replay.calibrate import Calibration, host_parts, play_with
from findwall.replay.change import (
    Change,
    Drop,
    Edit,
    Elsewhere,
    HostWork,
    Issue,
    Launch,
    Measured,
    NoHostWork,
    NoWait,
    OtherStream,
    Replace,
    Scale,
    without,
)
from findwall.replay.graph import LAUNCHING, NOTHING, Graph, Node
from findwall.replay.rewiring import with_freeing

NO_ROWS = np.empty(0, np.int64)
GC = PARTS.index("gc-pause")
LOADER = PARTS.index("loader-starved")
WORK = PARTS.index("host-work")


def step(graph: Graph) -> float:
    return play_with(graph, Calibration()).step


def rows(*numbers: int) -> I64:
    return np.array(numbers, np.int64)


def job(us: float = 50.0, own: float = 10.0, launches: int = 2, **columns: float) -> Draft:
    """A thread that launches rows 0, 1 … on one stream, each after so much host time."""
    draft = Draft()
    draft.add(Node.OPEN, 0)
    for row in range(launches):
        at = draft.add(Node.ISSUE, 0, length=us * US, row=100 + row, **columns)
        draft.row(10, row, cause=at, lag=6 * US, own=own * US)
    return draft


def waiting(owner: str = "host-sync", us: float = 10.0) -> Draft:
    """The same, and a call of its own at the end of the step that waits for the last row."""
    draft = job(us)
    target = draft.last[10]
    draft.add(Node.RETURN, 0, cause=target, lag=2 * US, owner=cause_index(owner), row=200)
    return draft


def assert_same(graph: Graph, other: Graph) -> None:
    one, two = play_with(graph, Calibration()), play_with(other, Calibration())
    assert two.step == pytest.approx(one.step, rel=1e-9, abs=1e-3)
    np.testing.assert_allclose(two.gap, one.gap, atol=1e-3)


# -- laws ----------------------------------------------------------------------------------------


@drawn(20)
@given(GRAPHS)
def test_what_takes_nothing_away_changes_nothing(graph: Graph) -> None:
    every = graph.row[graph.rows]
    nothing: list[Edit] = [
        Change(),
        Scale(every, np.float64(1.0)),
        Scale(NO_ROWS, np.float64(0.0)),
        Drop(NO_ROWS),
        Drop(rows(999_999)),
        Launch(every, 1.0),
        Issue(NO_ROWS, np.float64(9 * US)),
        Issue(rows(999_999), np.float64(9 * US)),
        Issue(every, np.float64(0.0), besides=True),
        HostWork("gc-pause", 1.0),
        HostWork(LAUNCHING, 1.0),
        HostWork("recompilation", 0.0),
        NoHostWork(NO_ROWS),
        NoHostWork(rows(999_999)),
        NoWait("recompilation"),
        NoWait(calls=NO_ROWS),
        OtherStream(NO_ROWS),
        Elsewhere("recompilation", 4.0),
    ]
    for edit in nothing:
        assert_same(graph, edit.apply(graph))


@st.composite
def removals(draw: st.DrawFn, graph: Graph) -> list[Edit]:
    """Edits that touch different things."""
    every = graph.row[graph.rows].tolist()
    parted = [draw(st.integers(0, 2)) for _ in every]
    dropped, faster = (
        rows(*(row for row, part in zip(every, parted, strict=True) if part == one)) for one in (1, 2)
    )
    factor = draw(st.floats(0, 1))
    return [
        Drop(dropped),
        Scale(faster, np.float64(factor)),
        Launch(faster, factor),
        HostWork("gc-pause", factor),
        HostWork("loader-starved", factor),
        NoHostWork(dropped),
        NoWait("host-sync"),
        NoWait("copy-exposed"),
    ]


@drawn(27)
@given(ONE_STREAM, st.data())
def test_taking_work_away_never_lengthens_a_step_of_one_stream(graph: Graph, data: st.DataObject) -> None:
    now = step(graph)
    for edit in [*data.draw(removals(graph)), HostWork(LAUNCHING, 0.3), NoWait()]:
        assert step(edit.apply(graph)) <= now * (1 + 1e-5) + 1e-3


@drawn(20)
@given(GRAPHS, st.data())
def test_edits_of_different_things_can_be_made_in_any_order(graph: Graph, data: st.DataObject) -> None:
    edits = data.draw(removals(graph))
    assert_same(
        Change(tuple(edits)).apply(graph), Change(tuple(data.draw(st.permutations(edits)))).apply(graph)
    )


@drawn(20)
@given(GRAPHS, st.data())
def test_what_issuing_takes_is_set_before_or_after_other_rows_are_edited(
    graph: Graph, data: st.DataObject
) -> None:
    every = graph.row[graph.rows]
    part = np.array([data.draw(st.integers(0, 2)) for _ in every], np.int64)
    each = np.array([data.draw(st.integers(0, 40)) * US for _ in every])
    issue = Issue(every[part == 0], each[part == 0], besides=data.draw(st.booleans()))
    others: list[Edit] = [
        Scale(every[part == 1], np.float64(0.3)),
        Replace(every[part == 1], np.array(7 * US)),
        Drop(every[part == 2]),
        HostWork("gc-pause", 0.4),
        NoWait("host-sync"),
    ]
    for other in others:
        assert_same(Change((issue, other)).apply(graph), Change((other, issue)).apply(graph))


@drawn(20)
@given(ONE_STREAM, st.lists(st.integers(0, 90), min_size=2, max_size=4), st.booleans())
def test_dearer_launches_never_shorten_a_step_of_one_stream(
    graph: Graph, us: list[int], besides: bool
) -> None:
    every = graph.row[graph.rows]
    steps = [step(Issue(every, np.float64(each * US), besides).apply(graph)) for each in sorted(us)]
    assert all(one <= two * (1 + 1e-5) + 1e-3 for one, two in pairwise(steps))


# -- device rows ---------------------------------------------------------------------------------


def test_scaled_rows_take_so_many_times_as_long() -> None:
    graph = job(us=1, own=100).graph()
    assert step(graph) == 200 * US
    assert step(Scale(rows(0), np.float64(0.5)).apply(graph)) == 150 * US
    assert step(Scale(rows(0, 1, 77), np.array([0.5, 0.2, 9.0])).apply(graph)) == 70 * US


def test_a_dropped_row_takes_its_launch_along() -> None:
    graph = job(us=50).graph()
    assert step(graph) == 100 * US
    assert step(Drop(rows(0)).apply(graph)) == 50 * US
    assert step(Drop(rows(0, 1)).apply(graph)) == 0.0


def test_a_launch_of_several_rows_goes_with_the_last_of_them() -> None:
    draft = job(us=50, launches=1)
    draft.row(10, 1, cause=1, lag=6 * US, own=10 * US)
    graph = draft.graph()
    assert step(Drop(rows(0)).apply(graph)) == 50 * US
    assert step(Drop(rows(0, 1)).apply(graph)) == 0.0


def test_what_follows_a_dropped_row_still_follows_the_row_before_it() -> None:
    """The dropped one began two before that one's end; the next began after both."""
    draft = Draft()
    draft.row(10, 0, own=10 * US)
    draft.row(10, 1, turn=-2 * US, own=4 * US)
    draft.row(10, 2, own=10 * US)
    assert step(draft.graph()) == 22 * US
    assert step(Drop(rows(1)).apply(draft.graph())) == 20 * US


def test_a_dropped_row_inside_another_moves_nobody() -> None:
    draft = Draft()
    draft.row(10, 0, own=10 * US)
    draft.row(10, 1, turn=-5 * US, own=2 * US)
    draft.row(10, 2, turn=3 * US, own=10 * US)
    assert step(draft.graph()) == step(Drop(rows(1)).apply(draft.graph())) == 20 * US


def test_a_dropped_copy_blocks_nobody() -> None:
    """Its call waited for it and so for all that was queued before it."""
    draft = job(us=5, own=100, launches=1)
    at = draft.add(Node.ISSUE, 0, length=5 * US, row=101)
    copy = draft.row(10, 1, cause=at, lag=6 * US, own=20 * US, paced=True)
    draft.add(Node.RETURN, 0, cause=copy, lag=2 * US, owner=cause_index("copy-exposed"), row=101)
    graph = draft.graph()
    assert step(graph) > 130 * US
    assert step(Drop(rows(1)).apply(graph)) == 100 * US


def test_launching_takes_so_many_times_as_long() -> None:
    graph = job(us=50).graph()
    assert step(Launch(rows(0), 0.5).apply(graph)) == 75 * US
    assert step(Launch(rows(0, 1), 2.0).apply(graph)) == 200 * US


def test_a_faster_launch_leaves_what_else_the_host_did_before_it() -> None:
    graph = job(us=50, share=0.5, part=GC).graph()
    assert step(Launch(rows(0, 1), 0.0).apply(graph)) == 50 * US


def test_issuing_takes_so_much_in_place_of_what_it_took_or_besides_it() -> None:
    graph = job(us=50).graph()
    assert step(graph) == 100 * US
    assert step(Issue(rows(0), np.array(20 * US)).apply(graph)) == 70 * US
    assert step(Issue(rows(0, 1, 77), np.array([20, 30, 999]) * US).apply(graph)) == 50 * US
    assert step(Issue(rows(0), np.array(20 * US), besides=True).apply(graph)) == 120 * US
    assert step(Issue(rows(0, 1), np.array([1, 2]) * US, besides=True).apply(graph)) == 103 * US


def test_set_twice_what_issuing_takes_is_what_was_set_last() -> None:
    graph = job(us=50).graph()
    again = Change((Issue(rows(0, 1), np.array(70 * US)), Issue(rows(0, 1), np.array(20 * US))))
    assert step(again.apply(graph)) == 40 * US


def test_issuing_leaves_what_else_the_host_did_and_the_device_as_they_are() -> None:
    collected = job(us=50, share=0.5, part=GC).graph()
    assert step(Issue(rows(0, 1), np.array(0.0)).apply(collected)) == 50 * US
    assert step(Issue(rows(0, 1), np.array(5 * US)).apply(collected)) == 60 * US
    busy = Issue(rows(0, 1), np.array(5 * US)).apply(job(us=50, own=80).graph())
    assert step(busy) == 160 * US  # then the device decides


def test_a_launch_of_several_rows_pays_for_each_of_them() -> None:
    draft = job(us=50, launches=1)
    draft.row(10, 1, cause=1, lag=6 * US, own=10 * US)
    assert step(Issue(rows(0, 1), np.array([30, 40]) * US).apply(draft.graph())) == 70 * US


def test_what_issuing_takes_keeps_the_pace_of_the_host_and_has_no_profiler_to_pay() -> None:
    graph = Issue(rows(0, 1), np.array(30 * US)).apply(job(us=50, events=4.0).graph())
    assert play_with(graph, Calibration(cost_us=5.0, pace=1.0)).step == 60 * US
    assert play_with(graph, Calibration(cost_us=5.0, pace=0.5)).step == 30 * US


def test_replaced_rows_take_what_they_are_given() -> None:
    graph = job(us=1, own=100).graph()
    again = play_with(Replace(rows(0), np.array([30 * US])).apply(graph), Calibration())
    assert again.step == 130 * US
    assert again.busy.tolist() == [30 * US, 100 * US]


def test_on_a_stream_of_their_own_rows_run_beside_the_others() -> None:
    graph = job(us=1, own=100).graph()
    assert step(OtherStream(rows(1)).apply(graph)) == 100 * US


def test_rows_take_their_event_wait_along_to_another_stream() -> None:
    """Who stays need not wait for what only the moved row needed."""
    draft = Draft()
    slow = draft.row(11, 0, own=100 * US)
    draft.add(Node.WAIT, 10, cause=slow, lag=0.0)
    draft.row(10, 1, own=5 * US)
    draft.row(10, 2, own=10 * US)
    again = play_with(OtherStream(rows(1)).apply(draft.graph(repeats=False)), Calibration())
    ends = again.times[draft.graph().rows]
    assert ends.tolist() == [100 * US, 105 * US, 10 * US]


# -- the host ------------------------------------------------------------------------------------


def test_host_work_before_some_rows_is_gone_and_their_launches_stay() -> None:
    graph = job(us=50, share=0.5, part=GC).graph()
    assert step(graph) == 100 * US
    assert step(NoHostWork(rows(1)).apply(graph)) == 75 * US
    assert step(Change((NoHostWork(rows(0, 1)), HostWork("gc-pause", 0.0))).apply(graph)) == 50 * US


def test_host_work_of_one_cause_takes_so_many_times_as_long() -> None:
    graph = job(us=50, share=0.5, part=GC).graph()
    assert step(HostWork("gc-pause", 0.0).apply(graph)) == 50 * US
    assert step(HostWork("gc-pause", 3.0).apply(graph)) == 200 * US
    longest = float(graph.parts["gc-pause"].length.max())
    assert step(HostWork("gc-pause", 0.0, longest).apply(graph)) == 50 * US
    assert step(HostWork("gc-pause", 0.0, longest - 1).apply(graph)) == step(graph)
    assert step(HostWork(LAUNCHING, 0.0).apply(graph)) == 50 * US
    assert step(Change((HostWork("gc-pause", 0.5), HostWork(LAUNCHING, 0.5))).apply(graph)) == 50 * US


def test_batches_that_others_make_are_no_work_of_this_host() -> None:
    draft = Draft()
    draft.add(Node.ARRIVAL, 20, length=70 * US)
    draft.add(Node.RETURN, 0, cause=0, lag=0.0, owner=cause_index("loader-starved"), length=5 * US)
    draft.add(Node.ISSUE, 0, length=10 * US)
    draft.row(10, 0, cause=2, lag=0.0, own=10 * US)
    graph = draft.graph()
    assert step(HostWork(LAUNCHING, 0.0).apply(graph)) == 70 * US
    assert step(without("loader-starved").apply(graph)) == 15 * US


def test_calls_no_longer_wait() -> None:
    graph = waiting().graph()
    kept = step(graph)
    assert step(NoWait("host-sync").apply(graph)) == step(NoWait(calls=rows(200)).apply(graph)) < kept
    assert step(NoWait("copy-exposed").apply(graph)) == kept
    assert step(NoWait("copy-exposed", rows(200)).apply(graph)) == kept
    assert step(NoWait(calls=rows(201)).apply(graph)) == kept
    assert (NoWait().apply(graph).lag[graph.is_kind(Node.RETURN)] == NOTHING).all()


def test_batches_come_as_late_as_they_were_waited_for() -> None:
    draft = Draft()
    draft.add(Node.ARRIVAL, 20, length=70 * US)
    draft.add(Node.RETURN, 0, cause=0, lag=0.0, owner=cause_index("loader-starved"), length=5 * US)
    at = draft.add(Node.ISSUE, 0, length=10 * US)
    draft.row(10, 0, cause=at, lag=0.0, own=10 * US)
    graph = draft.graph()
    assert step(graph) == 70 * US  # of which 55 are waiting
    assert step(Measured("loader-starved", 55 * US).apply(graph)) == step(graph)
    assert step(Measured("loader-starved", 85 * US).apply(graph)) == 100 * US
    assert step(Measured("loader-starved", 0.0).apply(graph)) == 15 * US


def test_work_done_elsewhere_is_waited_for_where_it_is_not_ready() -> None:
    graph = job(us=50, own=1, share=0.5, part=LOADER).graph()  # 50 of loading and 50 of launching a step
    assert step(Elsewhere("loader-starved", 4.0).apply(graph)) == pytest.approx(50 * US)
    assert step(Elsewhere("loader-starved", 1.0).apply(graph)) == pytest.approx(50 * US)
    busy = HostWork(LAUNCHING, 0.2).apply(graph)
    assert step(Elsewhere("loader-starved", 1.0).apply(busy)) == pytest.approx(50 * US)
    assert step(Elsewhere("loader-starved", 2.0).apply(busy)) == pytest.approx(25 * US)
    waits = Elsewhere("loader-starved", 1.0).apply(busy)
    assert step(without("loader-starved").apply(waits)) == pytest.approx(10 * US)


def test_work_done_elsewhere_is_waited_for_by_a_call_that_waits_for_the_device_too() -> None:
    draft = job(us=10, own=1)
    target = draft.last[10]
    columns = {"length": 80 * US, "share": 1.0, "part": LOADER, "row": 200}
    draft.add(Node.RETURN, 0, cause=target, lag=0.0, owner=cause_index("host-sync"), **columns)
    graph = draft.graph()
    assert step(Elsewhere("loader-starved", 1.0).apply(graph)) == pytest.approx(80 * US)
    assert step(Elsewhere("loader-starved", 4.0).apply(graph)) < 40 * US


def handing_over() -> Graph:
    """The step ends with 80 of loading, which both threads wait for: the one that did it, and the next."""
    draft = job(us=10, own=1)
    draft.add(Node.OPEN, 1)
    last = draft.last[0]
    loading = {"length": 80 * US, "share": 1.0, "part": LOADER}
    draft.add(Node.RESUME, 1, chain=last, **loading)
    draft.add(Node.CLOSE, 0, **loading)
    draft.add(Node.CLOSE, 1)
    return draft.graph()


def test_work_that_two_threads_wait_for_is_done_once() -> None:
    graph = handing_over()
    assert step(graph) == 100 * US
    assert step(Elsewhere("loader-starved", 1.0).apply(graph)) == pytest.approx(80 * US)
    assert step(Elsewhere("loader-starved", 2.0).apply(graph)) == pytest.approx(40 * US)
    assert step(Measured("loader-starved", 30 * US).apply(graph)) == 50 * US


@drawn(20)
@given(GRAPHS)
def test_work_done_elsewhere_by_many_is_as_good_as_gone(graph: Graph) -> None:
    gone, moved = HostWork("gc-pause", 0.0).apply(graph), Elsewhere("gc-pause", 1e9).apply(graph)
    assert step(moved) == pytest.approx(step(gone), rel=1e-5, abs=1.0)
    assert (moved.chain < np.arange(len(moved))).all()
    assert (moved.cause < np.arange(len(moved))).all()


# -- what was measured ---------------------------------------------------------------------------


def length_of(graph: Graph, cause: str) -> float:
    return float(host_parts(graph, Calibration(3.0, 0.7))[cause].sum())


def test_what_the_trace_shows_is_scaled_to_what_was_timed() -> None:
    graph = Measured("gc-pause", 20 * US).apply(job(us=50, share=0.5, part=GC).graph())
    assert length_of(graph, "gc-pause") == 20 * US  # the calibration leaves it alone
    assert step(graph) == 70 * US


def test_what_the_trace_does_not_show_begins_each_step() -> None:
    graph = Measured("loader-starved", 20 * US).apply(job(us=50).graph())
    assert length_of(graph, "loader-starved") == 20 * US
    assert step(graph) == 120 * US


def test_what_hides_in_host_time_without_a_name_is_taken_out_of_it() -> None:
    plain = job(us=50).graph()
    graph = Measured("gc-pause", 20 * US, hidden=True).apply(plain)
    assert length_of(graph, "gc-pause") == pytest.approx(20 * US)
    assert step(graph) == pytest.approx(step(plain))


def test_a_stretch_before_the_nodes_of_two_threads_hides_only_once() -> None:
    draft = Draft()
    draft.add(Node.ISSUE, 0, length=50 * US)
    draft.add(Node.ISSUE, 0, length=40 * US)
    draft.add(Node.ISSUE, 1, length=40 * US)  # the thread hands over: the same stretch lies before both
    draft.row(10, 0, cause=1, lag=0.0, own=10 * US)
    plain = draft.graph()
    plain.chain[2] = plain.chain[1]
    graph = Measured("gc-pause", 90 * US, hidden=True).apply(plain)
    assert graph.parts["gc-pause"].length[:3] == pytest.approx([50 * US, 40 * US, 40 * US])
    assert step(HostWork("gc-pause", 0.0).apply(graph)) == pytest.approx(10 * US)


def test_what_finds_no_room_to_hide_is_added() -> None:
    graph = Measured("gc-pause", 130 * US, hidden=True).apply(job(us=50).graph())
    assert step(graph) == pytest.approx(130 * US)


def test_nothing_hides_in_the_work_of_other_processes() -> None:
    draft = Draft()
    draft.add(Node.ARRIVAL, 20, length=70 * US)
    draft.add(Node.RETURN, 0, cause=0, lag=0.0, owner=cause_index("loader-starved"), length=5 * US)
    draft.add(Node.ISSUE, 0, length=15 * US)
    draft.row(10, 0, cause=2, lag=0.0, own=10 * US)
    graph = Measured("gc-pause", 10 * US, hidden=True).apply(draft.graph())
    assert graph.parts["gc-pause"].length[0] == 0.0
    assert step(graph) == pytest.approx(70 * US)


def test_measured_as_none_there_is_none() -> None:
    graph = job(us=50, share=0.5, part=GC).graph()
    for hidden in (True, False):
        assert step(Measured("gc-pause", 0.0, hidden).apply(graph)) == 50 * US


def test_changes_add_up() -> None:
    change = Change((NoWait("host-sync"),)) + without("gc-pause")
    assert len(change.edits) == 3
    assert change
    assert not Change()
    assert all(
        step(Change(order).apply(waiting().graph())) == step(change.apply(waiting().graph()))
        for order in permutations(change.edits)
    )


# -- memory of a CPU job ---------------------------------------------------------------------------------


def on_cores(silence: float = 900.0) -> Graph:
    """Two ops that the host waits for, and silence behind the first."""
    draft = Draft()
    draft.add(Node.OPEN, 0)
    for row, silent in ((0, 0.0), (1, silence)):
        at = draft.add(Node.ISSUE, 0, length=(silent + 5) * US, share=silent / (silent + 5), part=WORK)
        target = draft.row(10, row, cause=at, lag=0.0, own=100 * US)
        draft.add(Node.RETURN, 0, cause=target, lag=0.0, row=200 + row)
    return replace(draft.graph(), on_cores=True)


@pytest.mark.parametrize(("nbytes", "given_back"), [(1e6, 140.0), (1e8, 900.0), (np.nan, 900.0)])
def test_an_op_that_is_gone_leaves_no_memory_to_give_back(nbytes: float, given_back: float) -> None:
    graph = with_freeing(on_cores(), rows(0, 1), np.array([nbytes, 0.0]))
    before = step(graph)
    for gone in (Drop(rows(0)), Scale(rows(0), np.zeros(1))):
        launched = 5 if isinstance(gone, Drop) else 0
        assert before - step(gone.apply(graph)) == pytest.approx((100 + given_back + launched) * US)
    assert before - step(Scale(rows(0), np.array([0.5])).apply(graph)) == pytest.approx(50 * US)
    assert before - step(Drop(rows(1)).apply(graph)) == pytest.approx(105 * US)
