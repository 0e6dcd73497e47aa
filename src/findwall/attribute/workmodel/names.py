"""What a kernel's own name and launch shape give away, where no op's shapes were recorded."""

from __future__ import annotations

import functools
import re

from findwall.attribute.workmodel.work import Work
from findwall.model.events import Launch
from findwall.structure.names.sources import B200_VLLM, H200, RECSYS
from findwall.structure.names.table import NameRow, NameTable

_OPERANDS = re.compile(r"array<char\*, (\d+)")
_OPAQUE = re.compile(r"opaquetype<(\d+)u?l?>")
# Bytes of the element types that template arguments name. Rank plays no part: the one named first counts.
TYPES: NameTable[int] = NameTable(
    NameRow(r"bfloat16|__nv_bfloat16|\bbf16\b", 2, "FillFunctor<c10::BFloat16>", f"torch, CUDA: {H200}"),
    NameRow(r"c10::half|__half|\bhalf\b|float16", 2, "FillFunctor<c10::Half>", f"torch, CUDA: {RECSYS}"),
    NameRow(
        r"float8|e4m3|e5m2", 1, "scaled_fp8_quant_kernel_strided<c10::Float8_e4m3fn>", f"torch: {B200_VLLM}"
    ),
    NameRow(r"\bdouble\b", 8, "FillFunctor<double>", f"C++: {RECSYS}"),
    NameRow(r"\bfloat\b", 4, "FillFunctor<float>", f"C++: {H200}"),
    NameRow(r"\blong\b", 8, "FillFunctor<long>", f"C++: {H200}"),
    NameRow(r"\bint\b", 4, "FillFunctor<int>", f"C++: {H200}"),
    NameRow(r"\bbool\b|\bchar\b", 1, "FillFunctor<bool>", f"C++: {H200}"),
)
_TYPE_SEARCHES = [(re.compile(row.pattern), row.tells) for row in TYPES.rows]
_UNROLLED = re.compile(
    r"(?:elementwise_kernel|elementwise_kernel_manual_unroll|index_elementwise_kernel)<(\d+), (\d+)"
)
# Elements a thread of a vectorised kernel takes: 4 in older launchers, 8 in those with 8-wide loads (torch
# 2.11).
_NARROW_ELEMENTS, _WIDE_ELEMENTS = 4, 8
_USUAL_OPERANDS = 2  # one read, one written: where the name does not say
_NAMES_KEPT = 65536  # distinct names remembered, as in `structure/classes.py`


@functools.lru_cache(maxsize=_NAMES_KEPT)
def item_size_in_name(kernel_name: str) -> int | None:
    """Bytes of the first element type that the template arguments name."""
    name = kernel_name.lower()
    opaque = _OPAQUE.search(name)
    if opaque:
        return int(opaque.group(1))
    # The functor's own arguments come first; the parameter list after the closing bracket names counters.
    template = name.split("(int, ", 1)[0]
    best: tuple[int, int] | None = None
    for pattern, size in _TYPE_SEARCHES:
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
    if blocks <= 0:  # written where the grid is not known
        return None
    unrolled = _UNROLLED.search(kernel_name)
    if unrolled:
        elements = blocks * int(unrolled.group(1)) * int(unrolled.group(2))
    else:
        vectorised = "vectorized_elementwise_kernel" in kernel_name
        elements = blocks * launch.block[0] * (_WIDE_ELEMENTS if wide and vectorised else _NARROW_ELEMENTS)
    operands = _OPERANDS.search(kernel_name)
    count = int(operands.group(1)) if operands else _USUAL_OPERANDS
    return Work(
        flops=2.0 * elements,
        read_bytes=float(elements * size * (count - 1)),
        write_bytes=float(elements * size),
        math="fp32",
        cast="LoadWithCast" in kernel_name and "copy" in kernel_name,
    )
