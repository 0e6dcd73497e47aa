"""Kernels of a replayed graph get the op of their capture: the right one, or none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from book import Book
from examples import drawn
from findwall.model.catalogue import KERNEL_CLASSES
from findwall.model.events import DEVICE_KINDS, Kind, Timeline
from findwall.model.machine import UNKNOWN_CEILINGS
from findwall.readers import open_run
from findwall.step.captured_ops import align, captured_launches, evenly, noted_replays, with_captured_ops
from findwall.step.kernel_classes import classify, op_class
from findwall.step.links import is_replayed, link
from findwall.work.kernel_table import kernel_table

# An op, its inputs, and the kernels it launches.
ADD = ("aten::add", "void at::native::vectorized_elementwise_kernel<4, CUDAFunctor_add<float>>()")
MUL = ("aten::mul", "void at::native::vectorized_elementwise_kernel<4, MulFunctor<float>>()")
NORM = ("aten::native_layer_norm", "void at::native::vectorized_layer_norm_kernel<float, float>()")
SOFTMAX = ("aten::_softmax", "void softmax_warp_forward<float, float, float, 11>()")
MM = ("aten::mm", "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT")
SLICES = "void cublasLt::splitKreduce_kernel<32, 16>()"
ALL = (ADD, MUL, NORM, SOFTMAX, MM)
Layer = tuple[tuple[str, str], int]  # what, and how large


def capture_of(layers: list[Layer], calls: bool, names: bool, again: list[Layer] | None = None) -> Timeline:
    """As a profiler recorded it: with the launches, with the kernels' names (HIP), or the ops alone."""
    book = Book()
    for captured in (layers, again):
        if captured is None:
            continue
        if calls:
            _call(book, "cudaStreamBeginCapture")
        for (op, kernel), size in captured:
            row = book.open(op, [[size, 64], [64, 64]], ["float", "float"])
            if calls:
                _call(book, "cudaLaunchKernel", kernel if names else None)
            book.close(row)
        if calls:
            _call(book, "cudaStreamEndCapture")
    return book.timeline()


def _call(book: Book, name: str, kernel: str | None = None) -> None:
    extra = {"extra": book._intern(book.extras, {"kernel": kernel})} if kernel else {}
    book.correlation += 1
    book._add(Kind.RUNTIME, name, book.now, book.now + 1, correlation=book.correlation, **extra)
    book.now += 2


def replay_of(*replays: list[str]) -> Timeline:
    """Each list of kernels from one graph launch."""
    book = Book()
    for kernels in replays:
        book.correlation += 1
        book._add(Kind.RUNTIME, "cudaGraphLaunch", book.now, book.now + 5, correlation=book.correlation)
        book.now += 10
        for name in kernels:
            columns = {"correlation": book.correlation, "stream": 7, "thread": 107, "device": 0}
            book._add(Kind.KERNEL, name, book.now, book.now + 1000, **columns)
            book.now += 1001
    return book.timeline()


def ops_given(timeline: Timeline) -> list[tuple[str, int] | None]:
    """Of each kernel, in order: its op and the size of that op's first input."""
    links = link(timeline)
    found: list[tuple[str, int] | None] = []
    for row in timeline.rows(*DEVICE_KINDS).tolist():
        op = int(links.op[row])
        inputs = timeline.inputs_of(op) if op >= 0 else None
        found.append((timeline.name_of(op), inputs.dims[0][0] if inputs else -1) if op >= 0 else None)
    return found


def test_a_replayed_kernel_gets_the_op_and_shapes_of_its_launch() -> None:
    layers: list[Layer] = [(MM, 8), (ADD, 16), (NORM, 32)]
    replay = replay_of([kernel for (_, kernel), _ in layers], [kernel for (_, kernel), _ in layers])
    for calls, names in ((True, True), (True, False), (False, False)):
        timeline = with_captured_ops(replay, [capture_of(layers, calls, names)])
        wanted = [(op, size) for (op, _), size in layers]
        assert ops_given(timeline) == wanted * 2
        kernels = kernel_table(timeline, link(timeline), UNKNOWN_CEILINGS)
        assert kernels.modelled.all()
        assert kernels.bytes[:3].tolist() == kernels.bytes[3:].tolist()  # a replay does the op's whole work


def test_without_a_capture_nothing_changes() -> None:
    replay = replay_of([MM[1], ADD[1]])
    assert with_captured_ops(replay, []) is replay
    other = capture_of([(SOFTMAX, 8)], calls=True, names=True)
    assert with_captured_ops(replay, [other]) is replay


def test_eager_kernels_keep_their_ops() -> None:
    book = Book()
    book.op("aten::mm", [[4, 4], [4, 4]], ["float", "float"], MM[1])
    eager = book.timeline()
    capture = capture_of([(MM, 8)], calls=True, names=True)
    assert with_captured_ops(eager, [capture]) is eager


