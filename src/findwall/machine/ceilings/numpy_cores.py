"""The CPU's cores as the device: its name, and ceilings by numpy where there is no torch."""

from __future__ import annotations

import datetime
import os
import platform
from pathlib import Path

from findwall.machine.ceilings.clocks_used import Allowance, HostClock, Work
from findwall.machine.ceilings.gemm import Shape
from findwall.machine.ceilings.measured_report import CeilingsReport, Rate, rate_of, with_sustained
from findwall.model.machine import CORES, Ceilings
from findwall.units import MIB

COPIED_BYTES = 128 * MIB  # more than a cache holds


def core_name() -> str:
    """The CPU's model and the cores this process may use: both decide what it can do."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return f"{_model()}, {cores}{CORES}"


def _model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name" and value.strip():
                return " ".join(value.split())
    except OSError:
        pass
    return platform.processor() or platform.machine() or "CPU"


def last_level_cache() -> int:
    """Bytes of the largest cache beside the first core; a usual size where the kernel does not say."""
    sizes = [32 * MIB]
    for path in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")):
        try:
            text = path.read_text().strip()
            sizes.append(int(text[:-1]) * {"K": 1024, "M": MIB}[text[-1]])
        except (OSError, ValueError, KeyError, IndexError):
            continue
    return max(sizes)


def measure_without_torch(allowance: Allowance, shapes: tuple[Shape, ...]) -> CeilingsReport:
    """fp32 matmul and copy bandwidth by numpy."""
    import numpy as np

    clock = HostClock(allowance.burst_s, allowance.now)
    random = np.random.default_rng(0)

    def matmul(m: int, n: int, k: int) -> tuple[Work, float]:
        a = random.standard_normal((m, k), dtype=np.float32)
        b = random.standard_normal((k, n), dtype=np.float32)
        out = np.empty((m, n), dtype=np.float32)
        return (lambda: np.matmul(a, b, out=out)), 2.0 * m * n * k

    def timed(name: str, unit: str, work: Work, amount: float, what: str) -> Rate:
        rate = rate_of(name, unit, amount, clock.each(work, 5, warm=1), what)
        return with_sustained(rate, amount / clock.run(work, allowance.sustained_s))

    work, flops = matmul(1024, 1024, 1024)
    gemm = timed("fp32", "FLOP/s", work, flops, "1024 x 1024 x 1024")
    source = random.standard_normal(COPIED_BYTES // 4, dtype=np.float32)
    target = np.empty_like(source)
    what = f"{COPIED_BYTES // MIB} MiB, one core"
    copy = timed("copy", "bytes/s", lambda: np.copyto(target, source), 2.0 * source.nbytes, what)
    own = []
    for m, n, k in shapes:
        work, flops = matmul(m, n, k)
        times = clock.each(work, 5, warm=1)
        own.append(rate_of("fp32", "FLOP/s", flops, times, f"{m} x {n} x {k}"))
    created = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    return CeilingsReport(
        ceilings=Ceilings(
            device=core_name(),
            source="measured",
            origin=f"measured on {created[:10]} with numpy {np.__version__}, without torch",
            flops={"fp32": gemm.figure} if gemm.figure is not None else {},
            bandwidth=copy.figure,
        ),
        created=created,
        seconds=allowance.spent_s,
        matmul=(gemm,),
        memory=(copy,),
        shapes=tuple(own),
        notes=("Measured with numpy; torch may use the cores differently.",),
    )
