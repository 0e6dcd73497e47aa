"""Kernels that Nsight Compute counted: what binds each, and what helps."""

from __future__ import annotations

from findwall.model.claims import Claim
from findwall.report.words import Words, fill, number, spoken
from findwall.units import format_ms, format_share

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
LIMITS = {
    "registers": "fewer registers per thread (smaller tiles)",
    "shared memory": "less shared memory per block",
    "block size": "smaller blocks",
    "blocks per multiprocessor": "larger blocks",
    "barriers": "fewer barriers",
}
# What fills the kernel time, by cause; the longest kernel's own sentence says why.
GOES_TO = {
    "at-the-roof": "kernels that run at the roof of their arithmetic",
    "memory-roof": "kernels that run at the memory roof",
    "misaligned-shapes": "16-bit products whose operands do not lie on 16 bytes",
    "fast-path-off": "fp32 products that leave the tensor cores unused",
    "layout-copies": "copies that only change a layout",
    "gather-scatter": "gathers and scatters far from the memory roof",
    "slow-kernels": "kernels far below what the device can do",
    "launch-bound": "kernels too small to use the device",
}
MORE_COUNTERS = "Profile it with `ncu --set full` and export with --page raw."
DRAM = "it uses {dram_share:share} of the DRAM bandwidth"


def _judged(claim: Claim) -> str:
    """Number first; what it means last."""
    calls = int(number(claim, "calls"))
    time = format_ms(number(claim, "total_ms")) + (f" in {calls:,} calls" if calls != 1 else "")
    what = WHAT[claim.id.removeprefix("ncu/")]
    return fill(f"{time}[[ in {{kernel}}]]: {what}.", claim, **_said(claim))


def _said(claim: Claim) -> dict[str, str]:
    tensor, sm = claim.figures.get("tensor_share"), claim.figures.get("sm_share")
    stall = claim.names.get("stall", "")
    busiest = max(number(claim, key) for key in ("dram_share", "sm_share", "memory_share"))
    return {
        "tensor": format_share(number(claim, "tensor_share"))
        if tensor is not None
        else f"at most {format_share(sm if isinstance(sm, float) else None)}",
        "busiest": f"at most {format_share(busiest)}",
        "limits": " and ".join(_limits(claim)),
        "stalled": STALLS.get(stall, (stall or "unknown").replace("_", " ")),
    }


def _limits(claim: Claim) -> list[str]:
    return [str(value) for key, value in claim.figures.items() if key.startswith("limit")]


def _occupancy(claim: Claim) -> str:
    return f"Let more warps run at once: {' and '.join(LIMITS[one] for one in _limits(claim))}."


def _fills(claim: Claim) -> str:
    cause = GOES_TO[str(claim.figures["cause"])]
    return fill(
        f"{{spent_ms:ms}} of the {{total_ms:ms}} of kernel time ({{spent_share:share}}) goes to {cause}",
        claim,
    )


def _wall(claim: Claim) -> str:
    saves = f"that saves up to {format_ms(number(claim, 'saves_ms'))}"
    return f"{_fills(claim)}. {spoken(claim.parts[0]).rstrip('.')}; {saves}."


def _roof(claim: Claim) -> str:
    rest = f"no other cause recovers {100 * number(claim, 'worth_share'):.0f} %"
    if "beside" in claim.figures:
        rest = fill("{beside} could give back only {gain_ms:ms}", claim)
    return f"{_fills(claim)}, and {rest}. {spoken(claim.parts[0])}"


def _no_roof(claim: Claim) -> str:
    worth = f"{100 * number(claim, 'worth_share'):.0f} %"
    return fill(
        f"No cause recovers {worth} of the {{total_ms:ms}} of kernel time, and no kernels run at a roof, "
        f"so there is "
        "no wall in them. Look at the gaps between them: `findwall run` measures the step.",
        claim,
    )


def _saves(claim: Claim) -> str:
    return fill("{parts[0]} That saves up to {saves_ms:ms} of the {total_ms:ms} of kernel time.", claim)


