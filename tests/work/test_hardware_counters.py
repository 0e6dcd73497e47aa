"""Counters settle the regime of kernels whose shapes are not known, and only where they are beyond doubt."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from book import Book
from examples import drawn
from findwall.examine import examine
from findwall.facts.facts import Facts
from findwall.machine.hardware import table_ceilings
from findwall.model.events import DEVICE_KINDS, Kind, Timeline
from findwall.model.machine import Counters, Sampled, Telemetry
from findwall.model.measured_run import Run, StepTimes
from findwall.model.ncu_kernel import Dims, NcuKernel, NcuReport
from findwall.step.links import link
from findwall.work.hardware_counters import match, name_words
from findwall.work.kernel_table import kernel_table
from findwall.work.work_facts import Matched
from sketch import facts_of

H200 = table_ceilings("NVIDIA H200")
PRODUCT = "nvjet_sm90_tst_64x8_64x16_4x1_v_bz_splitK_TNT"
STEP_MS = 10.0


def replayed(unknown_us: float = 9000.0, known_us: float = 0.0, kernels: int = 90) -> Timeline:
    """Three steps of one graph launch each; known products beside it read 4096 by 4096 bf16 weights."""
    book = Book()
    for step in range(3):
        mark = book.open(f"ProfilerStep#{step}", kind=Kind.ANNOTATION)
        began = book.now
        for _ in range(10 if known_us else 0):
            book.op(
                "aten::mm",
                [[1, 4096], [4096, 4096]],
                ["c10::BFloat16", "c10::BFloat16"],
                "nvjet_known",
                known_us / 10,
            )
        book.correlation += 1
        call, correlation = book.now, book.correlation
        book._add(Kind.RUNTIME, "cudaGraphLaunch", call, call + 5_000, correlation=correlation)
        book.now += 10_000
        for _ in range(kernels):
            length = int(unknown_us * 1000 / kernels)
            columns = {"correlation": correlation, "stream": 7, "thread": 107, "device": 0}
            book._add(Kind.KERNEL, PRODUCT, book.now, book.now + length, **columns)
            book.now += length + 1
        book.now = max(book.now, began + int(STEP_MS * 1e6))
        book.close(mark)
    return book.timeline()


def counted(gpm: Counters | None, timeline: Timeline | None = None, **said: Any) -> Facts:
    telemetry = Telemetry(gpm=gpm, samples=said.pop("samples", 20), **said)
    times = StepTimes((STEP_MS / 1e3,) * 30, "measured")
    return facts_of(timeline or replayed(), step_times=times, telemetry=telemetry)


def use(dram: float, tensor: float, vector: float = 5.0) -> Counters:
    return Counters(sm=90.0, dram=dram, tensor=tensor, fp16=0.0, fp32=vector, fp64=0.0)


def test_a_decode_from_graphs_stands_at_the_memory_roof() -> None:
    facts = counted(use(dram=84.0, tensor=10.0), replayed(unknown_us=9800.0))
    assert facts.counted is not None and facts.counted.cause == "memory-roof"
    assert facts.share("memory-roof") == pytest.approx(0.98, abs=0.01)
    assert facts.share("unknown") < 0.05
    run = Run("run-folder", ("run",), (facts.rank,))
    document = examine(run, ceilings=H200)
    assert (document.wall.wall, document.wall.cause) == ("bandwidth", "memory-roof")
    (row,) = [row for row in document.budget if row.cause == "memory-roof"]
    assert "DRAM counter" in row.evidence[0].text and "without shapes" in row.evidence[0].text


def test_busy_tensor_cores_are_at_the_roof() -> None:
    facts = counted(use(dram=15.0, tensor=75.0))
    assert facts.counted is not None and facts.counted.cause == "at-the-roof"
    assert facts.share("at-the-roof") > 0.85


@pytest.mark.parametrize(("kernels", "cause"), [(90, "slow-kernels"), (1500, "launch-bound")])
def test_far_below_every_ceiling_kernels_are_slow_or_too_small(kernels: int, cause: str) -> None:
    facts = counted(use(dram=12.0, tensor=8.0), replayed(kernels=kernels))
    assert facts.counted is not None and facts.counted.cause == cause
    assert 5.0e6 < facts.local()[cause] < 9.0e6


@pytest.mark.parametrize(
    ("gpm", "said"),
    [
        (use(dram=45.0, tensor=30.0), {}),  # between the two
        (use(dram=10.0, tensor=0.0, vector=76.0), {}),  # products in fp32, on the vector pipe
        (use(dram=80.0, tensor=10.0), {"samples": 2}),
        (use(dram=80.0, tensor=10.0), {"other_processes": 1}),
        (Counters(sm=90.0), {}),
        (None, {}),
    ],
)
def test_in_doubt_nothing_is_said(gpm: Counters | None, said: dict[str, Any]) -> None:
    facts = counted(gpm, **said)
    assert facts.counted is None
    assert facts.share("unknown") > 0.85


def test_bytes_of_kernels_that_are_known_are_not_counted_again() -> None:
    """Half the time are products at the memory's ceiling; the rest does not become that by their bytes."""
    weights = 4096 * 4096 * 2 * 10
    known_us = weights / (H200.bandwidth or 0) * 1e6
    half = replayed(unknown_us=known_us, known_us=known_us, kernels=9)
    dram = 100 * weights / (H200.spec_bandwidth or 0) / (STEP_MS / 1e3)
    facts = counted(use(dram=dram, tensor=1.0), half)
    assert facts.counted is None or facts.counted.cause != "memory-roof"


