"""Shapes of an op's tensors: as text, which of them fit the hardware, and whether they change."""

from __future__ import annotations

import numpy as np

from findwall.attribute.facts import Facts
from findwall.attribute.workmodel.arguments import Arguments, Tensor
from findwall.attribute.workmodel.owners import op_work
from findwall.model.catalogue import MENTION_SHARE, SMALL_PART
from findwall.model.intervals import I64

# Elements of a 16-bit operand: 8 are the 16 bytes that tensor cores load at once, whole tiles are larger.
ALIGNED_MULTIPLE = 8
PAD_MULTIPLES = (64, 32, 16)
SHORT_TYPES = {
    "float": "fp32",
    "double": "fp64",
    "c10::half": "fp16",
    "c10::bfloat16": "bf16",
    "long int": "int64",
    "int": "int32",
    "signed char": "int8",
    "unsigned char": "uint8",
}


def tensors_of(facts: Facts, op_row: int) -> list[Tensor]:
    """The op's tensor arguments; empty where shapes were not recorded."""
    inputs = facts.timeline.inputs_of(op_row) if op_row >= 0 else None
    return Arguments(inputs).tensors() if inputs is not None else []


def _first_of_list(facts: Facts, op_row: int) -> list[Tensor]:
    """The first tensor of the first list argument (cat, stack, foreach); its type is often not recorded."""
    inputs = facts.timeline.inputs_of(op_row) if op_row >= 0 else None
    return Arguments(inputs).tensor_list(0)[:1] if inputs is not None else []


def _typed(facts: Facts, op_row: int) -> bool:
    """Whether the types of the first list's tensors were recorded."""
    inputs = facts.timeline.inputs_of(op_row) if op_row >= 0 else None
    return inputs is not None and bool(inputs.types) and isinstance(inputs.types[0], list)


def shape(tensor: Tensor) -> str:
    return "[" + "×".join(str(extent) for extent in tensor.dims) + "]"


def short_type(dtype: str) -> str:
    return SHORT_TYPES.get(dtype.lower(), dtype.rpartition("::")[2].lower())


def shapes_text(facts: Facts, op_row: int, most: int = 2) -> str:
    """ "[8192×768]·[768×50257] bf16"; empty where nothing was recorded."""
    given = [one for one in tensors_of(facts, op_row) if one.elements]  # an empty one is for a result
    tensors = given or _first_of_list(facts, op_row)
    if not tensors:
        return ""
    name = facts.timeline.name_of(op_row)
    if "mm" in name.rpartition("::")[2] and len(tensors) >= 2:
        tensors = [tensor for tensor in tensors if len(tensor.dims) >= 2][-2:] or tensors
    shown = tensors[:most]
    sign = "·" if "mm" in name else ", "
    dtype = f" {short_type(shown[0].dtype)}" if given or _typed(facts, op_row) else ""
    return sign.join(shape(tensor) for tensor in shown) + dtype


def odd_dims(facts: Facts, op_row: int) -> list[int]:
    """The op's dims that keep 16-bit operands off the fast kernels."""
    if op_row < 0:
        return []
    work = op_work(facts.timeline.name_of(op_row), facts.timeline.inputs_of(op_row))
    named = [text.rpartition(":")[2] for text in work.misaligned] if work is not None else []
    return sorted({int(text) for text in named if text.isdigit()}, reverse=True)


def padded(extent: int) -> int:
    """The size to pad to: a multiple of 64 where that adds little, of 8 at least."""
    for multiple in PAD_MULTIPLES:
        rounded = -(-extent // multiple) * multiple
        if rounded <= (1.0 + MENTION_SHARE) * extent:  # more padding costs work
            return rounded
    return -(-extent // ALIGNED_MULTIPLE) * ALIGNED_MULTIPLE


def shapes_change(facts: Facts, atoms: I64) -> bool | None:
    """Whether the ops of some atoms are given other shapes from step to step; None where nobody can tell.

    An op that not every step calls says nothing.
    """
    rows = facts.kernels.op[facts.atoms.index[atoms]]
    steps = facts.queue.step[facts.queue.positions(facts.kernels.row[facts.atoms.index[atoms]])]
    events = facts.timeline.events
    told = (rows >= 0) & (events.inputs[np.maximum(rows, 0)] >= 0)
    rows, steps = rows[told], steps[told]
    if facts.steps.count < 2 or len(rows) == 0:
        return None
    names = events.name[rows].astype(np.int64)
    shapes = names * (len(facts.timeline.details.inputs) + 1) + events.inputs[rows]
    usual = _steps_with(names, steps) == facts.steps.count
    other = usual & (_steps_with(shapes, steps) < facts.steps.count)
    return bool(other.sum() > SMALL_PART * usual.sum())


def _steps_with(key: I64, steps: I64) -> I64:
    """For each row in how many steps its key occurs."""
    distinct, at = np.unique(key, return_inverse=True)
    pairs = np.unique(np.stack([at.reshape(-1), steps]), axis=1)
    found: I64 = np.bincount(pairs[0], minlength=len(distinct))[at.reshape(-1)]
    return found