def test_the_capture_whose_kernels_match_is_taken() -> None:
    small: list[Layer] = [(MM, 1), (ADD, 1)]
    large: list[Layer] = [(("aten::mm", "nvjet_sm90_tst_64x8_64x16_4x1_v_bz_TNT"), 32), (ADD, 32)]
    replay = replay_of([kernel for (_, kernel), _ in large])
    captures = [capture_of(layers, True, True) for layers in (small, large)]
    assert ops_given(with_captured_ops(replay, captures)) == [("aten::mm", 32), ("aten::add", 32)]


def test_captures_that_fit_equally_well_give_ops_but_no_shapes() -> None:
    captures = [capture_of([(MM, size), (ADD, size)], True, True) for size in (16, 32)]
    replay = replay_of([MM[1], ADD[1]])
    assert ops_given(with_captured_ops(replay, captures)) == [("aten::mm", -1), ("aten::add", -1)]
    known = with_captured_ops(replay, captures, noted_replays(replay, [1]))
    assert ops_given(known) == [("aten::mm", 32), ("aten::add", 32)]
    for unknown in ([-1], [0, -1]):  # a graph whose capture nobody saw; more notes than launches
        found = with_captured_ops(replay, captures, noted_replays(replay, unknown))
        assert ops_given(found) == [None, None]
    assert noted_replays(replay, [0, 1]) == {}


def test_a_product_in_slices_is_one_op() -> None:
    capture = capture_of([(MM, 8), (ADD, 8), (MM, 16)], calls=False, names=False)
    replay = replay_of([MM[1], SLICES, ADD[1], MM[1]])
    assert ops_given(with_captured_ops(replay, [capture])) == [
        ("aten::mm", 8),
        ("aten::mm", 8),
        ("aten::add", 8),
        ("aten::mm", 16),
    ]


def test_products_that_are_alike_are_done_once_each() -> None:
    """Whose slices are whose does not matter to the order, but each op does its own work."""
    for count in (2, 3, 4, 7):
        layers: list[Layer] = [(ADD, 8), *[(MM, 64)] * count, (MUL, 8)]
        kernels = [ADD[1], *[MM[1], SLICES] * count, MUL[1]]
        found = with_captured_ops(replay_of(kernels), [capture_of(layers, calls=False, names=False)])
        op = link(found).op[found.rows(*DEVICE_KINDS)].tolist()
        pairs = list(zip(op[1:-1:2], op[2:-1:2], strict=True))
        assert all(product == slices for product, slices in pairs)
        assert len(set(pairs)) == count


def test_where_two_ops_fit_a_kernel_gets_none() -> None:
    """Three products, two kernels: which of the products had none cannot be told."""
    capture = capture_of([(NORM, 8), (MM, 8), (MM, 16), (MM, 32), (ADD, 8)], calls=False, names=False)
    replay = replay_of([NORM[1], MM[1], MM[1], ADD[1]])
    given = ops_given(with_captured_ops(replay, [capture]))
    assert given[0] == ("aten::native_layer_norm", 8) and given[3] == ("aten::add", 8)
    assert given[1] is None and given[2] is None


def test_ops_that_only_make_views_launch_nothing() -> None:
    book = Book()
    outer = book.open("aten::linear", [[8, 8]], ["float"])
    view = book.open("aten::t", [[8, 8]], ["float"])
    book.close(view)
    inner = book.open("aten::addmm", [[8, 8]], ["float"])
    book.close(inner)
    book.close(outer)
    (launches,) = captured_launches(book.timeline())
    assert [launches.timeline.name_of(row) for row in launches.op.tolist()] == ["aten::addmm"]


layers_drawn = st.lists(st.tuples(st.sampled_from(ALL), st.sampled_from((8, 16, 32))), max_size=12)


@given(layers=layers_drawn, calls=st.booleans(), names=st.booleans(), replays=st.integers(1, 3))
@drawn(33)
def test_equal_sequences_match_whole(layers: list[Layer], calls: bool, names: bool, replays: int) -> None:
    kernels = [kernel for (_, kernel), _ in layers]
    timeline = with_captured_ops(replay_of(*[kernels] * replays), [capture_of(layers, calls, names)])
    assert ops_given(timeline) == [(op, size) for (op, _), size in layers] * replays


@given(
    layers=layers_drawn,
    kernels=st.lists(
        st.sampled_from([kernel for _, kernel in ALL] + [SLICES, "void mystery()"]), max_size=14
    ),
    calls=st.booleans(),
    names=st.booleans(),
)
@drawn(100)
def test_no_kernel_gets_an_op_of_another_class(
    layers: list[Layer], kernels: list[str], calls: bool, names: bool
) -> None:
    """Whatever is missing or extra on either side."""
    timeline = with_captured_ops(replay_of(kernels), [capture_of(layers, calls, names)])
    for kernel, given_op in zip(kernels, ops_given(timeline), strict=True):
        told = classify(kernel, None, Kind.KERNEL)
        if given_op is not None and told != "other":
            assert told == op_class(given_op[0])


