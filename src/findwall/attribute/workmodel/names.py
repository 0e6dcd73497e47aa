"""What a kernel's own name and launch shape give away, where no op's shapes were recorded."""

from __future__ import annotations

import functools
import re

from findwall.attribute.workmodel.work import Work
from findwall.model.events import Launch

_OPERANDS = re.compile(r"array<char\*, (\d+)")
_OPAQUE = re.compile(r"opaquetype<(\d+)u?l?>")
_TYPES = (
    (re.compile(r"bfloat16|__nv_bfloat16|\bbf16\b"), 2),
    (re.compile(r"c10::half|__half|\bhalf\b|float16"), 2),
    (re.compile(r"float8|e4m3|e5m2"), 1),
    (re.compile(r"\bdouble\b"), 8),
    (re.compile(r"\bfloat\b"), 4),
    (re.compile(r"\blong\b"), 8),
    (re.compile(r"\bint\b"), 4),
    (re.compile(r"\bbool\b|\bchar\b"), 1),
)
_UNROLLED = re.compile(
    r"(?:elementwise_kernel|elementwise_kernel_manual_unroll|index_elementwise_kernel)<(\d+), (\d+)"
)
# Elements a thread of a vectorised kernel takes: 4 in older launchers, 8 in those with 8-wide loads.
_NARROW, _WIDE = 4, 8


@functools.lru_cache(maxsize=65536)
def item_size_in_name(kernel_name: str) -> int | None:
    """Bytes of the first element type that the template arguments name."""
    name = kernel_name.lower()
    opaque = _OPAQUE.search(name)
    if opaque:
        return int(opaque.group(1))
    # The functor's own arguments come first; the parameter list after the closing bracket names counters.
    template = name.split("(int, ", 1)[0]
    best: tuple[int, int] | None = None
    for pattern, size in _TYPES:
        found = pattern.search(template)
        if found and (best is None or found.start() < best[0]):
            best = (found.start(), size)
    return best[1] if best else None


def elementwise_work(kernel_name: str, launch: Launch | None, wide: bool = False) -> Work | None:
    """A TensorIterator kernel: blocks times elements a block, times the operands' size."""
    if (
        launch is None
        or launch.grid is None
        or launch.block is None
        or "elementwise_kernel" not in kernel_name
    ):
        return None
    size = item_size_in_name(kernel_name)
    if size is None:
        return None
    blocks = launch.grid[0] * launch.grid[1] * launch.grid[2]
    unrolled = _UNROLLED.search(kernel_name)
    if unrolled:
        elements = blocks * int(unrolled.group(1)) * int(unrolled.group(2))
    else:
        vectorised = "vectorized_elementwise_kernel" in kernel_name
        elements = blocks * launch.block[0] * (_WIDE if wide and vectorised else _NARROW)
    operands = _OPERANDS.search(kernel_name)
    count = int(operands.group(1)) if operands else 2
    return Work(
        flops=2.0 * elements,
        read_bytes=float(elements * size * (count - 1)),
        write_bytes=float(elements * size),
        math="fp32",
        cast="LoadWithCast" in kernel_name and "copy" in kernel_name,
    )
