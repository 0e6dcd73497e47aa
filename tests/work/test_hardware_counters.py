"""Kernels that Nsight Compute counted are found in a trace and used only where that is certain."""

from __future__ import annotations

import numpy as np
import pytest

from book import Book
from findwall.machine.hardware import table_ceilings
from findwall.model.events import DEVICE_KINDS
from findwall.model.ncu_kernel import Dims, NcuKernel, NcuReport
from findwall.step.links import link
from findwall.work.hardware_counters import match, name_words
from findwall.work.kernel_table import kernel_table
from findwall.work.work_facts import Matched

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