def test_without_unknown_kernels_counters_change_nothing() -> None:
    book = Book()
    for _ in range(3):
        mark = book.open("ProfilerStep#1", kind=Kind.ANNOTATION)
        book.op("aten::mm", [[8, 64], [64, 64]], ["float", "float"], "nvjet_known", 9000.0)
        book.close(mark)
    assert counted(use(dram=90.0, tensor=0.0), book.timeline()).counted is None


@given(dram=st.floats(0, 100), tensor=st.floats(0, 100), vector=st.floats(0, 100), share=st.floats(0.1, 0.95))
@drawn(20)
def test_what_is_said_agrees_with_the_figures(
    dram: float, tensor: float, vector: float, share: float
) -> None:
    facts = counted(use(dram, tensor, vector), replayed(unknown_us=share * STEP_MS * 1e3))
    found = facts.counted
    if found is None:
        return
    assert found.memory[0] <= found.memory[1] <= 1 and found.tensor[0] <= found.tensor[1] <= 1
    if found.cause == "memory-roof":
        assert dram >= 60 * share
    elif found.cause == "at-the-roof":
        assert tensor >= 60 * share
    else:
        assert dram <= 50 * share and tensor <= 50 * share
    assert facts.spent().total == pytest.approx(facts.step)


def test_products_at_a_low_clock_keep_the_tensor_cores_busy_for_longer() -> None:
    """What known products used of the tensor cores is theirs, however slowly the card was clocked."""
    flops = 2.0 * 4096**3
    known_us = flops / H200.flops["bf16"] * 1e6
    book = Book()
    for step in range(3):
        mark = book.open(f"ProfilerStep#{step}", kind=Kind.ANNOTATION)
        began = book.now
        book.op("aten::mm", [[4096, 4096], [4096, 4096]], ["c10::BFloat16"] * 2, "nvjet_known", known_us)
        book.correlation += 1
        book._add(Kind.RUNTIME, "cudaGraphLaunch", book.now, book.now + 5_000, correlation=book.correlation)
        columns = {"correlation": book.correlation, "stream": 7, "thread": 107, "device": 0}
        book._add(Kind.KERNEL, PRODUCT, book.now + 10_000, book.now + 10_000 + int(known_us * 1e3), **columns)
        book.now = max(book.now, began + int(STEP_MS * 1e6))
        book.close(mark)
    tensor = 100 * 1.6 * flops / H200.spec_flops["bf16"] / (STEP_MS / 1e3)  # at 1 / 1.6 of the clock
    slow = Sampled(1240.0, 1200.0, 1300.0)
    facts = counted(use(1.0, tensor), book.timeline(), sm_clock_mhz=slow, max_sm_clock_mhz=1980)
    assert facts.counted is None or facts.counted.cause != "at-the-roof"


def test_more_than_the_memory_can_move_was_not_moved_by_the_unknown_alone() -> None:
    """1.5 ms of unknown kernels cannot keep the memory busy for 5: the known ones moved more than told."""
    facts = counted(use(dram=50.0, tensor=10.0), replayed(unknown_us=1500.0, known_us=7000.0))
    assert facts.counted is None or facts.counted.cause != "memory-roof"


# One kernel each, as a trace writes it and as Nsight Compute does.
ADD = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctorOnSelf_add<float>, "
    "std::array<char*, 2ul> >(int, at::native::CUDAFunctorOnSelf_add<float>, std::array<char*, 2ul>)",
    "void at::vectorized_elementwise_kernel<4, at::CUDAFunctorOnSelf_add<float>, std::array<char *, 2>>"
    "(int, T2, T3)",
)
COPY = (
    "void at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl_nocast<at::native::"
    "direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}::operator()() const::{lambda()#7}::"
    "operator()() const::{lambda(float)#1}>(at::TensorIteratorBase&, at::native::direct_copy_kernel_cuda"
    "(at::TensorIteratorBase&)::{lambda()#3}::operator()() const::{lambda()#7}::operator()() const::"
    "{lambda(float)#1} const&)::{lambda(int)#1}>(int, at::native::gpu_kernel_impl_nocast<at::native::"
    "direct_copy_kernel_cuda(at::TensorIteratorBase&)>)",
    "void at::elementwise_kernel<128, 2, void at::gpu_kernel_impl_nocast<at::direct_copy_kernel_cuda"
    "(at::TensorIteratorBase &)::[lambda() (instance 3)]::operator ()() const::[lambda() (instance 7)]::"
    "operator ()() const::[lambda(float) (instance 1)]>(at::TensorIteratorBase &, const T1 &)::[lambda(int) "
    "(instance 1)]>(int, T3)",
)
SOFTMAX = (
    "void at::native::(anonymous namespace)::cunn_SoftMaxForwardReg<float, float, float, at::native::"
    "(anonymous namespace)::SoftMaxForwardEpilogue, long, 8>(float*, float const*, long)",
    "void at::<unnamed>::cunn_SoftMaxForwardReg<float, float, float, at::<unnamed>::SoftMaxForwardEpilogue, "
    "long, 8>(T3 *, const T1 *, T5)",
)
GRID: Dims = (64, 1, 1)