WHAT = {
    "product-roof": "the tensor cores are {tensor_share:share} busy, so it runs at the roof",
    "memory-roof": DRAM + ", so it runs at the memory roof",
    "cache-roof": "the caches are {memory_share:share} busy with accesses that are all needed",
    "vector-roof": "its arithmetic pipes are {sm_share:share} busy, so it runs at their roof",
    "misaligned": "the tensor cores are {tensor} busy, because its 16-bit operands do not lie on 16 bytes "
    "and an "
    "older kernel serves them",
    "fast-path-off": "an fp32 product keeps the vector pipe {sm_share:share} busy, the tensor cores not",
    "too-small": "it uses {busiest} of any unit, so it only pays for its start",
    "unknown": "its counters for DRAM and multiprocessors were not collected, so its bound is unknown",
    "no-tensor-counter": "a pipe is {sm_share:share} busy, but no counter says whether the tensor cores "
    "are, and "
    "with which instructions",
    "no-sector-counter": "a cache is {memory_share:share} busy, but no counter says whether it must be",
    "uncoalesced": DRAM + ", and {wasted_share:share} of the sectors it moves are wasted (uncoalesced)",
    "spills": DRAM + ", and {spills:,.0f} requests go to registers spilled to memory",
    "few-blocks": DRAM + ", because its blocks fill {waves_share:share} of the device",
    "bank-conflicts": DRAM
    + ", and {conflicts_share:share} of its accesses to shared memory are bank conflicts",
    "occupancy": DRAM + ", because {limits} let only {warps_share:share} of the warps run at once",
    "stall": DRAM + ", because its warps wait[[ for {stall_share:share} of their time]] for {stalled}",
    "slow": DRAM + " and {sm_share:share} of the multiprocessors",
}
WORDS: dict[str, Words] = {
    **{f"ncu/{why}": _judged for why in WHAT},
    "ncu-helps/product-roof": "Only a narrower format, fewer products or a faster GPU shortens it.",
    "ncu-helps/memory-roof": "Only fewer bytes shorten it: fuse it with its neighbours, or store narrower "
    "values.",
    "ncu-helps/cache-roof": "Only fewer accesses shorten it: fuse it with its neighbours, or keep values "
    "in registers.",
    "ncu-helps/vector-roof": "Only fewer instructions shorten it: cheaper functions, wider loads, 32-bit "
    "indices.",
    "ncu-helps/misaligned": "Pad the dimensions of the operands to multiples of 8.",
    "ncu-helps/fast-path-off": "Let the tensor cores do it: TF32 "
    "(torch.set_float32_matmul_precision('high')) or bf16.",
    "ncu-helps/uncoalesced": "Let neighbouring threads read neighbouring addresses: go through shared "
    "memory, or keep "
    "the layout that the next op reads.",
    "ncu-helps/spills": "Give each thread less to hold: smaller tiles, or more registers per thread "
    "(fewer threads per "
    "block).",
    "ncu-helps/few-blocks": "Split the work into more blocks, or batch several of these calls.",
    "ncu-helps/bank-conflicts": "Pad or swizzle the tile in shared memory.",
    "ncu-helps/too-small": "Merge it with its neighbours (torch.compile, a CUDA graph), or give it more "
    "work.",
    "ncu-helps/stall": "Give each thread more independent work, or use a kernel that does.",
    "ncu-helps/slow": "Use another kernel for it: torch.compile, a library's, or your own.",
    "ncu-helps/occupancy": _occupancy,
    **{f"ncu-helps/{why}": MORE_COUNTERS for why in ("unknown", "no-tensor-counter", "no-sector-counter")},
    "kernels/wall": _wall,
    "kernels/roof": _roof,
    "kernels/no-roof": _no_roof,
    "kernels/no-counters": "{blind_share:share} of the kernel time goes to kernels whose counters do not "
    "tell what "
    "binds them. " + MORE_COUNTERS,
    "kernels/no-floor": "{blind_share:share} of the kernel time goes to kernels whose floor is unknown, "
    "because the "
    "file does not say enough of its GPU and their instructions. Export with --page raw, or give this GPU's "
    "ceilings with --ceilings.",
    "kernels/saves": _saves,
    "kernels/no-gaps": "This is a verdict over kernel time: Nsight Compute runs kernels one at a time, so "
    "gaps "
    "between them, overlap and the step are unknown. `findwall run` measures those.",
    "kernels/fewer-figures": "The details page does not print every counter. `ncu --import FILE.ncu-rep "
    "--csv "
    "--page raw` writes all that were collected.",
    "kernels/no-steps": "Kernels alone have no steps.",
    "kernels/no-gaps-here": "Kernels alone have no gaps.",
    "kernels/matmul": "{matmul_share:share} of the kernel time is matmul, convolution or attention.",
    "kernels/peak-unknown": "It is unknown how near the ceiling the matmuls run: some of their counters are "
    "missing.",
    "kernels/peak": "The matmuls use {reached_share:share} of what tensor cores or memory can reach, by "
    "their "
    "counters.",
}
