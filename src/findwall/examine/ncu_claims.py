"""What is said of one kernel that Nsight Compute counted, and what helps."""

from __future__ import annotations

from findwall.attribute.ncu_kernels import Judged
from findwall.model.claims import Claim, Figure, known
from findwall.units import NS_PER_MS


def judged(one: Judged, named: bool = False) -> Claim:
    """`named`: with the kernel's name, where that is not said beside it."""
    kernel = one.kernel
    figures: dict[str, Figure] = {
        "calls": one.calls,
        "total_ms": one.total_ns / NS_PER_MS,
        "dram_share": kernel.dram,
        "tensor_share": kernel.tensor,
        "sm_share": kernel.sm,
        "memory_share": kernel.memory,
        "wasted_share": kernel.wasted,
        "spills": kernel.spills,
        "waves_share": kernel.waves,
        "conflicts_share": kernel.bank_conflicts,
        "warps_share": kernel.most_occupancy,
        "stall_share": kernel.stall_share,
        **_limits(one),
    }
    return Claim(f"ncu/{one.why}", figures, known(stall=kernel.stall, kernel=kernel.name if named else None))


def helps(one: Judged) -> Claim:
    return Claim(f"ncu-helps/{one.why}", _limits(one) if one.why == "occupancy" else {})


def _limits(one: Judged) -> dict[str, Figure]:
    """What lets no more warps run."""
    return {f"limit{at}": limit for at, limit in enumerate(one.kernel.limited_by, 1)}
