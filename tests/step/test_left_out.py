"""What is not the step is left out of it, and nothing else is."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace

from book import Book
from examples import drawn
from findwall.causes.verdict import decide
from findwall.examine import examine
from findwall.model.causes import UNKNOWN
from findwall.model.events import DEVICE_KINDS, Kind, Timeline
from findwall.replay.blame import blame
from findwall.replay.build import build
from findwall.replay.calibrate import Calibration
from findwall.replay.graph import Graph
from findwall.replay.step_reading import Blame
from findwall.step.device_queue import line_up
from findwall.step.host_activity import watch_host
from findwall.step.links import link
from findwall.step.step_facts import CUT_AWAY, LOADING, NOT_RECORDED, START_UP
from findwall.step.step_window import survey
from findwall.units import NS_PER_US
from machine import CALL, JOBS, LATENCY, TRACED, WARM_UP, Do, Machine, run
from sketch import facts_of, sketch

MS = 1_000_000


class FirstCalls(Machine):
    """Kernels named by their place in the step; one launch of the first step takes longer."""

    def __init__(self, slow: int, length: int) -> None:
        super().__init__()
        self.slow, self.length = slow, length
        self.step = self.place = 0

    def _launch(self, one: Do) -> None:
        self.correlation += 1
        more = self.length if self.step == 0 and self.place == self.slow else 0
        issued = self.now
        self._add(Kind.OP, "aten::mul", issued, issued + CALL + more, thread=one.thread)
        self._host(Kind.RUNTIME, "cudaLaunchKernel", CALL + more, one.thread, self.correlation)
        self._row(Kind.KERNEL, f"kernel_{self.place}", one, issued + more)
        self.place += 1


def first_calls(job: Sequence[Do], slow: int = -1, length: int = 0) -> Timeline:
    """The trace of a warm job, but for one launch of the first step traced."""
    machine, begins = FirstCalls(slow, length), []
    for step in range(WARM_UP + TRACED):
        machine.step, machine.place = step - WARM_UP, 0
        begins.append(machine.now)
        for one in job:
            machine.do(one)
    ends = [*begins[WARM_UP + 1 :], machine.now]
    for at, (start, end) in enumerate(zip(begins[WARM_UP:], ends, strict=True)):
        machine._add(Kind.ANNOTATION, f"ProfilerStep#{at}", start, end)
    whole = machine.timeline()
    seen = (whole.events.start >= begins[WARM_UP]) | (whole.events.device >= 0)
    return replace(whole, events=whole.events.take(np.flatnonzero(seen)))


# With several streams, what was cut away may have run beside what was not, and nothing in the file tells so.
ONE_STREAM = JOBS.map(lambda job: [replace(one, stream=7) for one in job])


LOADS = (ONE_STREAM, st.integers(1_200, 5_000_000), st.integers(0, 11))


def played(timeline: Timeline) -> tuple[Graph, Blame]:
    """The graph of what is told of a trace, and its idle time as recorded."""
    whole = survey(timeline)
    links = link(whole.told)
    host = watch_host(whole.told, links, whole.left_out.hidden)
    graph = build(whole.told, links, host, line_up(whole.told, links, whole.steps))
    return graph, blame(graph, Calibration())


@drawn(40)
@given(*LOADS)
def test_loading_code_once_changes_neither_step_nor_causes(job: list[Do], us: int, place: int) -> None:
    launches = sum(one.what == "launch" for one in job)
    warm = played(first_calls(job))[1]
    cold = played(first_calls(job, place % launches, us * NS_PER_US))[1]
    step = warm.replay.step
    assert cold.replay.step == pytest.approx(step, rel=0.01, abs=LATENCY / 2)
    for cause, idle in warm.idle.items():
        assert cold.idle[cause] == pytest.approx(idle, abs=0.02 * step + LATENCY / 2)


@drawn(12)
@given(*LOADS)
def test_loading_code_once_changes_no_wall(job: list[Do], us: int, place: int) -> None:
    """At an edge, where readings of the same trace differ, it may tip between a cause and none."""
    launches = sum(one.what == "launch" for one in job)
    warm = decide(facts_of(first_calls(job)))
    cold = decide(facts_of(first_calls(job, place % launches, us * NS_PER_US)))
    alike = (cold.cause, cold.why_not) == (warm.cause, warm.why_not)
    assert alike or cold.cause in warm.between or warm.cause in cold.between


def named_idle(timeline: Timeline) -> float:
    """Idle time that some cause is blamed for, in all steps together."""
    graph, found = played(timeline)
    return (found.idle.total - found.idle[UNKNOWN]) * graph.steps


def without_first_rows(timeline: Timeline, share: float) -> Timeline:
    """The same without the device rows of its beginning; all that the host did is still there."""
    events, rows = timeline.events, timeline.rows(*DEVICE_KINDS)
    since = np.sort(events.start[rows])[int(share * (len(rows) - 1))]
    gone = rows[events.start[rows] < since]
    return replace(timeline, events=events.take(np.delete(np.arange(len(events)), gone)))


def without_marks(timeline: Timeline) -> Timeline:
    marks = timeline.events.kind == Kind.ANNOTATION
    return replace(timeline, events=timeline.events.take(np.flatnonzero(~marks)))


@drawn(67)
@given(ONE_STREAM, st.floats(0, 1), st.booleans())
def test_one_step_without_its_beginning_has_no_more_idle_time(
    job: list[Do], share: float, marked: bool
) -> None:
    whole = run(job, 1, 0) if marked else without_marks(run(job, 1, 0))
    cut = without_first_rows(whole, share)
    assume(survey(cut).steps.found_by == survey(whole).steps.found_by)  # else the counted steps are others
    assert named_idle(cut) <= named_idle(whole) + LATENCY


@drawn(33)
@given(ONE_STREAM, st.floats(0, 0.5))
def test_a_step_without_its_beginning_is_not_counted_beside_whole_ones(job: list[Do], share: float) -> None:
    whole = run(job, 5, 0)
    assert named_idle(without_first_rows(whole, share)) <= named_idle(whole) + LATENCY


def slice_of(queued_ms: float, gap_ms: float = 0.0) -> Timeline:
    """Three launches at once, of which the first runs `queued_ms` later and the last `gap_ms` after it."""
    book = Book()
    starts = [queued_ms, queued_ms + 1, queued_ms + 2 + gap_ms]
    for at, start in enumerate(starts):
        call = at * 10_000
        book._add(Kind.OP, "aten::mul", call, call + 5_000)
        book._add(Kind.RUNTIME, "cudaLaunchKernel", call, call + 4_000, correlation=at + 1)
        begin = max(int(start * MS), call + LATENCY)
        columns = {"correlation": at + 1, "device": 0, "stream": 7, "thread": 107}
        book._add(Kind.KERNEL, f"kernel_{at}", begin, begin + MS, **columns)
    return book.timeline()


def test_a_queue_behind_work_that_was_cut_away_is_no_idle_time() -> None:
    facts = facts_of(slice_of(400))
    assert facts.step == pytest.approx(3 * MS, rel=0.02)
    assert facts.whole.left_out.of(CUT_AWAY).length == pytest.approx(400 * MS, rel=0.001)
    assert facts.reading.likely.idle.total < 0.02 * facts.step
    document = examine(facts.run)
    assert document.quality.cut_away_ms == pytest.approx(400, rel=0.001)
    assert any("does not hold" in note for note in document.notes)


def windows(count: int, steps: int, pause: int, numbered: bool) -> Timeline:
    """Windows of a profiler that pauses in between: steps of ten kernels that the device is busy with."""
    book, now, correlation = Book(), 0, 0
    for window in range(count):
        for step in range(steps):
            began, free = now, now + LATENCY
            for _ in range(10):
                correlation += 1
                book._add(Kind.OP, "aten::mul", now, now + 5_000)
                book._add(Kind.RUNTIME, "cudaLaunchKernel", now, now + 4_000, correlation=correlation)
                columns = {"correlation": correlation, "device": 0, "stream": 7, "thread": 107}
                book._add(
                    Kind.KERNEL, f"kernel_{correlation if not numbered else 0}", free, free + MS, **columns
                )
                now, free = now + 10_000, free + MS
            now = free
            if numbered:
                book._add(Kind.ANNOTATION, f"ProfilerStep#{100 * window + step}", began, now)
        now += pause
    return book.timeline()


@given(st.integers(2, 4), st.integers(2, 4), st.integers(1, 100_000), st.booleans())
def test_what_a_profiler_did_not_record_is_of_no_step(
    count: int, steps: int, pause_ms: int, numbered: bool
) -> None:
    assume(numbered or pause_ms > 0.1 * 10 * count * steps)  # where no step is known, a pause must stand out
    facts = facts_of(windows(count, steps, pause_ms * MS, numbered))
    one = 10 * MS if numbered else 10 * MS * count * steps
    assert facts.step == pytest.approx(one, rel=0.02)
    assert facts.whole.left_out.of(NOT_RECORDED).length == (count - 1) * pause_ms * MS
    assert facts.spent_ms("host-work") < 0.01 * one / MS


def test_rows_missing_in_the_middle_stay_in_the_step_as_unknown() -> None:
    facts = facts_of(slice_of(0, gap_ms=5))
    assert len(facts.whole.left_out) == 0
    assert facts.step == pytest.approx(8 * MS, rel=0.02)
    assert facts.spent_ms(UNKNOWN) >= 5


def one_launch(length_ms: float, name: str = "cudaLaunchKernel", times: int = 1) -> Timeline:
    """Steps of five kernels of 1 ms, each launched in time; the first `times` launches take `length_ms`."""
    book = Book()
    for at in range(15):
        begin = book.now
        took = int(length_ms * MS) if at // 5 < times and at % 5 == 2 else 4_000
        book._add(Kind.OP, "aten::mul", begin, begin + took + 1_000)
        called = name if took > 4_000 else "cudaLaunchKernel"
        book._add(Kind.RUNTIME, called, begin, begin + took, correlation=at + 1)
        columns = {"correlation": at + 1, "device": 0, "stream": 7, "thread": 107}
        start = begin + took + 2_000
        book._add(Kind.KERNEL, f"kernel_{at % 5}", start, start + MS, **columns)
        book.now = start + MS
    for step in range(3):
        first = [row["start"] for row in book.rows if row["kind"] == Kind.OP][step * 5]
        book._add(Kind.ANNOTATION, f"ProfilerStep#{step}", first, first + 5 * MS)
    return book.timeline()


def test_only_the_first_launch_of_a_kernel_loads_it() -> None:
    assert survey(one_launch(50, times=1)).left_out.of(LOADING).length == pytest.approx(50 * MS, rel=0.01)
    assert survey(one_launch(50, times=2)).left_out.of(LOADING).length == pytest.approx(50 * MS, rel=0.01)
    assert survey(one_launch(0.5)).left_out.of(LOADING).length == pytest.approx(0.5 * MS, rel=0.01)
    assert survey(one_launch(0.04)).left_out.of(LOADING).length == 0  # a warm one, that takes a little longer


def test_a_launch_that_waits_before_a_full_queue_is_no_start_up() -> None:
    book = Book()
    for at in range(4):
        begin = at * 10_000 if at < 3 else 40_000
        took = 20 * MS if at == 3 else 4_000
        book._add(Kind.RUNTIME, "cudaLaunchKernel", begin, begin + took, correlation=at + 1)
        columns = {"correlation": at + 1, "device": 0, "stream": 7, "thread": 107}
        book._add(Kind.KERNEL, f"kernel_{at}", 20_000 + at * 10 * MS, 20_000 + (at + 1) * 10 * MS, **columns)
    assert len(survey(book.timeline()).left_out) == 0


COMPILES = {
    "j": (Kind.ANNOTATION, "entire_frame_compile: compile_inner, compile_id=0/0"),
    "r": (Kind.ANNOTATION, "entire_frame_compile: compile_inner, compile_id=0/1"),
    "b": (Kind.RUNTIME, "cudaStreamBeginCapture"),
    "i": (Kind.RUNTIME, "cudaGraphInstantiate"),
}


@pytest.mark.parametrize(
    ("cpu", "left_out_ms"),
    [
        ("jjjjjjo   ......o   ......o   ", 6),  # compiled for the first time
        ("jjjjjjo   jjjjjjo   jjjjjjo   ", 0),  # something new in every step: that is the step
        ("rrrrrro   ......o   ......o   ", 0),  # again: recompilation
        ("b....io   ......o   ......o   ", 6),  # a graph is captured
    ],
)
def test_what_is_compiled_or_captured_once_is_left_out(cpu: str, left_out_ms: int) -> None:
    steps = "|         |         |         "
    gpu = "      m         m         m   "
    left_out = survey(sketch(cpu=cpu, gpu=gpu, steps=steps, host=COMPILES)).left_out
    assert left_out.of(*START_UP).length == left_out_ms * MS


def test_a_trace_of_start_up_alone_gets_no_wall() -> None:
    book = Book()
    for at in range(6):
        begin = book.now
        book._add(Kind.OP, "aten::mul", begin, begin + 31 * MS)
        book._add(Kind.RUNTIME, "hipLaunchKernel", begin, begin + 30 * MS, correlation=at + 1)
        columns = {"correlation": at + 1, "device": 0, "stream": 7, "thread": 107}
        book._add(Kind.KERNEL, f"kernel_{at}", begin + 30 * MS, begin + 31 * MS, **columns)
        book.now = begin + 32 * MS
    facts = facts_of(book.timeline())
    assert (decide(facts).cause, decide(facts).why_not) == (None, "start-up")
    document = examine(facts.run)
    assert "recorded during start-up" in document.wall.sentence
    assert "after warm-up" in document.wall.sentence
    assert document.quality.start_up_ms == pytest.approx(180, rel=0.01)


def begins_with(kind: str, us: int) -> Timeline:
    """Forward passes of unlike length, nothing marked, after one kind of start-up: no step but the span."""
    book = Book()

    def launch(name: str, kernel: str, before: int = 0) -> None:
        op = book.open(name, [[4096, 4096], [4096, 4096]], ["float", "float"])
        book.now += before
        book.kernel(kernel, 40)
        book.close(op)

    def call(name: str, took: int) -> None:
        book._add(Kind.RUNTIME, name, book.now, book.now + took)
        book.now += took

    launch("aten::mul", "kernel_0")
    took = us * NS_PER_US
    if kind == "memory":
        call("cudaFree", took // 2)
        for _ in range(10):
            call("cudaMalloc", took // 20)
    elif kind == "module":
        call("cuModuleLoadData", took)
    elif kind == "context":
        call("cudaStreamCreateWithPriority", took)
    elif kind == "library":
        launch("aten::mm", "kernel_1", took)
    for number in range(60):
        launch("aten::mm" if number % 2 else "aten::mul", f"kernel_{number**2 % 7}")
        book.now += 20_000
    return book.timeline()


@drawn(20)
@given(st.sampled_from(["memory", "module", "context", "library"]), st.integers(1_200, 200_000))
def test_first_calls_are_no_part_of_the_step_and_no_wall(kind: str, us: int) -> None:
    warm, cold = facts_of(begins_with("", 0)), facts_of(begins_with(kind, us))
    assert cold.step == pytest.approx(warm.step, rel=0.03)
    for cause in ("allocator", "recompilation", "host-work"):
        assert cold.spent_ms(cause) == pytest.approx(warm.spent_ms(cause), abs=0.05)
    assert cold.whole.start_up_ns == pytest.approx(us * NS_PER_US, rel=0.01)
    found = decide(cold)
    assert found.cause == decide(warm).cause or (found.cause, found.why_not) == (None, "start-up")


def test_more_start_up_than_a_wall_gives_back_hides_it() -> None:
    """It weighs as what is unknown does: there is no share of the trace at which that changes."""
    warm = facts_of(begins_with("", 0))
    cause = decide(warm).cause or ""
    gains = [warm.recoverable(scenario)[cause] for scenario in warm.reading.scenarios]
    for most, told in ((0.5 * min(gains), True), (1.5 * max(gains), False)):
        facts = facts_of(begins_with("module", int(most / NS_PER_US)))
        assert (decide(facts).cause is not None) == told


def test_memory_that_later_steps_do_not_ask_for_is_start_up() -> None:
    gpu, steps = " kk" * 5, "|  " * 5
    kept = survey(sketch("mo mo  o  o  o ", gpu, steps)).left_out
    assert kept.of("memory").length == 2 * MS
    for cpu in ("mo mo mo mo mo ", " o  o mo  o mo "):  # in every step, or now and then
        assert len(survey(sketch(cpu, gpu, steps)).left_out.of("memory")) == 0


def test_an_op_whose_later_calls_take_as_long_is_not_set_up() -> None:
    book = Book()
    for _ in range(6):
        op = book.open("aten::searchsorted")
        book.now += 3 * MS
        book.kernel("kernel", 100)
        book.close(op)
    assert len(survey(book.timeline()).left_out) == 0
