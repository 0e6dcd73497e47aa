"""Memory bandwidth, host-device copies, and FLOP/s against arithmetic intensity."""

from __future__ import annotations

from typing import Any

import msgspec

from findwall.machine.ceilings.clocks_used import Allowance, Clock, HostClock, Work
from findwall.machine.ceilings.gemm import matmul
from findwall.machine.ceilings.measured_report import CurvePoint, Rate, rate_of
from findwall.units import MIB

CURVE_SIDE = 8192
CORE_CURVE_SIDE = 1024
CURVE_DEPTHS = (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)


def buffer_bytes(cache_bytes: int, free_bytes: int, on_gpu: bool) -> int:
    """So large that what the cache keeps from one pass to the next is a percent or two."""
    wanted = max(64 * cache_bytes, 1024 * MIB) if on_gpu else min(max(2 * cache_bytes, 64 * MIB), 256 * MIB)
    return max(min(wanted, free_bytes // 8) // MIB, 1) * MIB


def device_memory(torch: Any, device: Any, size: int) -> dict[str, tuple[Work, int, str]]:
    """Name → work, bytes moved, how. Copy counts what it reads and what it writes."""
    if device.type == "cpu":
        return _triad(torch, size)
    source = torch.randn(size // 4, device=device)
    target = torch.empty_like(source)
    total = torch.empty((), device=device)
    moved = f"{size // MIB} MiB"
    return {
        "read": (lambda: torch.sum(source, dim=0, out=total), size, f"sum of {moved}"),
        "write": (lambda: target.fill_(1.7), size, f"fill of {moved}"),
        "copy": (lambda: target.copy_(source), 2 * size, f"{moved} copied, read plus write"),
        "scale": (lambda: torch.mul(source, 1.7, out=target), 2 * size, f"{moved} scaled, read plus write"),
    }


def _triad(torch: Any, size: int) -> dict[str, tuple[Work, int, str]]:
    first, second = torch.full((size // 4,), 0.3), torch.full((size // 4,), 0.7)
    target = torch.zeros_like(first)
    how = f"a = b + s c over {size // MIB} MiB each"
    return {"triad": (lambda: torch.add(first, second, alpha=1.7, out=target), 3 * size, how)}


def bandwidth_bursts(clock: Clock, works: dict[str, tuple[Work, int, str]]) -> dict[str, Rate]:
    rates = {}
    for name, (work, moved, how) in works.items():
        times = clock.each(work, 10 if name != "triad" else 5, warm=3)
        rates[name] = rate_of(name, "bytes/s", moved, times, how)
    return rates


def better_copy(
    works: dict[str, tuple[Work, int, str]], rates: dict[str, Rate]
) -> tuple[dict[str, tuple[Work, int, str]], dict[str, Rate]]:
    """The driver's copy and a plain kernel move the same bytes: keep the better of the two as "copy"."""
    if "scale" not in rates:
        return works, rates
    best = max(("copy", "scale"), key=lambda name: rates[name].burst or 0.0)
    kept = {"read": works["read"], "write": works["write"], "copy": works[best]}
    renamed = msgspec.structs.replace(rates[best], name="copy")
    return kept, {"read": rates["read"], "write": rates["write"], "copy": renamed}


COPIED_BYTES = 256 * MIB  # between host and device


def host_copies(torch: Any, device: Any) -> list[Rate]:
    """Host to device and back, from pageable and from pinned memory, as a job sees them (host clock)."""
    on_device = torch.randn(COPIED_BYTES // 4, device=device)
    rates = []
    for kind in ("pinned", "pageable"):
        on_host = torch.randn(COPIED_BYTES // 4)
        if kind == "pinned":
            on_host = on_host.pin_memory()
        for way, target, source in (("h2d", on_device, on_host), ("d2h", on_host, on_device)):

            def work(target: Any = target, source: Any = source) -> None:
                target.copy_(source, non_blocking=True)
                torch.cuda.synchronize(device)

            work()
            times = HostClock().each(work, 5)
            rates.append(
                rate_of(f"{way} {kind}", "bytes/s", COPIED_BYTES, times, f"{COPIED_BYTES // MIB} MiB")
            )
    return rates


def intensity_curve(
    torch: Any, device: Any, clock: Clock, kind: str, side: int, allowance: Allowance
) -> list[CurvePoint]:
    """Thin to thick matmuls, and below them a sum of two vectors: memory-bound on the left, then the bend.

    Bytes are those that cannot be avoided: both operands read once, the result written once. It ends early
    when the time is up.
    """
    width = 2 if kind in ("fp16", "bf16") else 4
    dtype = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(kind, torch.float32)
    first = torch.randn(side * side, device=device).to(dtype)
    second = first.flip(0)
    out = torch.empty_like(first)
    count = side * side
    points = [_point(clock, lambda: torch.add(first, second, out=out), count, 3 * count * width)]
    for depth in CURVE_DEPTHS:
        if depth > side or allowance.left_s <= 0:
            break
        work = matmul(torch, device, kind, (side, side, depth))
        flops = 2.0 * side * side * depth
        moved = width * (2.0 * side * depth + side * side)
        points.append(_point(clock, work, flops, moved))
    return points


def _point(clock: Clock, work: Work, flops: float, moved: float) -> CurvePoint:
    times = sorted(clock.each(work, 5, warm=2))
    seconds = times[len(times) // 2]
    return CurvePoint(intensity=flops / moved, flops=flops / seconds, bandwidth=moved / seconds)
