"""What the counters of one kernel make of it."""

from __future__ import annotations

from typing import Any

import pytest

from findwall.machine.hardware import table_ceilings
from findwall.model.machine import UNKNOWN_CEILINGS, Ceilings
from findwall.model.ncu_kernel import NcuKernel
from findwall.ncu.ncu_bounds import Judged, judge, memory_ceiling, merge, pipe_worth

H200 = table_ceilings("NVIDIA H200")
NVJET = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT"
ODD = "void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_256x128_nn_align1>(T1::Params)"
SIMT = "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x128_8x4_nn_align1>(T1::Params)"
ADD = (
    "void at::vectorized_elementwise_kernel<4, at::CUDAFunctorOnSelf_add<float>, std::array<char *, 2>>(int)"
)
COPY = (
    "void at::elementwise_kernel<128, 2, void at::gpu_kernel_impl_nocast<at::direct_copy_kernel_cuda"
    "(at::TensorIteratorBase &)>>(int, T3)"
)
GATHER = "void at::vectorized_gather_kernel<16, long>(char *, char *, T2 *, int)"
OWN = "my_kernel(float *)"


def judged(name: str, ceilings: Ceilings = H200, us: float = 200.0, **figures: Any) -> Judged:
    filled = {"dram": 0.1, "sm": 0.1, "memory": 0.1, "capability": 9, **figures}
    return judge(merge([NcuKernel(name, (1, 1, 1), (128, 1, 1), us * 1e3, **filled)])[0], ceilings)


def told(one: Judged) -> tuple[str, str, str]:
    return one.bound, one.cause, one.why


@pytest.mark.parametrize(
    ("name", "figures", "expected"),
    [
        (NVJET, {"tensor": 0.9, "sm": 0.9}, ("compute", "at-the-roof", "product-roof")),
        (NVJET, {"tensor": 0.1, "dram": 0.8}, ("bandwidth", "memory-roof", "memory-roof")),
        (NVJET, {"tensor": 0.3, "sm": 0.3, "waves": 0.4}, ("latency", "slow-kernels", "few-blocks")),
        (ODD, {"tensor": 0.3, "sm": 0.3, "memory": 0.7}, ("compute", "misaligned-shapes", "misaligned")),
        (SIMT, {"tensor": 0.0, "sm": 0.8}, ("compute", "fast-path-off", "fast-path-off")),
        (ADD, {"dram": 0.85}, ("bandwidth", "memory-roof", "memory-roof")),
        (ADD, {"dram": 0.3, "sm": 0.9}, ("compute", "at-the-roof", "vector-roof")),
        (ADD, {"memory": 0.9, "wasted": 0.0}, ("bandwidth", "memory-roof", "cache-roof")),
        (ADD, {"memory": 0.9}, ("bandwidth", "unknown", "no-sector-counter")),
        (COPY, {"memory": 0.97, "wasted": 0.78}, ("bandwidth", "layout-copies", "uncoalesced")),
        (COPY, {"sm": 0.9}, ("compute", "layout-copies", "slow")),  # a copy has nothing to compute
        (GATHER, {"wasted": 0.6}, ("latency", "gather-scatter", "uncoalesced")),
        (OWN, {"spills": 300.0}, ("latency", "slow-kernels", "spills")),
        (OWN, {"bank_conflicts": 0.4}, ("latency", "slow-kernels", "bank-conflicts")),
        (
            OWN,
            {"most_occupancy": 0.25, "limited_by": ("registers",)},
            ("latency", "slow-kernels", "occupancy"),
        ),
        (OWN, {"stall": "barrier"}, ("latency", "slow-kernels", "stall")),
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", {}, ("unknown", "unknown", "unknown")),
    ],
)
def test_counters_tell_the_cause(name: str, figures: dict[str, Any], expected: tuple[str, str, str]) -> None:
    assert told(judged(name, **figures)) == expected


