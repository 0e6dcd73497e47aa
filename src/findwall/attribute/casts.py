"""Casts that autocast puts beside products."""

from __future__ import annotations

import re

import numpy as np

from findwall.attribute.facts import Facts
from findwall.attribute.widths import NARROW_BYTES, WIDE_BYTES
from findwall.attribute.workmodel.arguments import Arguments
from findwall.model.intervals import F64, I64
from findwall.replay.curves import curves
from findwall.units import NS_PER_S

_MATRIX_VECTOR = re.compile(r"::(?:add)?mv_?$")


def cast_ns(facts: Facts, atoms: I64) -> F64:
    """What casting the operands of each product takes: fp32 read, 16 bits written, or the other way round."""
    ops = facts.kernels.op[facts.atoms.index[atoms]]
    distinct, inverse = np.unique(ops, return_inverse=True)
    numbers = np.array([_cast_numbers(facts, row) for row in distinct.tolist()], np.float64)
    moved = numbers[inverse.reshape(-1)] * (WIDE_BYTES + NARROW_BYTES) if len(distinct) else np.zeros(0)
    floor = moved / (facts.ceilings.bandwidth or np.inf) * NS_PER_S
    found: F64 = np.where(moved > 0, curves().likely_ns("pointwise", np.maximum(floor, 1.0)), 0.0)
    return found


def _cast_numbers(facts: Facts, row: int) -> int:
    """How many numbers are cast for a product: its weight, which is its smallest operand; all of a matrix
    that is multiplied with a vector. Of a batched product no operand is a weight."""
    inputs = facts.timeline.inputs_of(row) if row >= 0 else None
    name = facts.timeline.name_of(row) if row >= 0 else ""
    if inputs is None or "bmm" in name:
        return 0
    sizes = sorted(one.elements for one in Arguments(inputs).tensors() if len(one.dims) > 1)
    return sizes[0] if len(sizes) > 1 or (sizes and _MATRIX_VECTOR.search(name)) else 0
