"""Steps that a job marks itself, and ranges that are none."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from examples import drawn
from findwall.model.events import COLUMN_TYPES, Details, Events, Header, Kind, ReadQuality, Timeline
from findwall.step.links import link
from findwall.step.recurring import find_period, recurring_ranges
from findwall.step.step_bounds import find_steps

Row = tuple[int, int, Kind, str, int]  # start, end, kind, name, correlation


def timeline_of(rows: Sequence[Row]) -> Timeline:
    names = list(dict.fromkeys(row[3] for row in rows))
    columns = {name: np.full(len(rows), -1, dtype) for name, dtype in COLUMN_TYPES.items() if name != "kind"}
    columns["start"] = np.array([row[0] for row in rows], np.int64)
    columns["end"] = np.array([row[1] for row in rows], np.int64)
    columns["kind"] = np.array([row[2] for row in rows], np.uint8)
    columns["name"] = np.array([names.index(row[3]) for row in rows], np.int32)
    columns["correlation"] = np.array([row[4] for row in rows], np.int64)
    on_device = columns["kind"] == Kind.KERNEL
    columns["thread"] = on_device.astype(np.int32)
    columns["process"] = on_device.astype(np.int32)
    columns["device"] = np.where(on_device, 0, -1).astype(np.int32)
    columns["stream"] = np.where(on_device, 7, -1).astype(np.int64)
    threads = [(0, "1"), (1, "7")]
    return Timeline("a", Events(**columns), names, ["1", "0"], threads, Details(), Header(), ReadQuality())


def launched(at: int, number: int, kernel: str) -> list[Row]:
    return [
        (at, at + 1, Kind.RUNTIME, "cudaLaunchKernel", number),
        (at + 2, at + 5, Kind.KERNEL, kernel, number),
    ]


def job(steps: int, ranges: Sequence[tuple[int, int, str]], outside: bool = False) -> Timeline:
    """Steps of 100 with four launches each, and ranges in each; `{}` in a name is the step's number."""
    rows: list[Row] = []
    for step in range(steps):
        begin = 100 * step
        rows += [
            (begin + start, begin + end, Kind.ANNOTATION, name.format(step), -1)
            for start, end, name in ranges
        ]
        for at in range(4):
            # Another kernel in every step: no period to be found.
            rows += launched(begin + 10 + 20 * at, 1 + 10 * step + at, f"kernel {step} {at}")
        if outside:
            rows += launched(begin + 96, 8 + 10 * step, f"update {step}")
    return timeline_of(rows)


def found(timeline: Timeline) -> list[str]:
    rows = recurring_ranges(timeline, link(timeline), 0)
    return [timeline.name_of(row) for row in rows.tolist()]


def test_numbered_steps() -> None:
    timeline = job(4, [(0, 95, "step {}")], outside=True)
    assert found(timeline) == ["step 0", "step 1", "step 2", "step 3"]
    steps = find_steps(timeline, link(timeline))
    assert (steps.found_by, steps.count) == ("range", 4)
    assert "step 0 to step 3" in steps.notes[0]


def test_a_range_of_one_name_that_holds_everything() -> None:
    assert found(job(4, [(0, 95, "forward and backward")])) == ["forward and backward"] * 4
    assert found(job(4, [(0, 95, "forward and backward")], outside=True)) == []


def test_layers_are_no_steps() -> None:
    layers = [(0, 45, "layer.0"), (45, 95, "layer.1")]
    assert found(job(4, layers)) == []
    assert found(job(4, [(0, 95, "layer.{}")])) == []
    assert found(job(4, [*layers, (0, 95, "iteration {}")])) == [f"iteration {step}" for step in range(4)]


def test_two_are_chance_and_what_overlaps_is_no_step() -> None:
    assert found(job(2, [(0, 95, "step {}")])) == []
    assert found(job(4, [(0, 120, "step {}")])) == []


def test_the_outermost_step_counts() -> None:
    assert found(job(3, [(0, 95, "train step {}"), (5, 80, "micro step {}")])) == [
        "train step 0",
        "train step 1",
        "train step 2",
    ]


def test_an_optimizer_s_step_is_none() -> None:
    assert found(job(4, [(0, 95, "optimizer step")])) == []


PARENTS = {
    "op": (Kind.OP, "my::execute"),
    "optimizer": (Kind.ANNOTATION, "Optimizer.step#Muon.step"),
    "execution": (Kind.ANNOTATION, "ExecutionContext::enqueue"),
    "module": (Kind.PYTHON, "nn.Module: Transformer_0"),
}


def parts(count: int, work: int, name: str, outside: int = 0, before: bool = False) -> list[Row]:
    """Numbered ranges, each with the same two kernels of so much work, and one kernel that none of them
    launches."""
    rows: list[Row] = launched(98, 1, "other") if outside and before else []
    for part in range(count):
        begin = 100 + 100 * part
        rows.append((begin, begin + 99, Kind.ANNOTATION, name.format(part), -1))
        for at in (0, 1):
            rows += launched(begin + 10 + 40 * at, 10 + 2 * part + at, f"kernel {at}")
    rows = [(*row[:1], row[0] + work, *row[2:]) if row[2] == Kind.KERNEL else row for row in rows]
    rows += launched(100 * count + 105, 9, "other") if outside and not before else []
    return [(*row[:1], row[0] + outside, *row[2:]) if row[3] == "other" else row for row in rows]


@drawn(60)
@given(
    st.integers(3, 40),
    st.integers(1, 30),
    st.integers(0, 3000),
    st.booleans(),
    st.sampled_from(["step {}", "request {}", "token {}"]),
)
def test_ranges_are_steps_only_if_they_hold_nearly_all_work(
    count: int, work: int, outside: int, before: bool, name: str
) -> None:
    timeline = timeline_of(parts(count, work, name, outside, before))
    held = 2 * count * work / (2 * count * work + outside)
    assert (len(found(timeline)) == count) == (held >= 0.9)
    if outside > 0 and held < 0.9:
        assert find_steps(timeline, link(timeline)).found_by == "span"


@drawn(20)
@given(st.integers(3, 40), st.sampled_from(sorted(PARENTS)), st.sampled_from(["step {}", "request {}"]))
def test_parts_of_one_call_are_no_steps(count: int, parent: str, name: str) -> None:
    """Neither by their ranges nor by their kernels, which repeat."""
    rows = parts(count, 5, name)
    alone = timeline_of(rows)
    assert len(found(alone)) == count and find_period(alone, link(alone), 0) is not None
    kind, called = PARENTS[parent]
    timeline = timeline_of([(50, 150 + 100 * count, kind, called, -1), *rows])
    assert find_steps(timeline, link(timeline)).found_by == "span"


def test_the_host_s_time_outside_counts_too() -> None:
    """Four ranges with nearly all of the work, and an update whose small kernels take the host as long."""
    rows = parts(4, 30, "batch {}")
    late = [row for at in range(20) for row in launched(510 + 25 * at, 50 + at, "other")]
    late = [(*row[:1], row[0] + 1, *row[2:]) if row[2] == Kind.KERNEL else row for row in late]
    assert len(found(timeline_of(rows))) == 4
    assert found(timeline_of([*rows, *late])) == []


def test_repeats_inside_one_graph_launch_are_no_steps() -> None:
    rows: list[Row] = [(0, 5, Kind.RUNTIME, "cudaGraphLaunch", 1)]
    rows += [(10 * at, 10 * at + 9, Kind.KERNEL, f"kernel {at % 4}", 1) for at in range(1, 41)]
    timeline = timeline_of(rows)
    assert find_steps(timeline, link(timeline)).found_by == "span"
