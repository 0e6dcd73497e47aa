"""Shapes and layouts of an op's tensors: as text, which of them fit the hardware, whether they change."""

from __future__ import annotations

import re

import numpy as np

from findwall.facts.facts import Facts, of_class
from findwall.model.catalogue import MAJORITY_SHARE, MATRIX_CLASSES, MENTION_SHARE, SMALL_PART
from findwall.model.events import Bool, Kind
from findwall.model.intervals import F64, I64
from findwall.replay.curves import curves
from findwall.step.links import nearest
from findwall.step.step_facts import StepFacts
from findwall.work.op_arguments import Arguments, Tensor
from findwall.work.op_work import op_work
from findwall.work.work_facts import WorkFacts, moving_ns, ops_named

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


def tensors_of(facts: StepFacts, op_row: int) -> list[Tensor]:
    """The op's tensor arguments; empty where shapes were not recorded."""
    return Arguments(facts.timeline.inputs_of(op_row)).tensors()


def _typed(facts: StepFacts, op_row: int) -> bool:
    """Whether the types of the first list's tensors were recorded."""
    inputs = facts.timeline.inputs_of(op_row)
    return inputs is not None and bool(inputs.types) and isinstance(inputs.types[0], list)


def shape(tensor: Tensor) -> str:
    return "[" + "×".join(str(extent) for extent in tensor.dims) + "]"


def short_type(dtype: str) -> str:
    return SHORT_TYPES.get(dtype.lower(), dtype.rpartition("::")[2].lower())


def shapes_text(facts: StepFacts, op_row: int, most: int = 2) -> str:
    """ "[8192×768]·[768×50257] bf16"; empty where nothing was recorded."""
    given = [one for one in tensors_of(facts, op_row) if one.elements]  # an empty one is for a result
    # Else the first of a list (cat, stack, foreach), whose type is often not recorded.
    tensors = given or Arguments(facts.timeline.inputs_of(op_row)).tensor_list(0)[:1]
    if not tensors:
        return ""
    name = facts.timeline.name_of(op_row)
    if "mm" in name.rpartition("::")[2] and len(tensors) >= 2:
        tensors = [tensor for tensor in tensors if len(tensor.dims) >= 2][-2:] or tensors
    shown = tensors[:most]
    sign = "·" if "mm" in name else ", "
    dtype = f" {short_type(shown[0].dtype)}" if given or _typed(facts, op_row) else ""
    return sign.join(shape(tensor) for tensor in shown) + dtype


def odd_dims(facts: StepFacts, op_row: int) -> list[int]:
    """The op's dims that keep 16-bit operands off the fast kernels."""
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


def shapes_change(facts: WorkFacts, atoms: I64) -> bool | None:
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
    return np.bincount(pairs[0], minlength=len(distinct))[at.reshape(-1)]


# -- layouts of images ---------------------------------------------------------------------------------

IMAGE_DIMS = 4  # batch, channels, height and width
_CONVOLUTIONS = ("aten::cudnn_convolution", "aten::miopen_convolution", "aten::_convolution")
_CONVOLUTION = re.compile(r"conv", re.IGNORECASE)
_FOURIER = re.compile(r"^aten::_fft_(?:r2c|c2c|c2r)$")


def convolves(facts: Facts) -> bool:
    """Whether the step convolves anything."""
    return bool(layouts(facts)) or bool(facts.own[of_class(facts, "conv")].sum() > 0)


def channels_last(facts: StepFacts) -> bool:
    """Whether most convolutions are known to read channels-last tensors."""
    found = layouts(facts)
    return bool(found) and sum(found) > MAJORITY_SHARE * len(found)


def on_images(facts: StepFacts) -> bool:
    """Whether some convolution reads images, of four dims or more, as far as the trace tells."""
    sizes = [len(tensor.dims) for tensor in _inputs(facts)]
    return not sizes or max(sizes) >= IMAGE_DIMS


def layouts(facts: StepFacts) -> list[bool]:
    """For each distinct input of a convolution whether it is channels-last already."""
    return [
        tensor.strides[1] == 1 and tensor.dims[1] > 1
        for tensor in _inputs(facts)
        if len(tensor.dims) >= IMAGE_DIMS and tensor.strides is not None
    ]


def _inputs(facts: StepFacts) -> list[Tensor]:
    """What convolutions read, each distinct input once."""
    events, names = facts.timeline.events, facts.timeline.names
    ops = facts.timeline.rows(Kind.OP)
    known = np.array([names.index(name) for name in _CONVOLUTIONS if name in names], np.int64)
    ops = ops[np.isin(events.name[ops], known)]
    found = (facts.timeline.details.inputs_of(one) for one in np.unique(events.inputs[ops]).tolist())
    tensors = (Arguments(inputs).tensor(0) for inputs in found)
    return [tensor for tensor in tensors if tensor is not None]


def transforms_images(facts: Facts) -> bool:
    """Whether images go through Fourier transforms along their sides: for that those that lie channels-last
    are turned."""
    op = facts.kernels.op[facts.atoms.index]
    atoms = np.flatnonzero(ops_named(facts.timeline, op, _FOURIER))
    if float(facts.own[atoms].sum()) < MENTION_SHARE * facts.step:
        return False
    return any(_along_sides(facts, row) for row in np.unique(op[atoms]).tolist())


def _along_sides(facts: StepFacts, op: int) -> bool:
    arguments = Arguments(facts.timeline.inputs_of(op))
    x, axes = arguments.tensor(0), arguments.numbers(1)
    return x is not None and len(x.dims) >= IMAGE_DIMS and bool(axes) and 1 not in (axes or [])


def under_convolution(facts: WorkFacts) -> Bool:
    """Atoms that a convolution, or the backward of one, launched."""
    events = facts.timeline.events
    convolutions = events.is_kind(Kind.OP) & facts.timeline.named(_CONVOLUTION)[events.name]
    around = nearest(facts.links.parent, convolutions)
    op = facts.kernels.op[facts.atoms.index]
    return (op >= 0) & (around[np.maximum(op, 0)] >= 0)


def slow_convolutions(facts: Facts) -> I64:
    """Convolutions well under the ceiling, longest first."""
    slow = facts.atoms_of("slow-kernels")
    conv = of_class(facts, "conv") | (under_convolution(facts) & of_class(facts, *MATRIX_CLASSES))
    return slow[conv[slow]]


# -- padding -------------------------------------------------------------------------------------------

READ_AND_WRITTEN = 2


def padding_ns(facts: WorkFacts, atoms: I64) -> F64:
    """What copying the operands of each product takes; part of it is done by the kernels that make them, and
    how much of it nobody knows beforehand."""
    distinct, inverse = np.unique(facts.kernels.op[facts.atoms.index[atoms]], return_inverse=True)
    moved = np.array([_operand_bytes(facts, op) for op in distinct.tolist()], np.float64)
    floor = moving_ns(facts, READ_AND_WRITTEN * moved)
    each: F64 = np.where(floor > 0, curves().likely_ns("pointwise", np.maximum(floor, 1.0)), 0.0)
    return each[inverse.reshape(-1)]


def _operand_bytes(facts: StepFacts, op: int) -> float:
    return sum(one.nbytes for one in tensors_of(facts, op) if len(one.dims) > 1)
