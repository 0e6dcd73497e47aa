"""The number formats in which a job multiplies."""

from __future__ import annotations

import numpy as np

from findwall.attribute.device_time import of_class
from findwall.attribute.facts import Facts
from findwall.attribute.kernels import BOUNDS
from findwall.attribute.workmodel.arguments import Arguments
from findwall.model.catalogue import MATRIX_CLASSES, SMALL_PART
from findwall.model.intervals import I64
from findwall.model.machine import MATH_TYPES
from findwall.units import ms

SIXTEEN_BITS = ("fp16", "bf16")
SIXTEEN_BIT_BYTES_SHARE = 0.5  # of the bytes of an fp32 number
FASTER_FORMAT_RATIO = 1.0 + SMALL_PART  # times the products a second: less is not worth a format


def math_times(facts: Facts, *classes: str) -> dict[str, float]:
    """Time of kernels that multiply, by number format, longest first, in ms a step."""
    mine = np.flatnonzero(of_class(facts, *(classes or MATRIX_CLASSES)))
    formats = facts.kernels.math_index[facts.atoms.index[mine]]
    known = formats >= 0
    total = np.bincount(formats[known], facts.own[mine][known], minlength=len(MATH_TYPES))
    found = {name: ms(float(total[at])) for at, name in enumerate(MATH_TYPES) if total[at] > 0}
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def narrow_products(facts: Facts, bound: str) -> I64:
    """Matmuls of 16-bit numbers that one of the device's ceilings bounds; attention has no weights."""
    formats = [MATH_TYPES.index(name) for name in SIXTEEN_BITS]
    narrow = np.isin(facts.kernels.math_index[facts.atoms.index], formats)
    bounded = facts.kernels.bound[facts.atoms.index] == BOUNDS.index(bound)
    found: I64 = np.flatnonzero(narrow & bounded & of_class(facts, "matmul"))
    return found


def on_wide_data(facts: Facts, atoms: I64) -> I64:
    """Of some atoms those whose op's first tensor is fp32."""
    inputs = facts.timeline.events.inputs[np.maximum(facts.kernels.op[facts.atoms.index[atoms]], 0)]
    distinct, inverse = np.unique(inputs, return_inverse=True)
    is_wide = np.array([_is_wide(facts, at) for at in distinct.tolist()], bool)
    found: I64 = atoms[is_wide[inverse.reshape(-1)]] if len(distinct) else atoms
    return found


def _is_wide(facts: Facts, inputs_id: int) -> bool:
    inputs = facts.timeline.details.inputs_of(inputs_id)
    tensors = Arguments(inputs).tensors() if inputs is not None else []
    return bool(tensors) and tensors[0].dtype.lower() == "float"
