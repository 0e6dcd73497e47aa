"""What kernels would still have to move if one did the work of several.

Chains of memory-bound kernels: the tensors are followed from op to op. Where an op reads what one of the few
before it in the same chain wrote, a fused kernel would neither write nor read it. Traces carry no addresses,
so a tensor is recognised by its size and type; a chain ends at the first kernel that cannot be fused into it.

Rows fetched and added up by number: what is fetched goes straight to the kernel behind it, and what is added
up comes straight from the one in front of it.
"""

from __future__ import annotations

import re

import msgspec
import numpy as np

from findwall.attribute.kernels import KernelTable, ops_named
from findwall.attribute.workmodel.arguments import Arguments
from findwall.attribute.workmodel.lookup import op_work
from findwall.model.events import Bool, Timeline
from findwall.model.intervals import F64, I64

# Classes whose kernels a compiler writes anew, and whose products it tries other kernels for. What sorts,
# selects, searches or attends it calls from the library as it is.
WRITTEN_ANEW = ("matmul", "conv", "pointwise", "norm", "reduce", "softmax")
FUSABLE = ("pointwise", "norm", "reduce", "softmax", "copy")
_CONVOLUTION = re.compile(r"convolution")
BATCH_NORM = re.compile(r"batch_norm")


class _OpSizes(msgspec.Struct, frozen=True):
    reads: tuple[float, ...]
    write: float


class _Link(msgspec.Struct):
    """One op of a chain; `position`: its last kernel so far, which writes its result."""

    op: int
    name: int
    position: int
    reads: tuple[float, ...]


class Fused(msgspec.Struct, frozen=True):
    """What fusing every chain would do to each kernel: bytes."""

    saved: F64  # need not be moved
    again: F64  # must be read a second time, in whatever chain
    chained: Bool  # of an op that a chain takes in


def fuse(timeline: Timeline, kernels: KernelTable, index: I64, step: I64, on_chip: float) -> Fused:
    """Follow the tensors through some kernels of the table, in device order. `step`: the step of each, which
    no chain outlasts. `on_chip`: bytes of the device's cache."""
    again = _read_again(timeline, kernels, index, on_chip)
    saved = _saved_bytes(timeline, kernels, index, step, again)
    op = kernels.op[index]
    chained: Bool = (saved > 0) | ((op >= 0) & np.isin(op, op[saved > 0]))
    return Fused(saved, again, chained)


def _saved_bytes(timeline: Timeline, kernels: KernelTable, index: I64, step: I64, again: F64) -> F64:
    saved = np.zeros(len(index))
    ends = ~is_fusable(timeline, kernels, index) | (kernels.op[index] < 0)
    sizes = _sizes_of(timeline, kernels.op[index])
    alone = kernels.is_class("norm", "softmax")[index]
    parts = np.concatenate(([False], step[1:] != step[:-1]))  # from step to step nothing is fused
    chain: dict[float, list[_Link]] = {}  # by the size of the result, the latest last
    last: _Link | None = None
    unwritten: set[int] = set()
    previous_op = -1
    # Where no steps are known, a whole recording is one: a million kernels come through here.
    ops, names = kernels.op[index].tolist(), timeline.events.name[kernels.op[index]].tolist()
    for position, (op, name_id, found) in enumerate(zip(ops, names, sizes, strict=True)):
        if ends[position] or parts[position]:
            chain, last, previous_op = {}, None, -1
        if ends[position]:
            continue
        if op == previous_op:
            # A later kernel of the same op, which is in the chain already: the last one writes the result.
            if last is not None and last.op == op:
                last.position = position
            continue
        previous_op = op
        if found is None:
            continue
        # One norm does not fold into another: each needs its own pass.
        name = name_id if alone[position] else -1
        for producer, size in _consumed(chain, found.reads, name):
            saved[position] += size
            # In a second pass a result is read again if it was written, or made again from what it came from.
            # What is made from two tensors of its size is dearer to make again than to read again.
            cheap = again[position] <= 0 or producer.reads.count(size) <= 1
            if producer.op not in unwritten and cheap:
                unwritten.add(producer.op)
                saved[producer.position] += size
        last = _Link(op, name_id, position, found.reads)
        chain.setdefault(found.write, []).append(last)
    return saved


