"""Copies on the device: which only put values elsewhere, and which a library makes around its own kernels."""

from __future__ import annotations

import re

from findwall.attribute.carriers import CARRIERS_SEARCHED, carriers
from findwall.attribute.device_time import matching, rows_of
from findwall.attribute.facts import Facts
from findwall.model.catalogue import MAJORITY_SHARE
from findwall.model.intervals import I64

# Ops and device rows that put values elsewhere in the order they have: no layout is changed.
_MOVES_ON = re.compile(r"^aten::(?:cat|stack|roll)$|^memcpy dtod", re.IGNORECASE)
# Kernels by which a convolution library turns images to the layout that it wants, and back.
_CONVERSIONS = re.compile("nchwtonhwc|nhwctonchw|nchw2nhwc|nhwc2nchw|tonhwc|batched_transpose", re.IGNORECASE)


def moves_on(facts: Facts) -> bool:
    """Whether most copies put values elsewhere in the order they have, as a history that moves on does."""
    found = carriers(facts, "layout-copies", CARRIERS_SEARCHED)
    moves = sum(one.ms for one in found if any(_MOVES_ON.match(name) for name in (one.op or "", one.kernel)))
    return moves > MAJORITY_SHARE * sum(one.ms for one in found)


def turned_by_library(facts: Facts) -> I64:
    """Atoms of copies that a convolution library makes: no line of the job does, only its images' layout."""
    atoms = facts.atoms_of("layout-copies")
    found: I64 = atoms[matching(facts, rows_of(facts, atoms), _CONVERSIONS)]
    return found