@given(
    kept=st.lists(st.booleans(), min_size=1, max_size=14),
    extra=st.lists(st.integers(0, 13), max_size=4),
    data=st.data(),
)
@drawn(67)
def test_with_names_a_kernel_gets_its_own_op_or_none(kept: list[bool], extra: list[int], data: Any) -> None:
    """Every kernel of the capture has a name of its own: what is left of them is found, whatever else ran."""
    layers: list[Layer] = [(("aten::mm", f"gemm_{at}"), at + 1) for at in range(len(kept))]
    kernels = [(f"gemm_{at}", at + 1) for at, there in enumerate(kept) if there]
    for at in extra:
        kernels.insert(min(at, len(kernels)), ("memset_of_the_runtime", 0))
    timeline = with_captured_ops(replay_of([name for name, _ in kernels]), [capture_of(layers, True, True)])
    for (name, size), given_op in zip(kernels, ops_given(timeline), strict=True):
        assert given_op == (("aten::mm", size) if name.startswith("gemm_") else None)


@given(
    scores=st.lists(st.lists(st.integers(-2, 3), min_size=5, max_size=5), min_size=1, max_size=6),
    several=st.lists(st.booleans(), min_size=5, max_size=5),
)
@drawn(100)
def test_an_alignment_keeps_the_order(scores: list[list[int]], several: list[bool]) -> None:
    table = np.array(scores, np.int32)
    table[table <= 0] = -(1 << 20)
    found = align(table, np.arange(5), np.array(several))
    used = found[found >= 0]
    assert (np.diff(used) >= 0).all()
    for row, column in enumerate(found.tolist()):
        assert column < 0 or table[row, column] > 0
    shared = [column for column in set(used.tolist()) if (used == column).sum() > 1]
    assert all(several[column] for column in shared)


@given(
    st.lists(st.tuples(st.integers(1, 3), st.booleans()), min_size=1, max_size=6),
    st.lists(st.integers(0, 2), min_size=1, max_size=12),
    st.data(),
)
@drawn(100)
def test_an_even_share_keeps_the_order_and_what_is_done(
    runs: list[tuple[int, bool]], kernels: list[int], data: Any
) -> None:
    """Columns in runs that are alike; rows anywhere among them, in order, some of them nowhere."""
    alike = np.repeat(np.arange(len(runs)), [length for length, _ in runs])
    place = sorted(
        data.draw(st.lists(st.integers(0, len(alike) - 1), min_size=len(kernels), max_size=len(kernels)))
    )
    position = np.array([-1 if data.draw(st.integers(0, 4)) == 0 else at for at in place], np.int64)
    found = evenly(position, alike, np.array(kernels))
    assert ((found < 0) == (position < 0)).all()
    assert (alike[found[found >= 0]] == alike[position[position >= 0]]).all()
    assert (np.diff(found[found >= 0]) >= 0).all()


def test_captured_ops_stand_at_no_time() -> None:
    """They lengthen neither the trace nor any host thread."""
    layers: list[Layer] = [(MM, 8), (ADD, 16)]
    replay = replay_of([kernel for (_, kernel), _ in layers])
    timeline = with_captured_ops(replay, [capture_of(layers, True, True)])
    before = len(replay.events)
    assert (timeline.events.kind[before:] == Kind.CAPTURED).all()
    assert timeline.events.end.max() == replay.events.end.max()
    assert set(timeline.events.thread[before:]).isdisjoint(replay.events.thread)
    links = link(timeline)
    assert is_replayed(timeline, links, timeline.rows(*DEVICE_KINDS)).all()
    shuffled = replace(timeline, events=timeline.events.take(np.arange(len(timeline.events))[::-1]))
    assert sorted(map(str, ops_given(shuffled))) == sorted(map(str, ops_given(timeline)))


def test_a_capture_file_may_hold_several_captures() -> None:
    both = capture_of([(MM, 8)], True, True, again=[(ADD, 16), (MM, 32)])
    assert [len(launches) for launches in captured_launches(both)] == [1, 2]
    replay = replay_of([ADD[1], MM[1]], [MM[1]])
    assert ops_given(with_captured_ops(replay, [both])) == [
        ("aten::add", 16),
        ("aten::mm", 32),
        ("aten::mm", 8),
    ]


def test_a_served_decode_step_has_the_ops_of_its_capture(shared: Path) -> None:
    (rank,) = open_run([shared / "traces" / "mi300x_sglang_decode"], workers=1).ranks
    assert rank.timeline is not None and len(rank.captures) == 1
    timeline = with_captured_ops(rank.timeline, rank.captures)
    links = link(timeline)
    rows = timeline.rows(Kind.KERNEL)
    captured = (links.op[rows] >= 0) & (timeline.events.kind[np.maximum(links.op[rows], 0)] == Kind.CAPTURED)
    time = timeline.events.duration[rows]
    assert time[captured].sum() >= 0.98 * time.sum()
    kernels = kernel_table(timeline, links, UNKNOWN_CEILINGS)
    products = kernels.class_index == KERNEL_CLASSES.index("matmul")
    assert products.sum() == 145 and kernels.modelled[products].all()
