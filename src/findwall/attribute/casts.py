"""Casts that autocast puts beside products: of a weight before the forward one, and of its gradient after the
backward one that makes it. The product that takes the gradient further finds the weight cast already."""

from __future__ import annotations

import numpy as np

from findwall.attribute.device_time import of_class
from findwall.attribute.facts import Facts
from findwall.attribute.widths import NARROW_BYTES, WIDE_BYTES
from findwall.attribute.workmodel.arguments import Arguments, Tensor
from findwall.model.catalogue import MATRIX_CLASSES
from findwall.model.intervals import F64, I64
from findwall.replay.curves import curves
from findwall.units import NS_PER_S

Shape = tuple[int, ...]


def cast_ns(facts: Facts, atoms: I64) -> F64:
    """What casting takes beside each product: fp32 read, 16 bits written, or the other way round."""
    ops = facts.kernels.op[facts.atoms.index[atoms]]
    distinct, inverse = np.unique(ops, return_inverse=True)
    known = _weights(facts)
    numbers = [
        _cast(facts, row, one, known) if row >= 0 and (one := _weight(facts, row)) is not None else 0
        for row in distinct.tolist()
    ]
    moved = np.array(numbers, np.float64)[inverse.reshape(-1)] * (WIDE_BYTES + NARROW_BYTES)
    floor = moved / (facts.ceilings.bandwidth or np.inf) * NS_PER_S
    found: F64 = np.where(moved > 0, curves().likely_ns("pointwise", np.maximum(floor, 1.0)), 0.0)
    return found


def _weights(facts: Facts) -> set[Shape]:
    """The shapes that the step multiplies with, forward."""
    ops = facts.kernels.op[facts.atoms.index[of_class(facts, *MATRIX_CLASSES)]]
    rows = np.unique(ops[ops >= 0])
    rows = rows[~facts.links.backward[rows]]
    first = np.unique(facts.timeline.events.inputs[rows], return_index=True)[1]
    found = (_weight(facts, row) for row in rows[first].tolist())
    return {_shape(one) for one in found if one is not None}


def _cast(facts: Facts, row: int, weight: Tensor, known: set[Shape]) -> int:
    """How many numbers are cast for one product."""
    if not facts.links.backward[row] or "conv" in facts.timeline.name_of(row):
        return weight.elements
    # Of two matrices: the result is the gradient of a weight if one of that shape was multiplied with.
    matrices = _matrices(facts, row)
    rows, columns = matrices[0].dims[0] if len(matrices) > 1 else 0, weight.dims[-1]
    return rows * columns if tuple(sorted((rows, columns))) in known else 0


def _weight(facts: Facts, row: int) -> Tensor | None:
    """What stands where a product has its weight: behind what it is multiplied with; the matrix that a vector
    is multiplied with. Of a batched product no operand is a weight."""
    inputs, name = facts.timeline.inputs_of(row), facts.timeline.name_of(row)
    if inputs is None or "bmm" in name:
        return None
    if "conv" in name:
        return Arguments(inputs).tensor(2 if "backward" in name else 1)
    matrices = _matrices(facts, row)
    with_vector = name.rstrip("_").endswith("mv")
    return matrices[-1] if len(matrices) > (0 if with_vector else 1) else None


def _matrices(facts: Facts, row: int) -> list[Tensor]:
    inputs = facts.timeline.inputs_of(row)
    return [one for one in Arguments(inputs).tensors() if len(one.dims) > 1] if inputs is not None else []


def _shape(one: Tensor) -> Shape:
    """The same whichever way it is turned."""
    return tuple(sorted(one.dims))
