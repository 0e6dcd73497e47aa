"""Attention written out: kernels on the N x N matrix of scores that a fused attention never writes.

The mark is a softmax over `[..., queries, keys]` whose shape a batched matmul produced or consumed. Every
other kernel that touches a tensor of that size (scale, mask, dropout, copies, their backwards) belongs to it.
"""

from __future__ import annotations

import math

import numpy as np

from findwall.attribute.kernels import KernelTable
from findwall.attribute.workmodel.arguments import Arguments
from findwall.model.catalogue import KERNEL_CLASSES
from findwall.model.events import Bool, Kind, Timeline
from findwall.model.intervals import I64

SOFTMAXES = ("aten::_softmax", "aten::_softmax_backward_data", "aten::softmax", "aten::_safe_softmax")
BATCHED = ("aten::bmm", "aten::baddbmm", "aten::matmul", "aten::baddbmm_")
SCORE_CLASSES = ("pointwise", "softmax", "copy", "reduce", "matmul", "gather", "other")

Shape = tuple[int, int, int]  # batch x heads, queries, keys


def score_shapes(timeline: Timeline) -> set[Shape]:
    """Shapes that a softmax and a batched matmul share."""
    softmaxed = _shapes(timeline, SOFTMAXES)
    multiplied = _shapes(timeline, BATCHED)
    found = set()
    for dims in softmaxed:
        if len(dims) >= 3 and min(dims[-2:]) > 1:
            shape = (math.prod(dims[:-2]), dims[-2], dims[-1])
            if shape in {_flat(other) for other in multiplied if len(other) >= 3}:
                found.add(shape)
    return found


def _flat(dims: tuple[int, ...]) -> Shape:
    return math.prod(dims[:-2]), dims[-2], dims[-1]


def _shapes(timeline: Timeline, names: tuple[str, ...]) -> set[tuple[int, ...]]:
    wanted = np.array([name in names for name in timeline.names], bool)
    rows = timeline.rows(Kind.OP)
    rows = rows[wanted[timeline.events.name[rows]]] if len(rows) else rows
    found: set[tuple[int, ...]] = set()
    for inputs_id in np.unique(timeline.events.inputs[rows]).tolist():
        inputs = timeline.details.inputs_of(inputs_id)
        if inputs is not None:
            found.update(tensor.dims for tensor in Arguments(inputs).tensors())
    return found


def touches_scores(timeline: Timeline, kernels: KernelTable, index: I64) -> Bool:
    """Kernels whose op reads or writes a matrix of scores."""
    touched = np.zeros(len(index), bool)
    shapes = score_shapes(timeline)
    if not shapes:
        return touched
    allowed = np.isin(kernels.class_index[index], [KERNEL_CLASSES.index(name) for name in SCORE_CLASSES])
    verdicts: dict[int, bool] = {}
    for position in np.flatnonzero(allowed & (kernels.op[index] >= 0)).tolist():
        inputs_id = int(timeline.events.inputs[kernels.op[index[position]]])
        if inputs_id not in verdicts:
            verdicts[inputs_id] = _has_scores(timeline, inputs_id, shapes)
        touched[position] = verdicts[inputs_id]
    return touched


def _has_scores(timeline: Timeline, inputs_id: int, shapes: set[Shape]) -> bool:
    inputs = timeline.details.inputs_of(inputs_id)
    if inputs is None:
        return False
    tensors = [tensor.dims for tensor in Arguments(inputs).tensors()]
    if any(len(dims) >= 3 and _flat(dims) in shapes for dims in tensors):
        return True
    # The two operands of the matmul that makes the scores.
    if len(tensors) >= 2 and len(tensors[-1]) >= 3 and len(tensors[-2]) >= 3:
        left, right = _flat(tensors[-2]), _flat(tensors[-1])
        return (left[0], left[1], right[2]) in shapes and left[2] == right[1]
    return any(len(dims) == 2 and any(dims == shape[1:] for shape in shapes) for dims in tensors)