def _read_again(timeline: Timeline, kernels: KernelTable, index: I64, on_chip: float) -> F64:
    """A batch norm has its statistics only at the end of a pass, and what it normalises does not stay on the
    chip meanwhile.

    Where the statistics have a kernel of their own, that one is the first pass.
    """
    op = kernels.op[index]
    alone = ops_named(timeline, op, BATCH_NORM) & (np.bincount(op + 1, minlength=1)[op + 1] == 1)
    again = np.zeros(len(index))
    at = np.flatnonzero(alone)
    for position, found in zip(at.tolist(), _sizes_of(timeline, op[at]), strict=True):
        if found is not None and found.write > on_chip:
            again[position] = sum(size for size in found.reads if size == found.write)
    return again


def _consumed(
    chain: dict[float, list[_Link]], reads: tuple[float, ...], but: int
) -> list[tuple[_Link, float]]:
    """Which results an op reads: each the latest of its size; none of an op called `but`."""
    found: list[tuple[_Link, float]] = []
    for size in reads:
        for producer in reversed(chain.get(size, ())):
            if producer.name != but and not any(producer is one for one, _ in found):
                found.append((producer, size))
                break
    return found


def _sizes_of(timeline: Timeline, op: I64) -> list[_OpSizes | None]:
    """The tensors of each op, -1 being none; ops of one name and the same inputs are measured once."""
    known = np.maximum(op, 0)
    keys = (timeline.events.name[known].astype(np.int64) << 32) + timeline.events.inputs[known]
    _, first, of_op = np.unique(keys, return_index=True, return_inverse=True)
    measured = [_measure(timeline, one) for one in known[first].tolist()]
    pairs = zip(op.tolist(), of_op.tolist(), strict=True)
    return [measured[at] if one >= 0 else None for one, at in pairs]


def _measure(timeline: Timeline, op: int) -> _OpSizes | None:
    inputs, name = timeline.inputs_of(op), timeline.name_of(op)
    work = op_work(name, inputs)
    if work is None or work.write_bytes <= 0:
        return None
    tensors = Arguments(inputs).tensors()
    if name.endswith("::copy_"):
        tensors = tensors[1:2]  # argument 0 of copy_ is the destination
    return _OpSizes(tuple(float(tensor.elements * tensor.size) for tensor in tensors), work.write_bytes)


def unfollowed(timeline: Timeline, kernels: KernelTable, index: I64) -> Bool:
    """Kernels that a chain may take in, of ops whose tensors' sizes are not known: what that saves is not."""
    unknown: Bool = np.array([one is None for one in _sizes_of(timeline, kernels.op[index])], bool)
    return is_fusable(timeline, kernels, index) & unknown


def is_fusable(timeline: Timeline, kernels: KernelTable, index: I64) -> Bool:
    """Kernels a compiler would fuse into their neighbours; not what a library does around a convolution."""
    mask = (kernels.is_class(*FUSABLE) & ~kernels.communication)[index]
    return mask & ~ops_named(timeline, kernels.op[index], _CONVOLUTION)


FETCH = re.compile(r"::(?:gather|index_select|embedding|take_along_dim)$")
ADD_UP = re.compile(r"::(?:index_add|scatter_add)_?$")
ADDED = 3  # the argument of either that holds what is added


def fetches(timeline: Timeline, kernels: KernelTable, index: I64, step: I64) -> tuple[I64, F64]:
    """Places in `index`, kernels in device order, of those that fetch rows or add them up; and the bytes that
    each must still move in one kernel with its neighbour."""
    at = np.flatnonzero(kernels.is_class("gather")[index])
    joins = is_fusable(timeline, kernels, index)
    joins[at] = True
    places, kept = [], []
    for here in at.tolist():
        op = int(kernels.op[index[here]])
        name = timeline.name_of(op) if op >= 0 else ""
        if FETCH.search(name):
            spared = _written(timeline, op) if _joined(joins, step, here, here + 1) else 0.0
        elif ADD_UP.search(name):
            spared = _added(timeline, op) if _joined(joins, step, here, here - 1) else 0.0
        else:
            continue
        places.append(here)
        kept.append(max(float(kernels.bytes[index[here]]) - spared, 0.0))
    return np.array(places, np.int64), np.array(kept)


def _joined(joins: Bool, step: I64, one: int, other: int) -> bool:
    return 0 <= other < len(joins) and bool(joins[other]) and bool(step[one] == step[other])


def _written(timeline: Timeline, op: int) -> float:
    work = op_work(timeline.name_of(op), timeline.inputs_of(op))
    return work.write_bytes if work is not None else 0.0


def _added(timeline: Timeline, op: int) -> float:
    source = Arguments(timeline.inputs_of(op)).tensor(ADDED)
    return float(source.nbytes) if source is not None else 0.0
