"""What kernels would still have to move if one did the work of several.

Chains of memory-bound kernels: the tensors are followed from op to op. Where an op reads what one of the few
before it in the same chain wrote, a fused kernel would neither write nor read it. Traces carry no addresses,
so a tensor is recognised by its size and type; a chain ends at the first kernel that cannot be fused into it.

Rows fetched and added up by number: what is fetched goes straight to the kernel behind it, and what is added
up comes straight from the one in front of it.

Attention: a fused one never writes the N x N matrix of scores. The mark of one that is written out is a
softmax over `[..., queries, keys]` whose shape a batched matmul produced or consumed. Every other kernel that
touches a tensor of that size (scale, mask, dropout, copies, their backwards) belongs to it.

Optimizers: what a fused one keeps of the traffic is known by its name, or told by how often it goes through
memory.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict

import msgspec
import numpy as np

from findwall.model.events import Bool, Kind, Timeline
from findwall.model.intervals import F64, I64
from findwall.step.call_names import optimizers
from findwall.step.step_facts import found_once
from findwall.work.op_arguments import Arguments, Tensor
from findwall.work.op_work import op_work
from findwall.work.work_facts import Fused, KernelTable, WorkFacts, ops_named

# Classes whose kernels a compiler writes anew, and whose products it tries other kernels for. What sorts,
# selects, searches or attends it calls from the library as it is.
WRITTEN_ANEW = ("matmul", "conv", "pointwise", "norm", "reduce", "softmax")
# Each number waits for those before it along a dimension: a pass of its own over memory.
SCAN = re.compile(r"^aten::_?(?:log)?cum(?:sum|prod|max|min|sumexp)(?:_helper)?_?$")
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


@found_once
def chains(facts: WorkFacts) -> tuple[I64, I64, Fused]:
    """The model's kernels in device order, the step of each, and what fusing their chains would do."""
    model = ~facts.kernels.is_class("optimizer")
    index = np.unique(facts.atoms.index[model[facts.atoms.index]])
    index = index[np.argsort(facts.kernels.start[index], kind="stable")]
    step = facts.queue.step[facts.queue.positions(facts.kernels.row[index])]
    fused = fuse(facts.timeline, facts.kernels, index, step, float(facts.ceilings.l2_bytes or 0))
    return index, step, fused


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
    """Kernels a compiler would fuse into their neighbours; not what a library does around a convolution, no
    scan, and no arithmetic of complex numbers."""
    mask = (kernels.is_class(*FUSABLE) & ~kernels.communication)[index]
    op = kernels.op[index]
    mask &= ~ops_named(timeline, op, _CONVOLUTION) & ~ops_named(timeline, op, SCAN)
    return mask & ~on_complex(timeline, op)


def on_complex(timeline: Timeline, ops: I64) -> Bool:
    """Which ops work on complex numbers: torch's compiler (2.13) calls those as they are; -1 is none."""
    inputs = np.where(ops >= 0, timeline.events.inputs[np.maximum(ops, 0)], -1)
    distinct, first, of_op = np.unique(inputs, return_index=True, return_inverse=True)
    found = [
        one >= 0 and any("complex" in each.dtype.lower() for each in _tensors(timeline, int(ops[at])))
        for one, at in zip(distinct.tolist(), first.tolist(), strict=True)
    ]
    return np.array(found, bool)[of_op]


def _tensors(timeline: Timeline, op: int) -> list[Tensor]:
    return Arguments(timeline.inputs_of(op)).tensors()


# -- rows fetched and added up -------------------------------------------------------------------------

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


# -- attention -----------------------------------------------------------------------------------------

SOFTMAXES = ("aten::_softmax", "aten::_softmax_backward_data", "aten::softmax", "aten::_safe_softmax")
BATCHED = ("aten::bmm", "aten::baddbmm", "aten::matmul", "aten::baddbmm_")
SCORE_CLASSES = ("pointwise", "softmax", "copy", "reduce", "matmul", "gather", "other")

Shape = tuple[int, int, int]  # batch x heads, queries, keys