def test_a_tiny_kernel_only_pays_for_its_start() -> None:
    assert told(judged(ADD, us=3.0, dram=0.002, sm=0.002)) == ("latency", "launch-bound", "too-small")
    assert judged(ADD, us=3.0, dram=0.8).cause == "memory-roof"


def test_without_the_counters_that_decide_nothing_is_said() -> None:
    assert told(judged(ADD, dram=None)) == ("unknown", "unknown", "unknown")
    assert told(judged(ADD, sm=None)) == ("unknown", "unknown", "unknown")
    # Some pipe is busy: only the tensor counter says whether it is the right one.
    assert told(judged(NVJET, sm=0.9)) == ("compute", "unknown", "no-tensor-counter")


def test_fp32_kernels_whose_name_says_align1_are_not_misaligned() -> None:
    assert judged(SIMT, tensor=0.0, sm=0.2).cause == "slow-kernels"


def test_the_floor_is_what_the_most_used_ceiling_takes() -> None:
    assert judged(COPY, dram=0.235, wasted=0.78).floor_share == pytest.approx(0.235 / 0.9)
    assert judged(SIMT, tensor=0.0, sm=0.8, dram=0.02).floor_share == pytest.approx(
        0.8 * H200.flops["fp32"] / H200.flops["tf32"]
    )
    assert judged(SIMT, UNKNOWN_CEILINGS, tensor=0.0, sm=0.8).floor_share is None
    # An old instruction keeps a Hopper's pipe busy for twice as long: 957 us could be about 171.
    assert judged(ODD, tensor=0.301, sm=0.301).floor_share == pytest.approx(0.301 * 0.5 / 0.84)


@pytest.mark.parametrize(
    ("name", "figures", "worth"),
    [
        (NVJET, {"capability": 9}, 1.0),
        (ODD, {"capability": 9}, 0.5),
        (OWN, {"capability": 9}, None),
        (OWN, {"capability": 9, "gmma": 0.0}, 0.5),
        (OWN, {"capability": 9, "gmma": 0.04}, 1.0),
        (OWN, {"capability": 8}, 1.0),
        (OWN, {}, None),
        (ODD, {"capability": 10}, None),
    ],
)
def test_a_busy_tensor_pipe_is_worth_what_its_instructions_do(
    name: str, figures: dict[str, Any], worth: float | None
) -> None:
    assert pipe_worth(NcuKernel(name, **figures)) == worth


def test_products_of_unknown_instructions_are_at_no_roof() -> None:
    flash = "void flash_fwd_kernel<Traits<128, 64, 64>>(Flash_fwd_params)"
    assert judged(flash, tensor=0.8, sm=0.8).cause == "unknown"
    assert judged(flash, tensor=0.8, sm=0.8, gmma=0.0).cause == "slow-kernels"
    assert judged(flash, tensor=0.8, sm=0.8, gmma=0.05).cause == "at-the-roof"
    assert judged(flash, tensor=0.4, sm=0.4).floor_share is None


def test_launches_of_one_kernel_and_grid_are_merged() -> None:
    kernels = [
        NcuKernel(ADD, (8, 1, 1), (1, 1, 1), 100.0, dram_bytes=10.0, dram=0.2, sm=0.1),
        NcuKernel(ADD, (9, 1, 1), (1, 1, 1), 50.0),
        NcuKernel(ADD, (8, 1, 1), (1, 1, 1), 300.0, dram_bytes=30.0, dram=0.6, sm=None),
    ]
    first, second = merge(kernels)
    assert (first.calls, first.total_ns, first.kernel.dram_bytes) == (2, 400.0, 20.0)
    assert first.kernel.dram == pytest.approx(0.5)  # by time
    assert first.kernel.sm is None  # one of them does not say
    assert second.total_ns == 50.0


def test_the_memory_ceiling_is_the_devices_own_where_it_is_known() -> None:
    assert memory_ceiling(UNKNOWN_CEILINGS) == 0.9
    assert memory_ceiling(Ceilings(bandwidth=4.0, spec_bandwidth=5.0)) == pytest.approx(0.8)
