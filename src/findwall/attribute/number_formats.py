"""The number formats in which a job multiplies."""

from __future__ import annotations

import numpy as np

from findwall.attribute.device_time import of_class
from findwall.attribute.facts import Facts
from findwall.model.catalogue import MATRIX_CLASSES
from findwall.model.machine import MATH_TYPES
from findwall.units import ms

SIXTEEN_BITS = ("fp16", "bf16")


def math_times(facts: Facts, *classes: str) -> dict[str, float]:
    """Time of kernels that multiply, by number format, longest first, in ms a step."""
    mine = np.flatnonzero(of_class(facts, *(classes or MATRIX_CLASSES)))
    formats = facts.kernels.math_index[facts.atoms.index[mine]]
    known = formats >= 0
    total = np.bincount(formats[known], facts.own[mine][known], minlength=len(MATH_TYPES))
    found = {name: ms(float(total[at])) for at, name in enumerate(MATH_TYPES) if total[at] > 0}
    return dict(sorted(found.items(), key=lambda item: -item[1]))
