"""What a chain of memory-bound kernels would still have to move if it were one kernel.

The tensors are followed from op to op: where an op reads what one of the few before it in the same
chain wrote, a fused kernel would neither write nor read it. Traces carry no addresses, so a tensor is
recognised by its size and type; a chain ends at the first kernel that cannot be fused into it.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass

import numpy as np

from findwall.attribute.kernels import KernelTable
from findwall.attribute.workmodel.arguments import Arguments
from findwall.attribute.workmodel.lookup import op_work
from findwall.model.catalogue import KERNEL_CLASSES
from findwall.model.events import Bool, Timeline
from findwall.model.intervals import F64, I64

FUSABLE = ("pointwise", "norm", "reduce", "softmax", "copy")
# Ops: how far behind an intermediate may lie and a compiler still keep it in registers. Chosen by hand, not
# calibrated.
FUSION_REACH_OPS = 8


@dataclass(frozen=True, slots=True)
class _OpSizes:
    reads: tuple[float, ...]
    write: float


def saved_bytes(timeline: Timeline, kernels: KernelTable, index: I64, fusable: Bool) -> F64:
    """Bytes each kernel (by its index in the table, in device order) need not move if chains were fused."""
    saved = np.zeros(len(index))
    sizes: dict[tuple[int, int], _OpSizes | None] = {}
    chain: deque[tuple[int, float]] = deque(maxlen=FUSION_REACH_OPS)  # (position, bytes written)
    written_by: dict[int, float] = {}
    previous_op = -1
    for position, at in enumerate(index.tolist()):
        if not fusable[position]:
            chain.clear()
            previous_op = -1
            continue
        op = int(kernels.op[at])
        if op < 0:
            chain.clear()
            continue
        if op == previous_op:
            continue  # a later kernel of the same op: its op is in the chain already
        previous_op = op
        found = _sizes(timeline, op, sizes)
        if found is None:
            continue
        for producer, size in _consumed(chain, found.reads):
            saved[position] += size
            if producer not in written_by:
                written_by[producer] = size
                saved[producer] += size
        chain.append((position, found.write))
    return saved


def _consumed(chain: deque[tuple[int, float]], reads: tuple[float, ...]) -> list[tuple[int, float]]:
    """Which recent results an op reads: each read takes the latest result of its size."""
    found, used = [], set()
    for size in reads:
        for producer, written in reversed(chain):
            if written == size and producer not in used:
                used.add(producer)
                found.append((producer, size))
                break
    return found


def _sizes(timeline: Timeline, op: int, cache: dict[tuple[int, int], _OpSizes | None]) -> _OpSizes | None:
    key = (int(timeline.events.name[op]), int(timeline.events.inputs[op]))
    if key not in cache:
        cache[key] = _measure(timeline, op)
    return cache[key]


def _measure(timeline: Timeline, op: int) -> _OpSizes | None:
    inputs = timeline.inputs_of(op)
    work = op_work(timeline.name_of(op), inputs)
    if inputs is None or work is None or work.write_bytes <= 0:
        return None
    tensors = Arguments(inputs).tensors()
    name = timeline.name_of(op)
    if re.search(r"::copy_$", name):
        tensors = tensors[1:2]  # argument 0 of copy_ is the destination
    return _OpSizes(tuple(float(tensor.elements * tensor.size) for tensor in tensors), work.write_bytes)


def is_fusable(kernels: KernelTable, index: I64) -> Bool:
    """Kernels a compiler would fuse into their neighbours."""
    wanted = np.array([KERNEL_CLASSES.index(name) for name in FUSABLE])
    mask: Bool = np.isin(kernels.class_index[index], wanted) & ~kernels.communication[index]
    return mask
