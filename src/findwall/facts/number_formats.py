"""In which number formats a job multiplies, how wide its values are, and what autocast does to both.

Autocast goes by the op: convolutions and matmuls take 16-bit values and what follows them gets theirs; norms
over rows, losses and powers are cast back to fp32; softmaxes and sums read 16-bit values and write fp32.

Beside products it puts casts: of a weight before the forward one, and of its gradient after the backward one
that makes it. The product that takes the gradient further finds the weight cast already.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from findwall.facts.facts import Facts, of_class
from findwall.model.catalogue import MATRIX_CLASSES, SMALL_PART
from findwall.model.events import Bool
from findwall.model.intervals import F64, I64
from findwall.model.machine import MATH_TYPES, SIXTEEN_BITS, WHOLE_NUMBERS
from findwall.replay.curves import curves
from findwall.step.kernel_names.name_parts import item_size_in_name
from findwall.step.step_facts import StepFacts
from findwall.units import ms
from findwall.work.op_arguments import Arguments, Tensor, is_floating
from findwall.work.op_work import op_work
from findwall.work.work_facts import BOUNDS, WorkFacts, moving_ns, ops_named

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


def narrow_products(facts: WorkFacts, bound: str) -> I64:
    """Matmuls of 16-bit numbers that one of the device's ceilings bounds; attention has no weights."""
    formats = [MATH_TYPES.index(name) for name in SIXTEEN_BITS]
    narrow = np.isin(facts.kernels.math_index[facts.atoms.index], formats)
    bounded = facts.kernels.bound[facts.atoms.index] == BOUNDS.index(bound)
    return np.flatnonzero(narrow & bounded & of_class(facts, "matmul"))


def on_wide_data(facts: WorkFacts, atoms: I64) -> I64:
    """Of some atoms those whose op's first tensor is fp32."""
    inputs = facts.timeline.events.inputs[np.maximum(facts.kernels.op[facts.atoms.index[atoms]], 0)]
    distinct, inverse = np.unique(inputs, return_inverse=True)
    is_wide = np.array([_is_wide(facts, at) for at in distinct.tolist()], bool)
    return atoms[is_wide[inverse.reshape(-1)]] if len(distinct) else atoms


def _is_wide(facts: StepFacts, inputs_id: int) -> bool:
    return _first_type(facts, inputs_id) == "float"


def in_fp64(facts: WorkFacts) -> I64:
    """Atoms that multiply in it, or whose op's first tensor holds such numbers, or such complex ones."""
    op = facts.kernels.op[facts.atoms.index]
    inputs = np.where(op >= 0, facts.timeline.events.inputs[np.maximum(op, 0)], -1)
    distinct, inverse = np.unique(inputs, return_inverse=True)
    doubles = [at >= 0 and "double" in _first_type(facts, at) for at in distinct.tolist()]
    multiplies = facts.kernels.math_index[facts.atoms.index] == MATH_TYPES.index("fp64")
    return np.flatnonzero(np.array(doubles, bool)[inverse.reshape(-1)] | multiplies)


def in_whole_numbers(facts: WorkFacts) -> I64:
    """Atoms that multiply matrices of whole numbers, of more than 8 bits: no unit does that."""
    op = facts.kernels.op[facts.atoms.index]
    inputs = np.where(op >= 0, facts.timeline.events.inputs[np.maximum(op, 0)], -1)
    distinct, inverse = np.unique(inputs, return_inverse=True)
    whole = [at >= 0 and _first_type(facts, at) in WHOLE_NUMBERS for at in distinct.tolist()]
    multiplies = facts.kernels.is_class(*MATRIX_CLASSES)[facts.atoms.index]
    return np.flatnonzero(np.array(whole, bool)[inverse.reshape(-1)] & multiplies)


def _first_type(facts: StepFacts, inputs_id: int) -> str:
    tensors = Arguments(facts.timeline.details.inputs_of(inputs_id)).tensors()
    return tensors[0].dtype.lower() if tensors else ""


# -- how wide values are -------------------------------------------------------------------------------