def score_shapes(timeline: Timeline) -> set[Shape]:
    """Shapes that a softmax and a batched matmul share."""
    softmaxed, multiplied = (
        {_flat(dims) for dims in _shapes(timeline, names) if len(dims) >= 3} for names in (SOFTMAXES, BATCHED)
    )
    return {shape for shape in softmaxed & multiplied if min(shape[1:]) > 1}


def _flat(dims: tuple[int, ...]) -> Shape:
    return math.prod(dims[:-2]), dims[-2], dims[-1]


def _shapes(timeline: Timeline, names: tuple[str, ...]) -> set[tuple[int, ...]]:
    wanted = np.array([name in names for name in timeline.names], bool)
    rows = timeline.rows(Kind.OP)
    rows = rows[wanted[timeline.events.name[rows]]] if len(rows) else rows
    found: set[tuple[int, ...]] = set()
    for inputs_id in np.unique(timeline.events.inputs[rows]).tolist():
        found.update(tensor.dims for tensor in Arguments(timeline.details.inputs_of(inputs_id)).tensors())
    return found


def touches_scores(timeline: Timeline, kernels: KernelTable, index: I64) -> Bool:
    """Kernels whose op reads or writes a matrix of scores."""
    shapes, op = score_shapes(timeline), kernels.op[index]
    if not shapes:
        return np.zeros(len(index), bool)
    allowed = kernels.is_class(*SCORE_CLASSES)[index] & (op >= 0)
    inputs = np.where(allowed, timeline.events.inputs[np.maximum(op, 0)], -1)
    return np.isin(inputs, [one for one in np.unique(inputs).tolist() if _has_scores(timeline, one, shapes)])


def _has_scores(timeline: Timeline, inputs_id: int, shapes: set[Shape]) -> bool:
    tensors = [tensor.dims for tensor in Arguments(timeline.details.inputs_of(inputs_id)).tensors()]
    if any(len(dims) >= 3 and _flat(dims) in shapes for dims in tensors):
        return True
    # The two operands of the matmul that makes the scores.
    if len(tensors) >= 2 and len(tensors[-1]) >= 3 and len(tensors[-2]) >= 3:
        left, right = _flat(tensors[-2]), _flat(tensors[-1])
        return (left[0], left[1], right[2]) in shapes and left[2] == right[1]
    return any(len(dims) == 2 and any(dims == shape[1:] for shape in shapes) for dims in tensors)


# -- optimizers ----------------------------------------------------------------------------------------

# Bytes an element that a fused step must move (in units of one parameter), and that the unfused
# default moves: reads and writes of parameter, gradient and states.
TRAFFIC: dict[str, tuple[float, float]] = {
    "adam": (7, 20),
    "adamw": (7, 22),
    "nadam": (7, 24),
    "radam": (7, 24),
    "adamax": (7, 18),
    "lamb": (7, 24),
    "rmsprop": (5, 14),
    "adagrad": (5, 12),
    "sgd": (5, 8),
    "lion": (5, 12),
}
# The least of an optimizer nobody knows: parameter, gradient and one state read, parameter and state written.
LEAST = 5.0


def kept_share(timeline: Timeline, ops: I64) -> float | None:
    """What it must move by its name, and does by how often its ops go through memory, where that is recorded.
    `ops`: those of its kernels."""
    passes = _passes(timeline, ops)
    for name in optimizers(timeline):
        must, does = TRAFFIC.get(_known(name), (0.0, 0.0))
        if does:
            return must / (passes if passes is not None and must <= passes else does)
    return None if passes is None else min(LEAST / passes, 1.0)


def _known(name: str) -> str:
    """The longest known name inside it: people call their own PaperAdamW or AdamWScheduleFree."""
    return max((known for known in TRAFFIC if known in name.lower()), key=len, default="")


def _passes(timeline: Timeline, ops: I64) -> float | None:
    """How often the update reads or writes a tensor as long as its parameters.

    The op that writes least is called once for each parameter: what it writes is as long as they are.
    """
    moved = 0.0
    written: defaultdict[str, float] = defaultdict(float)
    for op in np.unique(ops[ops >= 0]).tolist():
        name = timeline.name_of(op)
        work = op_work(name, timeline.inputs_of(op))
        if work is not None and work.write_bytes > 0:
            moved += work.read_bytes + work.write_bytes
            written[name] += work.write_bytes
    return moved / min(written.values()) if written else None
