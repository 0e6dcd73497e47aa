"""Matmul FLOP/s by math type: random data, L2 flushed between the runs of a burst."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from findwall.errors import InputError
from findwall.machine.ceilings.clocks_used import Clock, Work
from findwall.machine.ceilings.measured_report import Rate, rate_of

Shape = tuple[int, int, int]  # m, n, k

SIDES = (8192, 6144, 4096, 2048, 1024, 512)
# Cores that must emulate a type (bf16 on an older CPU: under 0.1 GFLOP/s) finish nothing larger in time. Only
# then: threads that wait for each other on a busy machine make a small matmul slow, not a large one.
SLOW_SIDES = (512, 256, 128, 64)
SLOWEST_MATMUL_S = 0.2
# Small ones that tell how long a large one would take.
GPU_PROBES = (1024,)
CORE_PROBES = (64, 128, 256)
# A single matmul should take no longer: ten of a burst then stay within half a second.
LONGEST_MATMUL_S = 0.04
# A small matmul runs well below the ceiling of a large one: a factor of three is usual.
SMALL_MATMUL_LOSS = 3
# What a square matmul may hold: five matrices of 4 bytes an element, in half the free memory. A job's own
# shape is refused only where it surely does not fit. All chosen by hand.
SQUARE_BYTES = 4 * 5
MEMORY_SHARE = 0.5
SHAPE_BYTES = 6


def math_types(torch: Any, device: Any) -> tuple[list[str], list[str]]:
    """The math types this device has hardware for, and why others are left out. Of cores those that jobs
    multiply in: only measuring tells which of them these have hardware for."""
    if device.type != "cuda":
        return ["fp32", "bf16", "fp16"], []
    if torch.version.hip:
        # hipBLASLt uses XF32 only when asked to by a variable, so "tf32" would silently measure fp32.
        return ["fp32", "fp16", "bf16", "fp8"], ["TF32 is not measured on ROCm."]
    capability = torch.cuda.get_device_capability(device)
    kinds = ["fp32"] + (["tf32"] if capability >= (8, 0) else []) + ["fp16"]
    kinds += ["bf16"] if capability >= (8, 0) else []
    kinds += ["fp8"] if capability >= (8, 9) else []
    return kinds, []


@contextlib.contextmanager
def fp32_precision(torch: Any, tf32: bool) -> Iterator[None]:
    """TF32 on or off for the matmuls inside, whichever of the two ways this torch has; then as it was."""
    flags = torch.backends.cuda.matmul
    # The older flag must not be touched where the newer one exists: torch refuses a mixture of both.
    newer = hasattr(flags, "fp32_precision")
    name = "fp32_precision" if newer else "allow_tf32"
    value = ("tf32" if tf32 else "ieee") if newer else tf32
    before = getattr(flags, name)
    setattr(flags, name, value)
    try:
        yield
    finally:
        setattr(flags, name, before)


def matmul(torch: Any, device: Any, kind: str, shape: Shape) -> Work:
    """One matmul with its operands ready: normal random data, as a job's would be."""
    m, n, k = shape
    left = torch.randn(m, k, device=device)
    right = torch.randn(n, k, device=device)
    if kind == "fp8":
        return _fp8_matmul(torch, device, left, right)
    dtype = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(kind, torch.float32)
    a, b = left.to(dtype), right.to(dtype).t()
    out = torch.empty(m, n, device=device, dtype=dtype)
    return lambda: torch.mm(a, b, out=out)


def _fp8_matmul(torch: Any, device: Any, left: Any, right: Any) -> Work:
    # CDNA 3 has its own fp8 encoding, without negative zero; everyone else uses the OCP one.
    architecture = getattr(torch.cuda.get_device_properties(device), "gcnArchName", "")
    dtype = torch.float8_e4m3fnuz if architecture.startswith("gfx94") else torch.float8_e4m3fn
    a, b = left.to(dtype), right.to(dtype).t()
    one = torch.ones((), device=device)
    return lambda: torch._scaled_mm(
        a, b, scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=True
    )


def fitting_side(torch: Any, device: Any, clock: Clock, kind: str, free_bytes: int) -> int:
    """The largest side whose square matmul is short enough and fits, judged by a small one."""
    on_gpu = device.type == "cuda"
    probe, seconds = _probe(torch, device, clock, kind, GPU_PROBES if on_gpu else CORE_PROBES)
    for side in SIDES:
        if SQUARE_BYTES * side**2 > MEMORY_SHARE * free_bytes:
            continue
        if seconds * (side / probe) ** 3 / SMALL_MATMUL_LOSS <= LONGEST_MATMUL_S:
            return side
    if on_gpu:
        return SIDES[-1]
    slow = (side for side in SLOW_SIDES if seconds * (side / probe) ** 3 <= SLOWEST_MATMUL_S)
    return next(slow, SLOW_SIDES[-1])


def _probe(torch: Any, device: Any, clock: Clock, kind: str, sides: tuple[int, ...]) -> tuple[int, float]:
    """The first of these sides whose matmul is long, or the last; and the seconds it takes."""
    probe, seconds = sides[0], 0.0
    for side in sides:
        work = matmul(torch, device, kind, (side, side, side))
        probe, seconds = side, min(clock.each(work, 10, warm=1))
        if seconds > LONGEST_MATMUL_S:
            break
    return probe, seconds


def burst(clock: Clock, kind: str, work: Work, shape: Shape, flush: Work | None) -> Rate:
    m, n, k = shape
    times = clock.each(work, 10, before=flush, warm=3)
    return rate_of(kind, "FLOP/s", 2.0 * m * n * k, times, f"{m} x {n} x {k}")


def checked_shapes(shapes: tuple[Shape, ...], free_bytes: int) -> tuple[Shape, ...]:
    """A job's shapes, refused in words when they cannot be run here."""
    for shape in shapes:
        if len(shape) != 3 or min(shape) < 1:
            raise InputError(f"{shape} is not a matmul shape.", "Give three positive sizes: M,N,K.")
        m, n, k = shape
        if SHAPE_BYTES * (m * k + n * k + m * n) > free_bytes:
            raise InputError(f"A matmul of {m} x {n} x {k} does not fit into the free memory.")
    return shapes
