"""Triton kernels that a compiler wrote: their recorded arguments, outputs among them.

Each distinct tensor is touched once. A kernel with a single tensor works in place. What the arithmetic costs
is read off the fused ops in the generated name.
"""

from __future__ import annotations

from findwall.attribute.workmodel.arguments import Arguments
from findwall.attribute.workmodel.pointwise import OPERATIONS
from findwall.attribute.workmodel.work import Work

_PREFIXES = ("triton_poi", "triton_red", "triton_per", "triton_for", "triton_mix", "triton_spl")


def is_compiled(name: str) -> bool:
    return name.startswith(_PREFIXES)


def compiled_work(name: str, arguments: Arguments) -> Work | None:
    tensors = arguments.tensors()
    if not tensors:
        return None
    largest = max(tensor.elements for tensor in tensors)
    total = sum(min(tensor.nbytes, float(tensor.elements * tensor.size)) for tensor in tensors)
    if len(tensors) == 1:
        total *= 2
    return Work(flops=_operations(name) * largest, read_bytes=float(total), math="fp32")


def _operations(name: str) -> float:
    """Vector operations an element, by the ops whose names the generator joined."""
    words = [word for word in name.split("_fused_", 1)[-1].split("_") if word]
    found: set[str] = set()
    at = 0
    while at < len(words):
        length = next((n for n in (3, 2, 1) if "_".join(words[at : at + n]) in OPERATIONS), 0)
        if length:
            found.add("_".join(words[at : at + length]))
        at += max(length, 1)
    # A backward op recomputes what its forward op beside it needs anyway.
    found -= {name.removesuffix("_backward") for name in found if name.endswith("_backward")}
    return sum(OPERATIONS[name] for name in found) or 2.0
