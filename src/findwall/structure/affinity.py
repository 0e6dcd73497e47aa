"""How well a kernel fits what was recorded of a launch when its graph was captured."""

from __future__ import annotations

import functools

from findwall.model.events import Kind
from findwall.structure.classes import classify, op_class

NO_FIT = -(1 << 20)  # outweighs what any sequence of fits can add
SAME_NAME = 8  # the capture names the kernel
SAME_CLASS = 4
IN_NAME = 2  # more, where the op's name is part of the kernel's: `mul` in MulFunctor
BY_PLACE = 1  # a kernel whose name says nothing, at the place of a launch that was counted
_FEWEST_LETTERS = 3  # of an op's name: shorter ones are part of any kernel's
# What an op's library launches beside kernels of the op's own class.
_BESIDE = {"conv": ("matmul", "copy")}


@functools.lru_cache(maxsize=1 << 18)
def affinity(kernel: str, kind: int, op: str | None, captured: str, counted: bool) -> int:
    """Of a kernel to what was captured: an op, a kernel's name ("" unknown), and whether it was a launch."""
    if captured:
        return SAME_NAME if captured == kernel else NO_FIT
    if op is None:
        return NO_FIT
    told = classify(kernel, None, Kind(kind))
    wanted = op_class(op)
    named = IN_NAME if _stem(op) in kernel.lower() else 0
    if kind != Kind.KERNEL:
        moves = wanted == "copy" or (kind == Kind.MEMSET and _stem(op) in ("zero", "fill"))
        return SAME_CLASS if moves else NO_FIT
    if told == "other":
        return (BY_PLACE if counted else NO_FIT) if not named else IN_NAME
    if wanted is None:
        return IN_NAME if named else NO_FIT
    if told == wanted or told in _BESIDE.get(wanted, ()):
        return SAME_CLASS + named
    return NO_FIT


@functools.lru_cache(maxsize=1 << 16)
def _stem(op: str) -> str:
    """`add` of `aten::add_`; of short names something that is in no kernel's name."""
    name = op.rpartition("::")[2].strip("_").lower()
    return name if len(name) >= _FEWEST_LETTERS else "\0"
