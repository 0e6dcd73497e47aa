"""What padding odd matrices costs where a compiler does it: it copies them before each product."""

from __future__ import annotations

import numpy as np

from findwall.attribute.facts import Facts
from findwall.attribute.workmodel.arguments import Arguments
from findwall.model.intervals import F64, I64
from findwall.replay.curves import curves
from findwall.units import NS_PER_S

READ_AND_WRITTEN = 2


def padding_ns(facts: Facts, atoms: I64) -> F64:
    """What copying the operands of each product takes; part of it is done by the kernels that make them, and
    how much of it nobody knows beforehand."""
    ops = facts.kernels.op[facts.atoms.index[atoms]]
    distinct, inverse = np.unique(ops, return_inverse=True)
    moved = np.array([_operand_bytes(facts, op) for op in distinct.tolist()], np.float64)
    floor = READ_AND_WRITTEN * moved / (facts.ceilings.bandwidth or np.inf) * NS_PER_S
    each: F64 = np.where(floor > 0, curves().likely_ns("pointwise", np.maximum(floor, 1.0)), 0.0)
    return each[inverse.reshape(-1)]


def _operand_bytes(facts: Facts, op: int) -> float:
    inputs = facts.timeline.inputs_of(op) if op >= 0 else None
    if inputs is None:
        return 0.0
    return sum(one.nbytes for one in Arguments(inputs).tensors() if len(one.dims) > 1)