WIDE_BYTES = 4  # of an fp32 number
NARROW_BYTES = 2  # of either 16-bit float
MATH_BYTES = {"fp64": 8, "fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "int8": 1}

# Ops that autocast runs in fp32, as torch 2.13 lists them (ATen/autocast_mode.h, AT_FORALL_FP32).
STAY_WIDE = frozenset(
    {
        "acos",
        "asin",
        "cosh",
        "erfinv",
        "exp",
        "expm1",
        "log",
        "log10",
        "log2",
        "log1p",
        "reciprocal",
        "rsqrt",
        "sinh",
        "tan",
        "pow",
        "softplus",
        "layer_norm",
        "rms_norm",
        "fused_rms_norm",
        "group_norm",
        "frobenius_norm",
        "nuclear_norm",
        "cosine_similarity",
        "poisson_nll_loss",
        "cosine_embedding_loss",
        "nll_loss",
        "nll_loss2d",
        "hinge_embedding_loss",
        "kl_div",
        "l1_loss",
        "smooth_l1_loss",
        "huber_loss",
        "mse_loss",
        "margin_ranking_loss",
        "multilabel_margin_loss",
        "soft_margin_loss",
        "triplet_margin_loss",
        "multi_margin_loss",
        "binary_cross_entropy_with_logits",
        "dist",
        "pdist",
        "cdist",
        "renorm",
        "logsumexp",
        "upsample_nearest1d",
        "upsample_nearest2d",
        "upsample_nearest3d",
        "upsample_linear1d",
        "upsample_bilinear2d",
        "upsample_trilinear3d",
        "upsample_bicubic2d",
        "fft_r2c",
        "fft_c2c",
        "fft_c2r",
    }
)
# Gathers of the weights, which autocast leaves in fp32.
TABLES = frozenset({"embedding", "embedding_dense", "embedding_bag"})
# Ops that read 16-bit values and write fp32 ones (AT_FORALL_FP32_SET_OPT_DTYPE), as large as their input.
WIDE_RESULT = frozenset({"softmax", "log_softmax", "cumprod", "cumsum"})
# Ops that move a 64-bit index with each value, in as many passes over both as there are values.
PUTS_IN_ORDER = re.compile(r"^aten::(arg|m)?sort$|^aten::_?(topk|kthvalue|median|mode|unique)")
HALVED = NARROW_BYTES / WIDE_BYTES  # of the bytes of an fp32 op, in 16 bits
WIDE_RESULT_SHARE = (NARROW_BYTES + WIDE_BYTES) / (2 * WIDE_BYTES)  # reads the one, writes the other
# Their backward reads an fp32 gradient and the fp32 result, and writes a 16-bit gradient.
WIDE_BACKWARD_SHARE = (2 * WIDE_BYTES + NARROW_BYTES) / (3 * WIDE_BYTES)
_AROUND = re.compile(r"^_*(?:native_)?(.*?)(_forward|_backward|_backward_data)?_?$")


def value_bytes(facts: WorkFacts, atoms: I64) -> I64:
    """Bytes of a value that each atom's kernel moves: of its largest tensor that is no index, else as its
    format or its name says; 0 unknown."""
    events, index = facts.timeline.events, facts.atoms.index[atoms]
    op = facts.kernels.op[index]
    inputs = np.where(op >= 0, events.inputs[np.maximum(op, 0)], -1).astype(np.int64)
    key = inputs * len(facts.timeline.names) + events.name[facts.kernels.row[index]]
    multiply = of_class(facts, *MATRIX_CLASSES)[atoms]
    distinct, first, inverse = np.unique(key, return_index=True, return_inverse=True)
    found = np.zeros(len(distinct), np.int64)
    for at, here in enumerate(first.tolist()):
        name = facts.timeline.name_of(int(facts.kernels.row[index[here]]))
        by_format = MATH_BYTES.get(facts.math(int(atoms[here])) or "", 0) if multiply[here] else 0
        found[at] = _op_bytes(facts, int(inputs[here])) or by_format or item_size_in_name(name) or 0
    return found[inverse.reshape(-1)] if len(distinct) else np.zeros(0, np.int64)


def _op_bytes(facts: StepFacts, inputs_id: int) -> int:
    tensors = Arguments(facts.timeline.details.inputs_of(inputs_id)).tensors()
    tensors = [one for one in tensors if is_floating(one.dtype) or (one.size == 1 and one.dtype != "bool")]
    return max(tensors, key=lambda one: one.elements).size if tensors else 0


def under_autocast(facts: WorkFacts) -> F64:
    """Of each atom's bytes what autocast would leave, at best: half of what it makes 16-bit."""
    op = facts.kernels.op[facts.atoms.index]
    of_name = np.array([_left(name) for name in facts.timeline.names] or [HALVED])
    share = np.where(op >= 0, of_name[facts.timeline.events.name[np.maximum(op, 0)]], HALVED)
    known = value_bytes(facts, np.arange(len(share)))
    share[(known > 0) & (known != WIDE_BYTES)] = 1.0
    share[of_class(facts, "optimizer", "memcpy", "collective")] = 1.0
    share[_by_inputs(facts, lambda one: _is_without_floats(facts, one))] = 1.0
    return share


def likely_under_autocast(facts: WorkFacts) -> F64:
    """The same as it will be: only what a product feeds gets 16-bit values, told by as many of them."""
    share = under_autocast(facts)
    fed = _sizes_of_products(facts)
    reached = _by_inputs(facts, lambda one: bool(_elements(facts, one) & fed))
    alone = ~reached & ~of_class(facts, *MATRIX_CLASSES)
    alone |= of_class(facts, "gather")  # what is gathered stays what it is
    alone |= ops_named(facts.timeline, facts.kernels.op[facts.atoms.index], PUTS_IN_ORDER)
    share[alone] = 1.0
    return share


def _by_inputs(facts: WorkFacts, holds: Callable[[int], bool]) -> Bool:
    """For each atom what holds of its op's recorded inputs, by their number; below 0 unknown."""
    op = facts.kernels.op[facts.atoms.index]
    inputs = np.where(op >= 0, facts.timeline.events.inputs[np.maximum(op, 0)], -1)
    distinct, inverse = np.unique(inputs, return_inverse=True)
    return np.array([holds(one) for one in distinct.tolist()], bool)[inverse.reshape(-1)]


def _is_without_floats(facts: StepFacts, inputs_id: int) -> bool:
    """Whether all that an op is given is known, and no number of floating point: indices, masks."""
    tensors = Arguments(facts.timeline.details.inputs_of(inputs_id)).tensors()
    return bool(tensors) and not any(is_floating(one.dtype) for one in tensors)


def _sizes_of_products(facts: WorkFacts) -> set[int]:
    """How many numbers the results of products have, and what their backward reads and writes."""
    op = facts.kernels.op[facts.atoms.index[of_class(facts, *MATRIX_CLASSES)]]
    rows = np.unique(op[op >= 0])
    key = facts.timeline.events.inputs[rows].astype(np.int64)
    found: set[int] = set()
    for row in rows[np.unique(key, return_index=True)[1]].tolist():
        name = facts.timeline.name_of(row)
        work = op_work(name, facts.timeline.inputs_of(row))
        if work is not None:
            found.add(int(work.write_bytes) // WIDE_BYTES)
        if "backward" in name:
            found |= _elements(facts, int(facts.timeline.events.inputs[row]))
    return found


def _elements(facts: StepFacts, inputs_id: int) -> set[int]:
    return {one.elements for one in Arguments(facts.timeline.details.inputs_of(inputs_id)).tensors()}


def _left(op: str) -> float:
    """What autocast leaves of one op's bytes."""
    match = _AROUND.match(op.rpartition("::")[2])
    stem, direction = (match.group(1), match.group(2)) if match else (op, None)
    if stem in STAY_WIDE or stem in TABLES:
        return 1.0
    if stem in WIDE_RESULT:
        return WIDE_BACKWARD_SHARE if direction and "backward" in direction else WIDE_RESULT_SHARE
    return HALVED


# -- casts ---------------------------------------------------------------------------------------------

Shape = tuple[int, ...]


def cast_ns(facts: WorkFacts, atoms: I64) -> F64:
    """What casting takes beside each product: fp32 read, 16 bits written, or the other way round."""
    distinct, inverse = np.unique(facts.kernels.op[facts.atoms.index[atoms]], return_inverse=True)
    known = _weights(facts)
    numbers = [
        _cast(facts, row, one, known) if row >= 0 and (one := _weight(facts, row)) is not None else 0
        for row in distinct.tolist()
    ]
    moved = np.array(numbers, np.float64)[inverse.reshape(-1)] * (WIDE_BYTES + NARROW_BYTES)
    floor = moving_ns(facts, moved)
    return np.where(moved > 0, curves().likely_ns("pointwise", np.maximum(floor, 1.0)), 0.0)


def _weights(facts: WorkFacts) -> set[Shape]:
    """The shapes that the step multiplies with, forward."""
    ops = facts.kernels.op[facts.atoms.index[of_class(facts, *MATRIX_CLASSES)]]
    rows = np.unique(ops[ops >= 0])
    rows = rows[~facts.links.backward[rows]]
    first = np.unique(facts.timeline.events.inputs[rows], return_index=True)[1]
    found = (_weight(facts, row) for row in rows[first].tolist())
    return {_shape(one) for one in found if one is not None}


def _cast(facts: StepFacts, row: int, weight: Tensor, known: set[Shape]) -> int:
    """How many numbers are cast for one product."""
    if not facts.links.backward[row] or "conv" in facts.timeline.name_of(row):
        return weight.elements
    # Of two matrices: the result is the gradient of a weight if one of that shape was multiplied with.
    matrices = matrices_of(facts, row)
    rows, columns = matrices[0].dims[0] if len(matrices) > 1 else 0, weight.dims[-1]
    return rows * columns if tuple(sorted((rows, columns))) in known else 0


def _weight(facts: StepFacts, row: int) -> Tensor | None:
    """What stands where a product has its weight: behind what it is multiplied with; the matrix that a vector
    is multiplied with. Of a batched product no operand is a weight."""
    name = facts.timeline.name_of(row)
    if "bmm" in name:
        return None
    if "conv" in name:
        return Arguments(facts.timeline.inputs_of(row)).tensor(2 if "backward" in name else 1)
    matrices = matrices_of(facts, row)
    with_vector = name.rstrip("_").endswith("mv")
    return matrices[-1] if len(matrices) > (0 if with_vector else 1) else None


def matrices_of(facts: StepFacts, row: int) -> list[Tensor]:
    """The op's tensors of two dims and more."""
    return [one for one in Arguments(facts.timeline.inputs_of(row)).tensors() if len(one.dims) > 1]


def _shape(one: Tensor) -> Shape:
    """The same whichever way it is turned."""
    return tuple(sorted(one.dims))
