"""Casts that autocast puts beside products."""

from __future__ import annotations

import numpy as np

from findwall.attribute.facts import Facts
from findwall.attribute.likely import weight_numbers
from findwall.attribute.widths import NARROW_BYTES, WIDE_BYTES
from findwall.model.intervals import F64, I64
from findwall.replay.curves import curves
from findwall.units import NS_PER_S


def cast_ns(facts: Facts, atoms: I64) -> F64:
    """What casting the weight of each product takes: fp32 read, 16 bits written, or the other way round."""
    moved = np.array([weight_numbers(facts, atom) for atom in atoms.tolist()]) * (WIDE_BYTES + NARROW_BYTES)
    floor = moved / (facts.ceilings.bandwidth or np.inf) * NS_PER_S
    found: F64 = np.where(moved > 0, curves().likely_ns("pointwise", np.maximum(floor, 1.0)), 0.0)
    return found
