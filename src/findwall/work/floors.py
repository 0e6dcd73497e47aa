"""The time a kernel cannot beat, and what binds it: arithmetic, bytes, or being too small for either."""

from __future__ import annotations

import re

import msgspec
import numpy as np

from findwall.model.catalogue import CLASS_INDEX, FAIR_PART, MAJORITY_SHARE, MATRIX_CLASSES, NEAR, WORTH_IT
from findwall.model.events import Bool, Kind
from findwall.model.intervals import F64, I8, I64
from findwall.model.machine import MATH_TYPES, SIXTEEN_BITS, Ceilings
from findwall.step.kernel_names import RECURRENT_KERNELS
from findwall.step.kernel_names.name_table import H200, V100_RESNET, NameRow, NameTable
from findwall.work.division import Rows, Shares
from findwall.work.op_arguments import Work
from findwall.work.work_facts import START_NS, TOO_SMALL_NS, fast_format

COMPUTE, BANDWIDTH, LATENCY, UNKNOWN = range(4)
MATRIX_INDEX = np.array([CLASS_INDEX[name] for name in MATRIX_CLASSES])
# Whether a kernel was picked for operands that lie on 16 bytes. Those of a generation that predates the
# rule were not.
ALIGNED: NameTable[bool] = NameTable(
    NameRow(
        r"align(?:8|16)(?!\d)",
        True,
        "void cutlass::Kernel2<cutlass_80_tensorop_s16816gemm_bf16_64x64_64x6_nt_align8>(Params)",
        f"CUTLASS: {H200}",
    ),
    NameRow(r"nvjet", True, "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT", f"cuBLAS: {H200}"),
    NameRow(
        r"align[124](?!\d)|_75_|sm75|cutlass_7\d",
        False,
        "void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_tn_align1>(Params)",
        f"CUTLASS: {H200}",
    ),
    NameRow(r"volta_|turing", False, "volta_sgemm_64x64_nn", f"cuBLAS: {V100_RESNET}"),
    NameRow(
        r"wmma",
        False,
        "cudnn_generated_fort_native_sdpa_sm80_flash_fprop_wmma_f16_knob_35_16x128x128_1x4x1",
        f"cuDNN 9: {H200}",
    ),
)


_THIN = re.compile(r"gemv|gemmsn|gemmk1|dot_kernel|splitkreduce")


class Floors(msgspec.Struct, frozen=True):
    floor: F64  # ns
    bound: I8
    misaligned: Bool
    fast_path_off: Bool
    better: F64  # ns
    above_spec: Bool


def floors_of(
    rows: Rows,
    shares: Shares,
    math_index: I8,
    works: list[Work],
    tensor_core: Bool,
    called: Bool,
    ceilings: Ceilings,
) -> Floors:
    """`called`: rows that torch or a library of its launches; a job's own kernels have no other path."""
    on_tensors = np.isin(rows.class_index, MATRIX_INDEX)
    flops = np.where(shares.flops > 0, shares.flops, 0.0)
    done = flops / shares.saving
    compute = 1e9 * done / _ceiling(ceilings.flops, math_index)
    in_own_format = np.ones(len(compute), bool)
    if ceilings.of_cores:  # fused attention may multiply 16-bit numbers in fp32 there
        fused = rows.class_index == CLASS_INDEX["attention"]
        in_own_format = ~fused | (compute <= rows.duration)
        compute[fused] = np.fmin(compute, 1e9 * done / ceilings.flops.get("fp32", np.nan))[fused]
    # Vector arithmetic of unknown speed is left out: bytes alone still bound it from below.
    compute = np.where(np.isnan(compute) & ((flops == 0) | ~on_tensors), 0.0, compute)
    memory = 1e9 * shares.nbytes / (ceilings.bandwidth or np.nan)
    across = (rows.kind == Kind.MEMCPY) & (rows.class_index == CLASS_INDEX["memcpy"])
    memory[across] = 1e9 * shares.nbytes[across] / (ceilings.h2d_pinned or np.nan)
    least = np.where(np.isnan(shares.nbytes), np.nan, np.maximum(compute, memory))
    floor = np.fmin(least, rows.duration)
    floor[np.isnan(least)] = np.nan
    few = _few_blocks(rows, least, ceilings)
    bound = _bounds(rows, compute, memory, least, few)
    on_units = on_tensors & (not ceilings.of_cores)  # cores have no kernels that take multiples of 8 alone
    misaligned = _misaligned(rows, works, shares.work, on_units & (bound != LATENCY) & ~few, floor)
    slow_pipe = _is_math(math_index, ("fp32",)) | (_is_math(math_index, ("fp64",)) & ~tensor_core)
    # A recurrence is held up by its order in time; cuDNN's kernels for it have no TF32 form.
    recurrent = rows.by_name(slice(None), lambda name: RECURRENT_KERNELS.read(name.lower()) is not None)
    slow_pipe &= on_tensors & (bound == COMPUTE) & ~few & ~recurrent
    fast_off, better = _fast_path(slow_pipe, done, memory, rows.duration, ceilings)
    blind = on_tensors & (bound == UNKNOWN) & _is_math(math_index, ("fp32",)) & ~tensor_core
    thin = rows.by_name(slice(None), lambda name: _THIN.search(name.lower()) is not None)
    blind &= (rows.duration > TOO_SMALL_NS) & ~recurrent & ~thin & called
    fast_off, better = _fast_path_by_name(blind, fast_off, better, rows.duration, ceilings)
    if ceilings.of_cores:
        candidates = on_tensors & in_own_format & (bound == COMPUTE)
        fast_off, better = _wider_path(candidates, math_index, flops, shares.nbytes, rows.duration, ceilings)
    better = np.where(misaligned, floor, better)
    return Floors(
        floor, bound, misaligned, fast_off, better, _above_spec(rows, shares, done, math_index, ceilings)
    )