def counted_bytes(*kernels: tuple[str, Dims | None, float | None]) -> NcuReport:
    return NcuReport("x.csv", tuple(NcuKernel(name, grid, dram_bytes=moved) for name, grid, moved in kernels))


def matched(book: Book, report: NcuReport, steps: int | None = None) -> Matched:
    timeline = book.timeline()
    return match(timeline, timeline.rows(*DEVICE_KINDS), report, steps)


@pytest.mark.parametrize("pair", [ADD, COPY, SOFTMAX])
def test_names_are_told_from_each_other_as_both_tools_write_them(book: Book, pair: tuple[str, str]) -> None:
    for trace, _ in (ADD, COPY, SOFTMAX):
        book.kernel(trace, grid=GRID)
    found = matched(book, counted_bytes((pair[1], GRID, 7.0)))
    expected = [7.0 if trace == pair[0] else np.nan for trace, _ in (ADD, COPY, SOFTMAX)]
    np.testing.assert_array_equal(found.nbytes, expected)
    assert (found.launches, found.unmatched, found.rows, found.kernels) == (1, 0, 1, 3)


def test_another_grid_is_another_kernel(book: Book) -> None:
    book.kernel(ADD[0], grid=(32, 1, 1))
    book.kernel(ADD[0])  # a grid that nobody recorded
    found = matched(book, counted_bytes((ADD[1], GRID, 7.0), (ADD[1], None, 8.0)))
    assert np.isnan(found.nbytes).all()
    assert (found.unmatched, found.rows) == (2, 0)


def test_what_fits_two_kernels_fits_none(book: Book) -> None:
    book.kernel("void a::gemm<1, float>(int)", grid=GRID)
    book.kernel("void a::gemm<1, float, 2>(int)", grid=GRID)
    assert matched(book, counted_bytes(("gemm<1, float>(T1)", GRID, 7.0))).unmatched == 1


def test_launches_alike_stand_for_all(book: Book) -> None:
    for _ in range(5):
        book.kernel(ADD[0], grid=GRID)
    found = matched(book, counted_bytes((ADD[1], GRID, 100.0), (ADD[1], GRID, 104.0)))
    np.testing.assert_array_equal(found.nbytes, [102.0] * 5)


def test_launches_that_differ_go_by_their_order_in_the_step(book: Book) -> None:
    for _ in range(4):
        book.kernel(ADD[0], grid=GRID)
    two = counted_bytes((ADD[1], GRID, 100.0), (ADD[1], GRID, 300.0))
    np.testing.assert_array_equal(matched(book, two, steps=2).nbytes, [100.0, 300.0, 100.0, 300.0])
    assert matched(book, two, steps=None).unmatched == 2  # which is which is unknown
    three = counted_bytes((ADD[1], GRID, 100.0), (ADD[1], GRID, 300.0), (ADD[1], GRID, 500.0))
    assert matched(book, three, steps=2).unmatched == 3


def test_launches_without_bytes_are_not_used(book: Book) -> None:
    book.kernel(ADD[0], grid=GRID)
    assert matched(book, counted_bytes((ADD[1], GRID, None))).unmatched == 1


def test_words_of_a_name() -> None:
    assert name_words("void a::<unnamed>::f<2ul, T1>(const T2 *)") == ("a", "f", "2")


def test_counted_bytes_replace_modelled_ones_in_the_floor(book: Book) -> None:
    for _ in range(2):
        book.op("aten::add", [[1 << 24], [1 << 24]], ["float", "float"], ADD[0], us=100.0)
    timeline = book.timeline()
    links, ceilings = link(timeline), table_ceilings("NVIDIA H200")
    modelled = kernel_table(timeline, links, ceilings)
    replaced = kernel_table(timeline, links, ceilings, counted=np.array([43e6, np.nan]))
    assert replaced.bytes[0] == 43e6
    assert replaced.bytes[1] == modelled.bytes[1] != 43e6
    assert ceilings.bandwidth is not None
    assert replaced.floor[0] == pytest.approx(1e9 * 43e6 / ceilings.bandwidth)
    assert replaced.floor[1] == modelled.floor[1]
