"""What a kernel's name tells without a table of classes: its telling part, its library, its element size."""

from __future__ import annotations

import functools
import re

from findwall.step.kernel_names.name_table import B200_VLLM, H200, RECSYS, NameRow, NameTable

# Distinct names remembered: more than any trace we have holds (868 in all of them together).
NAMES_KEPT = 65536


# The name repeats its template in the parameters after this many characters. Chosen by hand, not calibrated.
_TELLING_CHARACTERS = 320


def telling_part(kernel_name: str) -> str:
    """The lower-case name without its parameter list."""
    if kernel_name.startswith("_Z"):  # mangled: the word that tells may come last
        return kernel_name.lower()
    # A return type such as enable_if<(8 > (0))> has brackets of its own.
    end = -1 if kernel_name.startswith("std::") else kernel_name.find(">(", 0, _TELLING_CHARACTERS)
    return kernel_name[: end + 1 if end > 0 else _TELLING_CHARACTERS].lower()


_LIBRARY = re.compile(
    r"^(?:void )?(?:kepler|maxwell|pascal|volta|turing|ampere|hopper|sm\d+)_|cutlass|cudnn|cublas|xmma|nvjet"
    r"|convolve_sgemm|^(?:cijk|igemm)_|^triton_\w+_fused"
)


@functools.lru_cache(maxsize=NAMES_KEPT)
def of_library(kernel_name: str) -> bool:
    """Whether the name is of a library that torch calls, or of its compiler: not of a job's own kernel."""
    return _LIBRARY.search(telling_part(kernel_name)) is not None


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


@functools.lru_cache(maxsize=NAMES_KEPT)
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
