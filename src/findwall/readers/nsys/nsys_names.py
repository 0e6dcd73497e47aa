"""Names as Nsight Systems writes them, in the spelling that torch.profiler's traces have.

Everything that reads a class, a format or an operand count off a kernel's name then reads both alike.
"""

from __future__ import annotations

import re

# cudaLaunchKernel_v7000, cudaMemcpyAsync_ptsz_v7000, cudaStreamGetCaptureInfo_v2_v11030
_VERSION = re.compile(r"(?:_pts[zd])?_v\d{4,}$")
_LITERAL = re.compile(
    r"\((bool|int|unsigned int|long|unsigned long|short|unsigned short|long long|unsigned long long)\)(-?\d+)"
)
_SUFFIX = {
    "unsigned int": "u",
    "long": "l",
    "unsigned long": "ul",
    "long long": "ll",
    "unsigned long long": "ull",
}
_INSTANCE = re.compile(r" \(instance (\d+)\)\]")
_BEFORE_POINTER = re.compile(r"(?<! ) +(?=[*&])")  # from where spaces begin: each is looked at once

# Bits of ENUM_CUPTI_OVERHEAD_TYPE, by the names that torch.profiler gives them.
OVERHEAD_NAMES = {
    0: "Overhead",
    1: "Overhead",
    2: "Driver Compiler",
    3: "Buffer Flush",
    4: "Instrumentation",
    5: "Resource",
    6: "Runtime Triggered Module Loading",
    7: "Lazy Function Loading",
    8: "Command Buffer Full",
}
SYNC_NAMES = {
    0: "Synchronization",
    1: "Event Synchronize",
    2: "Stream Wait Event",
    3: "Stream Synchronize",
    4: "Context Synchronize",
}
# ENUM_CUDA_MEMCPY_OPER and ENUM_CUDA_MEM_KIND.
_DIRECTIONS = {1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA", 8: "DtoD"}
_DIRECTIONS |= {9: "HtoH", 10: "PtoP", 11: "HtoD", 12: "DtoH", 13: "DtoD"}
_MEMORY = {0: "Pageable", 1: "Pinned", 2: "Device", 3: "Array", 4: "Managed", 5: "Device", 6: "Managed"}
_SIDES = {"H": "Host", "D": "Device", "A": "Array", "P": "Device"}
WHOLE_GRAPH = "CUDA graph (its kernels were not recorded)"


def call_name(name: str) -> str:
    """A runtime call without the version of its interface."""
    return _VERSION.sub("", name)


def kernel_name(name: str) -> str:
    """A demangled kernel name, its literals, lambdas and unnamed namespaces as others write them."""
    if "(" not in name and "<" not in name:
        return name
    name = name.replace("<unnamed>", "(anonymous namespace)").replace("[lambda", "{lambda")
    name = _INSTANCE.sub(r"#\1}", name).replace("operator ()", "operator()")
    return _BEFORE_POINTER.sub("", _LITERAL.sub(_literal, name))


def _literal(found: re.Match[str]) -> str:
    kind, value = found.groups()
    if kind == "bool":
        return "true" if value != "0" else "false"
    return value + _SUFFIX.get(kind, "")


def copy_name(direction: int, source: int, target: int) -> str:
    """`Memcpy HtoD (Pageable -> Device)`; a side whose memory is not told is called by what it is."""
    way = _DIRECTIONS.get(direction, "")
    if not way:
        return "Memcpy (unknown direction)"
    sides = _MEMORY.get(source, _SIDES[way[0]]), _MEMORY.get(target, _SIDES[way[-1]])
    return f"Memcpy {way} ({sides[0]} -> {sides[1]})"
