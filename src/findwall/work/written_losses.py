"""A loss over many words that a job writes out op by op: the passes over its logits.

`-(target * (softmax(x) + eps).log()).sum(-1)` and its like give themselves away: what a softmax over the last
dimension made, or as much, is multiplied with a tensor of its own size and summed along the words, or one of
them is gathered from each row. Where torch's own loss is called, nothing was written out.
"""

from __future__ import annotations

import math
import re

import msgspec
import numpy as np

from findwall.model.catalogue import MATRIX_CLASSES
from findwall.model.intervals import I64
from findwall.step.call_names import in_window
from findwall.step.called_ops import heads_of
from findwall.work.op_arguments import Arguments, Tensor
from findwall.work.work_facts import WorkFacts

FEWEST_WORDS = 256  # fewer may be classes, actions or positions, over which a pass is short. Chosen by hand.
_SOFTMAX = re.compile(r"^aten::_?(log_)?softmax$")
_OF_SOFTMAX = re.compile(r"^aten::_(log_)?softmax(_backward_data)?$")
_CALLED = re.compile(r"^aten::(cross_entropy_loss|nll_loss\w*|kl_div)$")
_TIMES, _LOG, _SUM, _GATHER = "aten::mul", "aten::log", "aten::sum", "aten::gather"


class WrittenLoss(msgspec.Struct, frozen=True):
    row: int  # the softmax, as the job called it
    rows: int  # of its logits
    words: int
    softmax: I64  # atoms, its backward with it
    beside: I64  # of all other passes over as many numbers


def written_loss(facts: WorkFacts) -> WrittenLoss | None:
    """The one over the most numbers; None where none is written out."""
    heads = in_window(facts, heads_of(facts)).tolist()
    if any(_CALLED.match(facts.timeline.name_of(row)) for row in heads):
        return None
    given = {row: Arguments(facts.timeline.inputs_of(row)).tensor(0) for row in heads}
    found = [
        (tensor.elements, at, tensor)
        for at, row in enumerate(heads)
        if _SOFTMAX.match(facts.timeline.name_of(row))
        and (tensor := given[row]) is not None
        and len(tensor.dims) > 1
        and tensor.dims[-1] >= FEWEST_WORDS
    ]
    for _, at, logits in sorted(found, key=lambda one: (-one[0], one[1])):
        if _is_loss(facts, heads[at:], logits):
            return _passes(facts, heads[at], logits)
    return None


def _is_loss(facts: WorkFacts, heads: list[int], logits: Tensor) -> bool:
    """Whether what these ops make of the logits ends in a sum of products along the words, or one of each row
    is taken; and a logarithm was taken of it."""
    logs, multiplied = "log_" in facts.timeline.name_of(heads[0]), False
    for row in heads[1:]:
        name, given = facts.timeline.name_of(row), Arguments(facts.timeline.inputs_of(row))
        sizes = [one.elements for one in given.tensors()]
        if logits.elements not in sizes:
            continue
        logs |= name == _LOG
        multiplied |= name == _TIMES and sizes.count(logits.elements) > 1
        first = given.tensor(0)
        rank = len(first.dims) if first is not None else 1
        along = [at % rank for at in given.numbers(1) or []] == [rank - 1]
        if logs and ((name == _SUM and multiplied and along) or name == _GATHER):
            return True
    return False


def _passes(facts: WorkFacts, row: int, logits: Tensor) -> WrittenLoss:
    op = facts.kernels.op[facts.atoms.index]
    passes = np.flatnonzero(
        (op >= 0) & ~facts.kernels.is_class(*MATRIX_CLASSES, "optimizer")[facts.atoms.index]
    )
    inputs, group = np.unique(facts.timeline.events.inputs[op[passes]], return_inverse=True)
    known = [Arguments(facts.timeline.details.inputs_of(one)) for one in inputs.tolist()]
    wide = np.array([logits.elements in map(_elements, one.tensors()) for one in known], bool)
    mine = passes[wide[group.reshape(-1)]]
    is_softmax = facts.timeline.bears(_OF_SOFTMAX, op[mine])
    return WrittenLoss(
        row,
        math.prod(logits.dims[:-1]),
        logits.dims[-1],
        mine[is_softmax],
        mine[~is_softmax],
    )


def _elements(tensor: Tensor) -> int:
    return tensor.elements
