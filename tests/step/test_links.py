"""Every device row finds its call and its op, whatever the order of the file."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from book import Book
from findwall.model.events import DEVICE_KINDS, Events, Kind, Timeline
from findwall.readers import read_trace
from findwall.step.links import link
from sketch import sketch

CPU = """
AAAAAAA    dddd
ooo  o
"""
GPU = "kkMMkk  hh"
FIXTURES = Path(__file__).parents[1] / "fixtures"


def joined(first: Timeline, second: Timeline) -> Timeline:
    """Two processes in one file; their correlation ids are the same numbers."""
    shift = len(first.names)
    moved = {
        "process": second.events.process + 1,
        "thread": second.events.thread + 100,
        "device": np.where(second.events.device >= 0, second.events.device + 1, -1).astype(np.int32),
        "name": (second.events.name + shift).astype(np.int32),
    }
    other = replace(second.events, **moved)
    columns = {
        name: np.concatenate([getattr(first.events, name), getattr(other, name)])
        for name in Events.__struct_fields__
    }
    return replace(first, events=Events(**columns), names=[*first.names, *second.names], processes=["a", "b"])


def named(timeline: Timeline, rows: np.ndarray) -> list[str | None]:
    return [timeline.name_of(row) if row >= 0 else None for row in rows.tolist()]


def by_device(timeline: Timeline) -> list[tuple[str, str | None, str | None]]:
    """(kernel, its call, its op) in device order."""
    links = link(timeline)
    rows = timeline.rows(*DEVICE_KINDS)
    rows = rows[np.lexsort((timeline.events.start[rows], timeline.events.device[rows]))]
    return list(
        zip(
            named(timeline, rows),
            named(timeline, links.launch[rows]),
            named(timeline, links.op[rows]),
            strict=True,
        )
    )


def test_kernels_find_the_op_around_their_call() -> None:
    timeline = sketch(cpu="oo  c", gpu="kkmm hh")
    assert [(call, op) for _, call, op in by_device(timeline)] == [
        ("cudaLaunchKernel", "aten::mul"),
        ("cudaLaunchKernel", "aten::mm"),
        ("cudaMemcpyAsync", "aten::copy_"),
    ]


@pytest.mark.parametrize(("lost", "counted"), [([0], 0), ([0, 1], 0), ([1], 1), ([0, 2], 1), ([0, 1, 2], 3)])
def test_kernels_without_a_launch_are_counted_save_those_in_front(lost: list[int], counted: int) -> None:
    """What was queued before the recording began is in every recording of a job that runs ahead."""
    timeline = sketch(cpu="ooo", gpu="  kmk")
    correlation = timeline.events.correlation.copy()
    correlation[timeline.rows(*DEVICE_KINDS)[lost]] = -1
    links = link(replace(timeline, events=replace(timeline.events, correlation=correlation)))
    assert links.kernels_without_launch == counted


def test_a_launch_whose_kernel_is_missing_is_counted() -> None:
    assert link(sketch(cpu="oo", gpu="kk")).launches_without_kernel == 1


@given(st.randoms(use_true_random=False))
def test_the_files_order_does_not_matter(random) -> None:  # type: ignore[no-untyped-def]
    timeline = sketch(cpu=CPU, gpu=GPU)
    order = list(range(len(timeline.events)))
    random.shuffle(order)
    shuffled = replace(timeline, events=timeline.events.take(np.array(order)))
    assert by_device(shuffled) == by_device(timeline)


def test_merged_processes_keep_their_own_calls() -> None:
    """Both files count their correlation ids from the same number."""
    first = sketch(cpu="oo", gpu="kkK")
    second = sketch(cpu="  oo", gpu="  mmM")
    ops = [op for _, _, op in by_device(joined(first, second))]
    assert ops == ["aten::mul", "aten::mul", "aten::mm", "aten::mm"]


def test_one_id_for_all_pairs_rows_and_calls_in_order() -> None:
    timeline = sketch(cpu="ooo", gpu=" kkkKKKkkk")
    events = timeline.events
    same = np.where(events.correlation > 0, 7, events.correlation)
    links = link(replace(timeline, events=replace(events, correlation=same)))
    rows = timeline.rows(Kind.KERNEL)
    assert links.launch[rows].tolist() == link(timeline).launch[rows].tolist()
    assert links.ambiguous == 3 and link(timeline).ambiguous == 0


def test_a_graph_launch_owns_all_its_kernels() -> None:
    timeline = sketch(cpu="o", gpu=" kKkK")
    events = timeline.events
    device = timeline.rows(*DEVICE_KINDS)
    call = timeline.rows(Kind.RUNTIME)[0]
    correlation, node = events.correlation.copy(), events.graph_node.copy()
    correlation[device] = events.correlation[call]
    node[device] = np.arange(1, len(device) + 1)
    replayed = replace(timeline, events=replace(events, correlation=correlation, graph_node=node))
    links = link(replayed)
    assert set(links.launch[device].tolist()) == {int(call)}
    assert links.kernels_without_launch == 0


def test_parents_are_the_innermost_open_rows() -> None:
    timeline = sketch(cpu=" AAAA\n  oo\n", gpu="  kK")
    links = link(timeline)
    row = int(links.launch[timeline.rows(Kind.KERNEL)[0]])
    assert [timeline.name_of(one).split(":")[0] for one in links.ancestors(row)] == [
        "aten",
        "autograd",
        "ProfilerStep#0",
    ]
    assert links.backward[row]


@pytest.mark.parametrize("cpu", ["", "nnn"])
def test_nothing_to_link_is_no_error(cpu: str) -> None:
    links = link(sketch(cpu=cpu, gpu="k"))
    assert links.kernels_without_launch == 1


def backward_of(book: Book, node: str, sequence: int) -> int:
    """A node of the backward pass with one kernel; the row of the op that launches it."""
    engine = book.open(f"autograd::engine::evaluate_function: {node}", sequence=sequence)
    inner = book.open("aten::mul")
    book.kernel("mul_kernel")
    book.close(inner)
    book.close(engine)
    return inner


def test_the_last_op_with_a_nodes_number_is_its_forward_op() -> None:
    book = Book()
    book.op("aten::ones_like", [], [], "fill_kernel", sequence=7)  # makes no node: the number is still free
    around = book.open("aten::linear", sequence=7)
    made = book.open("aten::addmm", sequence=7)
    book.kernel("gemm_kernel")
    book.close(made)
    book.close(around)
    book.op("aten::relu", [], [], "relu_kernel", sequence=8)
    inner = backward_of(book, "AddmmBackward0", 7)
    unknown = backward_of(book, "MulBackward0", 5)
    beyond = backward_of(book, "MulBackward0", 9)
    forward = link(book.timeline()).forward
    assert forward[inner] == made
    assert forward[unknown] == -1 and forward[beyond] == -1  # their forward pass was not recorded
    assert forward[made] == -1 and forward[around] == -1


@pytest.mark.parametrize("name", ["eager_training", "jobs/checkpointed_blocks"])
def test_a_recorded_node_finds_the_op_it_is_named_after(name: str) -> None:
    timeline = read_trace(FIXTURES / f"{name}.json.gz")
    links = link(timeline)
    nodes = np.flatnonzero(links.backward & (timeline.events.sequence >= 0) & (links.forward >= 0))
    named_alike = 0
    for row in nodes.tolist():
        node = re.search(r": (\w+)Backward0$", timeline.name_of(row))
        if node is not None:
            made = timeline.name_of(int(links.forward[row])).removeprefix("aten::")
            assert made.replace("_", "") == node[1].lower()
            named_alike += 1
    assert named_alike > 100
