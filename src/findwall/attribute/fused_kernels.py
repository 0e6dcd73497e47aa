"""What the fused kernels of torch would spare: of an attention that is written out, and of an optimizer.

A fused attention never writes the N x N matrix of scores. The mark of one that is written out is a softmax
over `[..., queries, keys]` whose shape a batched matmul produced or consumed. Every other kernel that touches
a tensor of that size (scale, mask, dropout, copies, their backwards) belongs to it.
"""

from __future__ import annotations

import math
from collections import defaultdict

import numpy as np

from findwall.attribute.kernels import KernelTable
from findwall.attribute.workmodel.arguments import Arguments
from findwall.attribute.workmodel.lookup import op_work
from findwall.model.events import Bool, Kind, Timeline
from findwall.model.intervals import I64
from findwall.structure.steps import optimizers

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
