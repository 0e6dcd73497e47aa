"""What this machine can really do, measured. Nothing here imports torch until a measurement begins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from findwall.machine.ceilings.cache import cached_ceilings, cached_report, kept_gpus, store
from findwall.machine.ceilings.measured_report import CeilingsReport, CurvePoint, Rate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from findwall.machine.ceilings.gemm import Shape

__all__ = [
    "CeilingsReport",
    "CurvePoint",
    "Rate",
    "cached_ceilings",
    "cached_report",
    "kept_gpus",
    "measure_ceilings",
    "store",
]


def measure_ceilings(
    device: str | int | None = None, budget_s: float = 30.0, shapes: Sequence[Shape] | None = None
) -> CeilingsReport:
    """Measure the ceilings of one device: the first GPU, or the CPU's cores where torch sees no GPU.

    Takes at most about `budget_s` seconds: the sustained runs shrink with it, and what no longer fits is left
    out and named in the notes. `shapes` are a job's own matmuls (m, n, k), timed beside the large one.
    """
    from findwall.machine.ceilings.suite import run_suite

    return run_suite(device, budget_s, tuple(shapes or ()))
