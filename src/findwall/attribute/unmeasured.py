"""Cores whose ceilings nobody measured: what the ops' own sizes and times tell all the same.

Whether arithmetic or memory holds an op up follows from its FLOPs a byte, where those lie far from what any
cores balance. Beyond that an op is taken to run as fast as the cores it has can: nothing is claimed back of
it but what cores that stand idle could take over, and the passes over memory that fusing saves.
"""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from findwall.attribute.kernels import BOUNDS, KernelTable
from findwall.model.catalogue import KERNEL_CLASSES, MATRIX_CLASSES, NEAR
from findwall.model.machine import Telemetry
from findwall.units import NS_PER_S

# What one core does a second in fp32, and what memory it has for itself: the slowest and the fastest.
CORE_FLOPS = (30e9, 150e9)
CORE_BYTES = (3e9, 20e9)
# FLOPs a byte that no core balances.
MEMORY_BOUND_BELOW, COMPUTE_BOUND_ABOVE = CORE_FLOPS[0] / CORE_BYTES[1], CORE_FLOPS[1] / CORE_BYTES[0]
# What one pass over memory is no matter of: their passes are counted where they could be fused.
FUSED_CLASSES = ("pointwise", "copy", "gather", "optimizer")
# A product this short is over before its cores are up to speed. Chosen by hand, not calibrated.
SHORT_PRODUCT_NS = 5_000


def taken_at_their_word(kernels: KernelTable, used: float | None) -> KernelTable:
    """The table with regimes and floors as far as they need no ceiling. `used`: share of the cores."""
    intensity = np.divide(
        kernels.flops, kernels.bytes, out=np.full(len(kernels.row), np.nan), where=kernels.bytes > 0
    )
    matrix = np.isin(kernels.class_index, [KERNEL_CLASSES.index(name) for name in MATRIX_CLASSES])
    short = matrix & (kernels.duration <= SHORT_PRODUCT_NS) & kernels.modelled
    arithmetic = matrix & ~short & (intensity > COMPUTE_BOUND_ABOVE)
    memory = kernels.modelled & ~short & (~matrix | (intensity < MEMORY_BOUND_BELOW))
    bound = kernels.bound.copy()
    for where, name in ((short, "latency"), (arithmetic, "compute"), (memory, "bandwidth")):
        bound[where] = BOUNDS.index(name)
    floor = kernels.floor.copy()
    floor[short] = 0.0
    floor[memory] = kernels.duration[memory]
    # Nobody measured the memory, but no memory is that slow.
    least = kernels.bytes / CORE_BYTES[0] * NS_PER_S
    plain = ~np.isin(kernels.class_index, [KERNEL_CLASSES.index(name) for name in FUSED_CLASSES])
    crawls = memory & plain & (least < NEAR * kernels.duration)
    floor[crawls] = least[crawls]
    floor[arithmetic] = kernels.duration[arithmetic] * (1.0 if used is None else used)
    return replace(kernels, bound=bound, floor=floor)


def cores_at_work(telemetry: Telemetry, busy_share: float) -> float | None:
    """The most of its cores that the job can have used while it computed; None where nobody counted.

    All its CPU time is taken to lie in its ops: what Python, workers and spinning threads used is in it.
    """
    cpu = telemetry.cpu
    if cpu is None or not cpu.cores or cpu.own_busy is None or cpu.others_busy is None or busy_share <= 0:
        return None
    return min(cpu.own_busy / busy_share / cpu.cores, 1.0)
