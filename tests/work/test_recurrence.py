"""A recurrent network's work among the kernels that do it."""

from __future__ import annotations

import pytest

from book import Book
from findwall.machine.hardware import table_ceilings
from findwall.step.links import link
from findwall.work.kernel_table import kernel_table
from findwall.work.work_facts import KernelTable

H200 = table_ceilings("NVIDIA H200")
BATCH, STEPS, WIDTH, HIDDEN = 64, 50, 128, 256
INTO, WITHIN = (2.0 * BATCH * STEPS * 4 * HIDDEN * columns for columns in (WIDTH, HIDDEN))


def lstm(kernels: list[tuple[str, float]]) -> KernelTable:
    book = Book()
    weights = [[4 * HIDDEN, WIDTH], [4 * HIDDEN, HIDDEN], [4 * HIDDEN], [4 * HIDDEN]]
    dims = [[STEPS, BATCH, WIDTH], weights, [], [], [1, BATCH, HIDDEN], [1, BATCH, HIDDEN]]
    types = ["float", "TensorList", "Scalar", "", "float", "float"]
    row = book.open("aten::_cudnn_rnn", dims, types, concrete=["", "", "4", "", "", "", "2"])
    for name, us in kernels:
        book.kernel(name, us)
    book.close(row)
    timeline = book.timeline()
    return kernel_table(timeline, link(timeline), H200)


def test_one_kernel_that_keeps_the_weights_has_the_whole_recurrence() -> None:
    table = lstm(
        [
            ("cutlass_80_tensorop_s1688gemm_128x256_16x3_tn_align4", 20.0),
            ("void RNN_blockPersist_fp_LSTM<float, float, float, 256>()", 400.0),
            ("void persistRNN_addBias<float, float>()", 8.0),
        ]
    )
    assert table.flops.tolist() == [INTO, WITHIN, 0.0]
    assert table.modelled.all()
    assert not table.fast_path_off.any()


def test_a_kernel_a_step_of_time_shares_it() -> None:
    step = [("void gemv2T_kernel_val<int, float>()", 4.0), ("void elemWiseRNNcell<float, float>()", 3.0)]
    table = lstm([("sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x16", 30.0), *step * STEPS])
    assert table.flops[0] == INTO
    assert table.flops[1::2].sum() == pytest.approx(WITHIN)
    assert table.modelled.all()


def test_without_shapes_nothing_is_claimed_of_a_recurrence() -> None:
    book = Book()
    book.kernel("void RNN_blockPersist_fp_LSTM<float, float, float, 256>()", 400.0)
    timeline = book.timeline()
    table = kernel_table(timeline, link(timeline), H200)
    assert not table.fast_path_off.any() and not table.modelled.any()