def _ceiling(by_math: dict[str, float], math_index: I8) -> F64:
    return np.array([by_math.get(name, np.nan) for name in MATH_TYPES] + [np.nan])[math_index]


def _is_math(math_index: I8, names: tuple[str, ...]) -> Bool:
    return np.isin(math_index, [MATH_TYPES.index(name) for name in names])


def _few_blocks(rows: Rows, least: F64, ceilings: Ceilings) -> Bool:
    """Kernels with too few blocks to fill the device, far from both ceilings for that reason."""
    few: Bool = rows.blocks < MAJORITY_SHARE * (ceilings.sm_count or 0)
    few &= (least < FAIR_PART * rows.duration) & (rows.kind != Kind.MEMCPY)
    return few


def _bounds(rows: Rows, compute: F64, memory: F64, least: F64, few: Bool) -> I8:
    """Latency: far from both ceilings because it is short, the fewer the blocks the more readily."""
    known = ~np.isnan(least)
    bound = np.full(len(least), UNKNOWN, np.int8)
    bound[known] = np.where(compute[known] > memory[known], COMPUTE, BANDWIDTH)
    short = (least + START_NS >= rows.duration) & (least < MAJORITY_SHARE * rows.duration)
    short |= few & (rows.duration <= TOO_SMALL_NS)
    bound[known & short & (rows.kind != Kind.MEMCPY)] = LATENCY
    return bound


def _misaligned(rows: Rows, works: list[Work], of_work: I64, candidates: Bool, floor: F64) -> Bool:
    """Odd dims, and a kernel that shows it: by its name, or by staying far below the ceiling."""
    odd = np.array([bool(work.misaligned) for work in works] + [False], bool)[of_work]
    found: Bool = candidates & odd
    for index in np.flatnonzero(found).tolist():
        aligned = ALIGNED.read(rows.timeline.names[int(rows.name[index])].lower())
        if aligned:
            found[index] = False
        elif aligned is None:
            found[index] = bool(floor[index] < MAJORITY_SHARE * rows.duration[index])
    return found


def _fast_path_by_name(
    blind: Bool, fast_off: Bool, better: F64, duration: F64, ceilings: Ceilings
) -> tuple[Bool, F64]:
    """Vector-pipe matrix kernels without shapes: their own time tells the most FLOPs they can have done."""
    most_flops = duration * ceilings.flops.get("fp32", np.nan) / 1e9
    found, reach = _fast_path(blind, most_flops, np.zeros(len(duration)), duration, ceilings)
    return fast_off | found, np.where(found, reach, better)


def _fast_path(
    candidates: Bool, flops: F64, memory: F64, duration: F64, ceilings: Ceilings
) -> tuple[Bool, F64]:
    """Work on the vector pipe that the device's tensor cores could do."""
    better = np.full(len(flops), np.nan)
    fast = fast_format(ceilings)
    if fast is None:
        return np.zeros(len(flops), bool), better
    reach = np.maximum(1e9 * flops / ceilings.flops[fast], memory)
    better[candidates] = np.fmin(reach, duration)[candidates]
    return candidates, better


WIDER = 2.0  # times the bytes that the same numbers take in fp32


def _wider_path(
    candidates: Bool, math_index: I8, flops: F64, nbytes: F64, duration: F64, ceilings: Ceilings
) -> tuple[Bool, F64]:
    """16-bit products on cores that do fp32 ones faster, though those move twice the bytes."""
    found, better = np.zeros(len(flops), bool), np.full(len(flops), np.nan)
    memory = 1e9 * WIDER * nbytes / (ceilings.bandwidth or np.nan)
    for now in SIXTEEN_BITS:
        fast = fast_format(ceilings, now)
        if fast is not None:
            reach = np.fmax(1e9 * flops / ceilings.flops[fast], memory)
            mine = candidates & _is_math(math_index, (now,)) & (reach < NEAR * duration)
            better[mine] = reach[mine]
            found |= mine
    return found, better


def _above_spec(rows: Rows, shares: Shares, done: F64, math_index: I8, ceilings: Ceilings) -> Bool:
    """Implied rates that the hardware does not have. What fits in cache may well beat DRAM."""
    seconds = np.maximum(rows.duration, 1.0) / 1e9
    arithmetic = done / seconds > (1 + WORTH_IT) * _ceiling(ceilings.spec_flops, math_index)
    traffic = shares.nbytes / seconds > (1 + WORTH_IT) * (ceilings.spec_bandwidth or np.nan)
    traffic &= shares.nbytes > (ceilings.l2_bytes or 0)
    return np.asarray(arithmetic | traffic)
