"""What a person reads about one kernel that Nsight Compute counted: one sentence, and what helps."""

from __future__ import annotations

from findwall.attribute.ncu_kernels import Judged
from findwall.model.ncu import NcuKernel
from findwall.units import NS_PER_MS, format_ms, format_share

# What a warp waits for, by the name of the stall's metric.
STALLS = {
    "long_scoreboard": "loads from global memory",
    "short_scoreboard": "shared memory or special functions",
    "barrier": "other warps at a barrier",
    "membar": "a memory barrier",
    "lg_throttle": "the full queue of loads and stores",
    "mio_throttle": "the full queue to shared memory",
    "tex_throttle": "the full queue of texture loads",
    "math_pipe_throttle": "a busy arithmetic pipe",
    "wait": "the instruction before",
    "drain": "its last stores",
    "no_instruction": "instructions to be fetched",
    "imc_miss": "constants",
    "branch_resolving": "branches",
    "dispatch_stall": "the dispatcher",
    "gmma": "the tensor cores",
    "warpgroup_arrive": "the tensor cores",
    "sleeping": "a sleep of its own",
}
HELPS = {
    "product-roof": "Only a narrower format, fewer products or a faster GPU shortens it.",
    "memory-roof": "Only fewer bytes shorten it: fuse it with its neighbours, or store narrower values.",
    "cache-roof": "Only fewer accesses shorten it: fuse it with its neighbours, or keep values in registers.",
    "vector-roof": "Only fewer instructions shorten it: cheaper functions, wider loads, 32-bit indices.",
    "misaligned": "Pad the dimensions of the operands to multiples of 8.",
    "fast-path-off": "Let the tensor cores do it: TF32 (torch.set_float32_matmul_precision('high')) or bf16.",
    "uncoalesced": "Let neighbouring threads read neighbouring addresses: go through shared memory, or keep "
    "the layout that the next op reads.",
    "spills": "Give each thread less to hold: smaller tiles, or more registers per thread (fewer threads per "
    "block).",
    "few-blocks": "Split the work into more blocks, or batch several of these calls.",
    "bank-conflicts": "Pad or swizzle the tile in shared memory.",
    "too-small": "Merge it with its neighbours (torch.compile, a CUDA graph), or give it more work.",
    "stall": "Give each thread more independent work, or use a kernel that does.",
    "slow": "Use another kernel for it: torch.compile, a library's, or your own.",
}
MORE_COUNTERS = "Profile it with `ncu --set full` and export with --page raw."
UNKNOWN_HELPS = {
    "unknown": MORE_COUNTERS,
    "no-tensor-counter": MORE_COUNTERS,
    "no-sector-counter": MORE_COUNTERS,
}


def sentence(one: Judged, where: str = "") -> str:
    """Number first; what it means last. `where`: the kernel, where that is not said beside it."""
    return f"{_time(one)}{f' in {where}' if where else ''}: {_what(one)}."


def helps(one: Judged) -> str:
    if one.why == "occupancy":
        return _less(one.kernel)
    return {**HELPS, **UNKNOWN_HELPS}[one.why]


def _time(one: Judged) -> str:
    told = format_ms(one.total_ns / NS_PER_MS)
    return told if one.calls == 1 else f"{told} in {one.calls:,} calls"


def _what(one: Judged) -> str:
    kernel = one.kernel
    dram = f"{format_share(kernel.dram)} of the DRAM bandwidth"
    match one.why:
        case "product-roof":
            return f"the tensor cores are {format_share(kernel.tensor)} busy, so it runs at the roof"
        case "memory-roof":
            return f"it uses {dram}, so it runs at the memory roof"
        case "cache-roof":
            return f"the caches are {format_share(kernel.memory)} busy with accesses that are all needed"
        case "vector-roof":
            return f"its arithmetic pipes are {format_share(kernel.sm)} busy, so it runs at their roof"
        case "misaligned":
            return (
                f"the tensor cores are {_tensor(kernel)} busy, because its 16-bit operands do not lie on 16 "
                "bytes and an older kernel serves them"
            )
        case "fast-path-off":
            return (
                f"an fp32 product keeps the vector pipe {format_share(kernel.sm)} busy, the tensor cores not"
            )
        case "too-small":
            return f"it uses {_busiest(kernel)} of any unit, so it only pays for its start"
        case "unknown":
            return "its counters for DRAM and multiprocessors were not collected, so its bound is unknown"
        case "no-tensor-counter":
            return (
                f"a pipe is {format_share(kernel.sm)} busy, but no counter says whether the tensor cores "
                "are, and with which instructions"
            )
        case "no-sector-counter":
            return f"a cache is {format_share(kernel.memory)} busy, but no counter says whether it must be"
    return f"it uses {dram}{_reason(one)}"


def _reason(one: Judged) -> str:
    kernel = one.kernel
    match one.why:
        case "uncoalesced":
            return f", and {format_share(kernel.wasted)} of the sectors it moves are wasted (uncoalesced)"
        case "spills":
            return f", and {kernel.spills:,.0f} requests go to registers spilled to memory"
        case "few-blocks":
            return f", because its blocks fill {_waves(kernel)} of the device"
        case "bank-conflicts":
            share = format_share(kernel.bank_conflicts)
            return f", and {share} of its accesses to shared memory are bank conflicts"
        case "occupancy":
            limits = " and ".join(kernel.limited_by)
            return (
                f", because {limits} let only {format_share(kernel.most_occupancy)} of the warps run at once"
            )
        case "stall":
            share = f" for {format_share(kernel.stall_share)} of their time" if kernel.stall_share else ""
            return f", because its warps wait{share} for {stall_words(kernel)}"
    return f" and {format_share(kernel.sm)} of the multiprocessors"


def stall_words(kernel: NcuKernel) -> str:
    return STALLS.get(kernel.stall or "", (kernel.stall or "unknown").replace("_", " "))


def _tensor(kernel: NcuKernel) -> str:
    return format_share(kernel.tensor) if kernel.tensor is not None else f"at most {format_share(kernel.sm)}"


def _busiest(kernel: NcuKernel) -> str:
    return f"at most {format_share(max(kernel.dram or 0.0, kernel.sm or 0.0, kernel.memory or 0.0))}"


def _waves(kernel: NcuKernel) -> str:
    return format_share(kernel.waves)


def _less(kernel: NcuKernel) -> str:
    advice = {
        "registers": "fewer registers per thread (smaller tiles)",
        "shared memory": "less shared memory per block",
        "block size": "smaller blocks",
        "blocks per multiprocessor": "larger blocks",
        "barriers": "fewer barriers",
    }
    return f"Let more warps run at once: {' and '.join(advice[one] for one in kernel.limited_by)}."
