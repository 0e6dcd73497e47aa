"""How wide the values are that kernels move, and what autocast would leave of their bytes.

Autocast goes by the op: convolutions and matmuls take 16-bit values and what follows them gets theirs; norms
over rows, losses and powers are cast back to fp32; softmaxes and sums read 16-bit values and write fp32.
"""

from __future__ import annotations

import re

import numpy as np

from findwall.attribute.device_time import of_class
from findwall.attribute.facts import Facts
from findwall.attribute.workmodel.arguments import Arguments, is_floating
from findwall.attribute.workmodel.kernel_names import item_size_in_name
from findwall.attribute.workmodel.owners import op_work
from findwall.model.catalogue import MATRIX_CLASSES
from findwall.model.intervals import F64, I64

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
    }
)
# Gathers of the weights, which autocast leaves in fp32.
TABLES = frozenset({"embedding", "embedding_dense", "embedding_bag"})
# Ops that read 16-bit values and write fp32 ones (AT_FORALL_FP32_SET_OPT_DTYPE), as large as their input.
WIDE_RESULT = frozenset({"softmax", "log_softmax", "cumprod", "cumsum"})
HALVED = NARROW_BYTES / WIDE_BYTES  # of the bytes of an fp32 op, in 16 bits
WIDE_RESULT_SHARE = (NARROW_BYTES + WIDE_BYTES) / (2 * WIDE_BYTES)  # reads the one, writes the other
# Their backward reads an fp32 gradient and the fp32 result, and writes a 16-bit gradient.
WIDE_BACKWARD_SHARE = (2 * WIDE_BYTES + NARROW_BYTES) / (3 * WIDE_BYTES)
_AROUND = re.compile(r"^_*(?:native_)?(.*?)(_forward|_backward|_backward_data)?_?$")


def value_bytes(facts: Facts, atoms: I64) -> I64:
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


def _op_bytes(facts: Facts, inputs_id: int) -> int:
    inputs = facts.timeline.details.inputs_of(inputs_id) if inputs_id >= 0 else None
    tensors = Arguments(inputs).tensors() if inputs is not None else []
    tensors = [one for one in tensors if is_floating(one.dtype) or (one.size == 1 and one.dtype != "bool")]
    return max(tensors, key=lambda one: one.elements).size if tensors else 0


def under_autocast(facts: Facts) -> F64:
    """Of each atom's bytes what autocast would leave, at best: half of what it makes 16-bit."""
    share = np.full(len(facts.atoms.index), HALVED)
    op = facts.kernels.op[facts.atoms.index]
    of_name = np.array([_left(name) for name in facts.timeline.names] or [HALVED])
    share = np.where(op >= 0, of_name[facts.timeline.events.name[np.maximum(op, 0)]], share)
    known = value_bytes(facts, np.arange(len(share)))
    share[(known > 0) & (known != WIDE_BYTES)] = 1.0
    share[of_class(facts, "optimizer", "memcpy", "collective")] = 1.0
    return share


def likely_under_autocast(facts: Facts) -> F64:
    """The same as it will be: only what a product feeds gets 16-bit values, told by as many of them."""
    share = under_autocast(facts)
    fed = _sizes_of_products(facts)
    op = facts.kernels.op[facts.atoms.index]
    inputs = np.where(op >= 0, facts.timeline.events.inputs[np.maximum(op, 0)], -1)
    distinct, inverse = np.unique(inputs, return_inverse=True)
    reached = np.array([bool(_elements(facts, one) & fed) for one in distinct.tolist()], bool)
    alone = ~reached[inverse.reshape(-1)] & ~of_class(facts, *MATRIX_CLASSES)
    alone |= of_class(facts, "gather")  # what is gathered stays what it is
    share[alone] = 1.0
    return share


def _sizes_of_products(facts: Facts) -> set[int]:
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


def _elements(facts: Facts, inputs_id: int) -> set[int]:
    inputs = facts.timeline.details.inputs_of(inputs_id) if inputs_id >= 0 else None
    return {one.elements for one in Arguments(inputs).tensors()} if inputs is not None else set()


def _left(op: str) -> float:
    """What autocast leaves of one op's bytes."""
    match = _AROUND.match(op.rpartition("::")[2])
    stem, direction = (match.group(1), match.group(2)) if match else (op, None)
    if stem in STAY_WIDE or stem in TABLES:
        return 1.0
    if stem in WIDE_RESULT:
        return WIDE_BACKWARD_SHARE if direction and "backward" in direction else WIDE_RESULT_SHARE
    return HALVED
