"""The kernel table: who owns the work, how it is divided, floors, regimes, and the bars on real traces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from captures import FIXTURES
from findwall.machine.hardware import table_ceilings
from findwall.model.catalogue import KERNEL_CLASSES
from findwall.model.events import Kind, Timeline
from findwall.model.machine import MATH_TYPES, UNKNOWN_CEILINGS
from findwall.readers.torch_trace import read_trace
from findwall.step.links import ENGINE, link
from findwall.work.kernel_table import kernel_table
from findwall.work.work_facts import BOUNDS, KernelTable

H200 = table_ceilings("NVIDIA H200")
BF16, FP32 = "c10::BFloat16", "float"
NVJET = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT"
FALLBACK = "void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_tn_align1>(P)"
SIMT = "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x256_8x4_nt_align1>(P)"
CAST = "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(Iter&)>(int)"
ADD = "void at::native::vectorized_elementwise_kernel<8, CUDAFunctor_add<c10::BFloat16>, array<char*, 3> >()"


def table(book: Any, ceilings: Any = H200) -> KernelTable:
    timeline: Timeline = book.timeline()
    return kernel_table(timeline, link(timeline), ceilings)


def at(found: KernelTable, row: int) -> int:
    return int(np.flatnonzero(found.row == row)[0])


def test_a_product_near_the_ceiling(book: Any) -> None:
    row = book.op("aten::mm", [[8192, 8192], [8192, 8192]], [BF16, BF16], NVJET, us=1600)
    found = table(book)
    index = at(found, row)
    assert KERNEL_CLASSES[found.class_index[index]] == "matmul"
    assert MATH_TYPES[found.math_index[index]] == "bf16"
    assert found.flops[index] == 2 * 8192**3
    assert found.floor[index] == pytest.approx(2 * 8192**3 / H200.flops["bf16"] * 1e9)
    assert BOUNDS[found.bound[index]] == "compute"
    assert found.modelled[index] and not found.above_spec[index]


def test_one_op_in_two_launches_is_charged_once(book: Any) -> None:
    op = book.open("aten::copy_", [[16384, 50257], [16384, 50257], []], [FP32, BF16, "Scalar"])
    rows = [book.kernel(CAST, us=1000), book.kernel(CAST, us=1000)]
    book.close(op)
    found = table(book)
    assert sum(found.bytes[at(found, row)] for row in rows) == 6 * 16384 * 50257
    assert found.cast.all()


def test_an_op_without_a_model_is_charged_to_the_one_around_it(book: Any) -> None:
    outer = book.open("aten::linear", [[128, 64], [256, 64]], [BF16, BF16])
    inner = book.open("mylib::gemm", [[1]], ["long int"])
    row = book.kernel(NVJET)
    book.close(inner)
    book.close(outer)
    found = table(book)
    assert found.op[at(found, row)] == outer
    assert found.flops[at(found, row)] == 2 * 128 * 64 * 256


def test_work_paid_for_inside_is_not_charged_again(book: Any) -> None:
    outer = book.open("aten::linear", [[128, 64], [256, 64]], [BF16, BF16])
    book.op("aten::mm", [[128, 64], [64, 256]], [BF16, BF16], NVJET)
    inner = book.open("mylib::extra", [[1]], ["long int"])
    extra = book.kernel("kernel_17")
    book.close(inner)
    book.close(outer)
    found = table(book)
    assert not found.modelled[at(found, extra)]
    assert np.nansum(found.flops) == 2 * 128 * 64 * 256


def test_layout_kernels_of_a_convolution_are_copies_of_their_own(book: Any) -> None:
    dims = [[64, 64, 56, 56], [128, 64, 3, 3], [], [], [], []]
    concrete = ["", "", "[1, 1]", "[1, 1]", "[1, 1]", "1"]
    op = book.open("aten::cudnn_convolution", dims, [FP32, FP32, "", "", "", ""], concrete)
    weight = book.kernel("void cudnn::ops::nchwToNhwcKernel<float>(P)", us=5)
    image = book.kernel("void cudnn::ops::nchwToNhwcKernel<float>(P)", us=50)
    main = book.kernel("sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_tensor16x8x8_execute", us=500)
    book.close(op)
    found = table(book)
    assert found.bytes[at(found, image)] == 2 * 4 * 64 * 64 * 56 * 56
    assert found.bytes[at(found, weight)] == 2 * 4 * 128 * 64 * 9
    assert found.flops[at(found, main)] == 2 * 64 * 128 * 56 * 56 * 64 * 9
    assert np.nansum(found.flops) == found.flops[at(found, main)]
    assert MATH_TYPES[found.math_index[at(found, main)]] == "tf32"


def test_halves_of_a_backward_convolution_go_by_name_then_by_order(book: Any) -> None:
    dims = [[64, 256, 56, 56], [64, 64, 56, 56], [256, 64, 1, 1], *[[]] * 8]
    concrete = [
        "",
        "",
        "",
        "[0]",
        "[1, 1]",
        "[0, 0]",
        "[1, 1]",
        "False",
        "[0, 0]",
        "1",
        "[True, True, False]",
    ]
    op = book.open("aten::convolution_backward", dims, [BF16] * 3 + [""] * 8, concrete)
    first = book.kernel("nvjet_sm90_tst_64x512_64x2_1x2_h_bz_coopB_NNT", us=100)
    second = book.kernel(
        "void cutlass::Kernel2<cutlass_80_tensorop_s16816gemm_bf16_64x128_nt_align8>(P)", us=300
    )
    book.close(op)
    found = table(book)
    assert found.flops[at(found, first)] == found.flops[at(found, second)] == 2 * 64 * 256 * 56 * 56 * 64


def test_misaligned_operands(book: Any) -> None:
    odd = book.op("aten::mm", [[8192, 768], [768, 50257]], [BF16, BF16], FALLBACK, us=6700)
    even = book.op("aten::mm", [[8192, 768], [768, 50304]], [BF16, BF16], NVJET, us=900)
    found = table(book)
    assert found.misaligned[at(found, odd)] and not found.misaligned[at(found, even)]
    assert found.better_floor[at(found, odd)] == found.floor[at(found, odd)] < 0.2 * 6.7e6
    assert np.isnan(found.better_floor[at(found, even)])


def test_align1_alone_proves_nothing(book: Any) -> None:
    row = book.op("aten::mm", [[8192, 1023], [1023, 4093]], [FP32, FP32], SIMT, us=1500)
    found = table(book)
    assert not found.misaligned[at(found, row)] and found.fast_path_off[at(found, row)]


def test_the_fast_path_is_off_for_fp32_on_the_vector_pipe(book: Any) -> None:
    row = book.op("aten::mm", [[8192, 8192], [8192, 8192]], [FP32, FP32], SIMT, us=22000)
    found = table(book)
    index = at(found, row)
    assert found.fast_path_off[index]
    assert found.better_floor[index] == pytest.approx(2 * 8192**3 / H200.flops["tf32"] * 1e9)
    on = "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_256x64_16x4_nn_align4>(P)"
    fast = book.op("aten::mm", [[8192, 8192], [8192, 8192]], [FP32, FP32], on, us=3000)
    found = table(book)
    assert not found.fast_path_off[at(found, fast)]


def test_a_small_kernel_is_bound_by_latency_and_blames_nothing(book: Any) -> None:
    row = book.op("aten::mm", [[32, 256], [256, 256]], [FP32, FP32], SIMT, us=4.5)
    found = table(book)
    index = at(found, row)
    assert BOUNDS[found.bound[index]] == "latency"
    assert not found.fast_path_off[index] and not found.misaligned[index]


def test_an_unknown_device_has_no_floors_but_work(book: Any) -> None:
    book.op("aten::mm", [[8192, 8192], [8192, 8192]], [BF16, BF16], NVJET, us=1600)
    found = table(book, UNKNOWN_CEILINGS)
    assert found.flops[0] == 2 * 8192**3 and found.modelled[0]
    assert np.isnan(found.floor[0]) and BOUNDS[found.bound[0]] == "unknown"
    assert not found.above_spec[0] and not found.fast_path_off[0]


def test_more_than_the_hardware_has_is_counted(book: Any) -> None:
    row = book.op("aten::add", [[1 << 28], [1 << 28], []], [FP32, FP32, "Scalar"], ADD, us=200)
    small = book.op("aten::add", [[1 << 18], [1 << 18], []], [FP32, FP32, "Scalar"], ADD, us=0.4)
    found = table(book)
    assert found.above_spec[at(found, row)] and not found.above_spec[at(found, small)]
    assert found.floor[at(found, row)] <= 200_000


def test_transfers_move_what_they_say(book: Any) -> None:
    op = book.open("aten::copy_", [[1024], [1024], []], [FP32, FP32, "Scalar"])
    across = book.kernel("Memcpy HtoD (Pinned -> Device)", kind=Kind.MEMCPY, nbytes=4096)
    book.close(op)
    inside = book.kernel("Memcpy DtoD (Device -> Device)", kind=Kind.MEMCPY, nbytes=4096)
    found = table(book)
    assert found.bytes[at(found, across)] == 4096 and found.bytes[at(found, inside)] == 8192
    assert np.isnan(found.floor[at(found, across)])


def test_a_kernel_of_an_earlier_step_is_known_by_its_twin(book: Any) -> None:
    early = book.kernel(NVJET, us=1610, launched=False)
    book.op("aten::mm", [[8192, 8192], [8192, 8192]], [BF16, BF16], NVJET, us=1600)
    found = table(book)
    assert found.orphan[at(found, early)] and found.flops[at(found, early)] == 2 * 8192**3


def test_twins_that_differ_in_work_must_be_near_in_time(book: Any) -> None:
    early = book.kernel(NVJET, us=900, launched=False)
    book.op("aten::mm", [[8192, 8192], [8192, 8192]], [BF16, BF16], NVJET, us=1600)
    near = book.op("aten::mm", [[8192, 4096], [4096, 8192]], [BF16, BF16], NVJET, us=850)
    far = book.kernel(NVJET, us=100, launched=False)
    found = table(book)
    assert found.flops[at(found, early)] == found.flops[at(found, near)]
    assert not found.modelled[at(found, far)]


def test_unrecorded_lists_take_the_gradients_sizes(book: Any) -> None:
    for _ in range(2):  # two steps
        for shape in ([4096, 1024], [1024]):
            book.close(book.open("torch::autograd::AccumulateGrad", [shape], [FP32]))
        op = book.open("aten::_fused_adamw_", [[]] * 6, ["TensorList"] * 6)
        name = "void at::native::multi_tensor_apply_kernel<M<4>, FusedAdamMathFunctor<float, 4>>()"
        row = book.kernel(name, us=50, grid=(320, 1, 1))
        book.close(op)
    found = table(book)
    assert found.bytes[at(found, row)] == 28 * (4096 * 1024 + 1024)
    assert KERNEL_CLASSES[found.class_index[at(found, row)]] == "optimizer"


def test_plain_arithmetic_of_an_optimizer_step_is_the_optimizers(book: Any) -> None:
    outer = book.open("Optimizer.step#AdamW.step", kind=Kind.ANNOTATION)
    inside = book.op("aten::add_", [[1024], [1024], []], [FP32, FP32, "Scalar"], ADD)
    book.close(outer)
    outside = book.op("aten::add_", [[1024], [1024], []], [FP32, FP32, "Scalar"], ADD)
    found = table(book)
    classes = [KERNEL_CLASSES[found.class_index[at(found, row)]] for row in (inside, outside)]
    assert classes == ["optimizer", "pointwise"]


@pytest.mark.parametrize("backward", [False, True])
def test_what_a_closure_runs_inside_an_optimizer_step_is_not(book: Any, backward: bool) -> None:
    """Lightning hands forward and backward to the optimizer, which calls them before it updates."""
    add = ("aten::add_", [[1024], [1024], []], [FP32, FP32, "Scalar"], ADD)
    call = book.open("Optimizer.step#AdamW.step", kind=Kind.ANNOTATION)
    forward = book.op(*add)
    if backward:
        node = book.open(f"{ENGINE}: AddBackward0", sequence=1)
        book.op(*add)
        book.close(node)
    update = book.op(*add)
    book.close(call)
    found = table(book)
    classes = [KERNEL_CLASSES[found.class_index[at(found, row)]] for row in (forward, update)]
    assert classes == ["pointwise" if backward else "optimizer", "optimizer"]


def test_an_optimizer_that_steps_inside_the_backward_pass_has_no_closure(book: Any) -> None:
    node = book.open(f"{ENGINE}: AccumulateGrad", sequence=1)
    call = book.open("Optimizer.step#AdamW.step", kind=Kind.ANNOTATION)
    update = book.op("aten::add_", [[1024], [1024], []], [FP32, FP32, "Scalar"], ADD)
    book.close(call)
    book.close(node)
    found = table(book)
    assert KERNEL_CLASSES[found.class_index[at(found, update)]] == "optimizer"


def checkpointed(book: Any, recording: int, nodes: int = 10) -> KernelTable:
    """Backward nodes of which some run a forward op again."""
    for number in range(nodes):
        outer = book.open(f"{ENGINE}: MmBackward0", sequence=number)
        node = book.open("MmBackward0", [[8, 8]], [BF16], sequence=number)
        again = 100 + number if number < recording else -1
        book.op("aten::mm", [[512, 512], [512, 512]], [BF16, BF16], NVJET, sequence=again)
        book.close(node)
        book.close(outer)
    return table(book)


def test_forward_ops_under_the_engine_are_recomputed(book: Any) -> None:
    assert checkpointed(book, recording=2).recompute.sum() == 2


def test_second_derivatives_are_not(book: Any) -> None:
    assert checkpointed(book, recording=10).recompute.sum() == 0


def test_a_plain_backward_recomputes_nothing(book: Any) -> None:
    assert checkpointed(book, recording=0).recompute.sum() == 0


def test_a_replayed_graph_is_sized_by_its_chain(book: Any) -> None:
    norm = "void at::native::vectorized_layer_norm_kernel<c10::BFloat16, float, false>(int)"
    gelu = "void at::native::vectorized_elementwise_kernel<8, GeluImpl<c10::BFloat16>, array<char*, 2> >()"
    call = {"call": "cudaGraphLaunch"}
    rows = []
    for _ in range(2):  # rows 2048, width 256, inner width 1024
        rows.append(book.kernel(norm, us=4, grid=(2048, 1, 1), **call))
        rows.append(
            book.kernel("nvjet_sm90_tst_128x128_64x6_2x1_v_bz_bias_TNT", us=5, grid=(2, 64, 1), **call)
        )
        rows.append(book.kernel(gelu, us=4, grid=(2048, 1, 1), **call))
        rows.append(
            book.kernel("nvjet_sm90_tst_64x64_64x13_2x1_v_bz_bias_TNT", us=5, grid=(2, 64, 1), **call)
        )
        rows.append(book.kernel(ADD, us=2, grid=(512, 1, 1), **call))
    found = table(book)
    first = [at(found, row) for row in rows[5:]]
    assert found.bytes[first[0]] == 2 * 2 * 2048 * 256
    assert found.flops[first[1]] == found.flops[first[3]] == 2 * 2048 * 256 * 1024
    assert found.modelled.all()


def shares(trace: Path) -> tuple[float, float, KernelTable]:
    """(modelled, above the spec) of the time of launched kernels."""
    timeline = read_trace(trace)
    name = timeline.header.devices[0].name
    found = kernel_table(timeline, link(timeline), table_ceilings(name))
    kernel = (timeline.events.kind[found.row] == Kind.KERNEL) & ~found.communication
    issued = kernel & (~found.orphan if (~found.orphan).any() else True)
    total = found.duration[issued].sum()
    modelled = found.duration[issued & found.modelled].sum() / total
    return float(modelled), float(found.duration[issued & found.above_spec].sum() / total), found


OWN = sorted(FIXTURES.glob("*.json.gz")) + sorted((FIXTURES / "jobs").glob("*.json.gz"))


@pytest.mark.parametrize("trace", OWN, ids=[path.name.split(".")[0] for path in OWN])
def test_the_bars_on_our_own_traces(trace: Path) -> None:
    modelled, above, found = shares(trace)
    assert modelled >= 0.95
    assert above <= 0.01
    known = ~np.isnan(found.floor)
    assert (found.floor[known] <= found.duration[known]).all()


def test_the_bars_on_the_zoo(shared: Path) -> None:
    for trace in sorted((shared / "zoo").glob("*.json.gz")):
        modelled, above, _ = shares(trace)
        assert modelled >= 0.95, trace.name
        assert above <= 0.01, trace.name


@pytest.mark.parametrize(
    "name", ["h100_qwen_forward", "mi300x_qwen_forward", "mi300x_compiled_triton", "v100_resnet50_workers0"]
)
def test_the_same_on_other_devices(shared: Path, name: str) -> None:
    modelled, above, _ = shares(shared / "traces" / f"{name}.json.gz")
    assert modelled >= 0.95 and above <= 0.01


def test_jobs_built_to_be_bad_show_their_marks() -> None:
    for name, mark, least in (
        ("odd_widths", "misaligned", 0.5),
        ("accelerate_fp32", "fast_path_off", 0.9),
        ("checkpointed_blocks", "recompute", 0.1),
        ("upcast_tower", "cast", 0.5),
    ):
        trace = FIXTURES / "jobs" / f"{name}.json.gz"
        if not trace.exists():
            pytest.skip(f"{name} is not recorded")
        _, _, found = shares(trace)
        share = found.duration[getattr(found, mark)].sum() / found.duration.sum()
        assert share > least, name
