"""Work out the loss over a large vocabulary without going through the logits again and again.

What it does:
Cross-entropy over a vocabulary of 100,000 words reads and writes tensors of rows × words: cast up to fp32,
log-softmax, the loss, and the same back again, each a pass over gigabytes. Under torch.compile cast,
log-softmax and loss become one pass forward and one backward:

    loss_of = torch.compile(lambda logits, targets: F.cross_entropy(logits.float(), targets))

A fused linear-cross-entropy (Liger Kernel's, Apple's cut-cross-entropy, torchtune's chunked one) multiplies
with the head and takes the loss in pieces, so that the logits are never written at all; that saves their
memory too.

When it does not help:
The vocabulary is small, or the loss already runs in one kernel. Where the host is the wall fewer passes save
nothing.

Risk:
Sums in another order: results differ in the last bits. Loss in pieces works the logits out again or stores
gradients early; check it against the plain loss once.
"""

from __future__ import annotations

import re

import msgspec
import numpy as np

from findwall.facts.number_formats import NARROW_BYTES
from findwall.facts.op_shapes import tensors_of
from findwall.fixes import (
    Claim,
    Facts,
    Fix,
    Made,
    Outcome,
    Use,
    gone,
    matching,
    no_use,
    of_class,
    rows_of,
    time_of,
)
from findwall.model.catalogue import MATRIX_CLASSES, MENTION_SHARE
from findwall.model.intervals import I64
from findwall.replay.change import Change, Drop, Replace
from findwall.replay.curves import curves
from findwall.step.step_facts import StepFacts
from findwall.units import NS_PER_S, ms
from findwall.work.op_arguments import Arguments
from findwall.work.work_facts import WorkFacts

_LOSS = re.compile(r"^aten::_log_softmax(_backward_data)?$")
_BACKWARD = re.compile("backward")
COMPILES_ALL = {"torch-compile", "reduce-overhead"}  # fixes that fuse the loss with the rest


class _Logits(msgspec.Struct, frozen=True):
    """The passes over one step's logits."""

    rows: int  # of one tensor of logits
    words: int
    forward: I64  # atoms of the log-softmax
    backward: I64
    beside: I64  # atoms of other passes over as many numbers
    width: int  # bytes of a number before it was cast up


def use(facts: Facts) -> Outcome:
    found = _logits(facts)
    if found is None:
        return no_use("fused-loss/none")
    every = np.concatenate([found.forward, found.backward, found.beside])
    spent = time_of(facts, every)
    if spent <= MENTION_SHARE * ms(facts.step):
        return no_use("fused-loss/little", words=found.words, spent_ms=spent)
    figures = {"passes": len(every) / facts.steps.count, "rows": found.rows, "words": found.words}
    return Use(
        Claim("fused-loss/fuse", {**figures, "spent_ms": spent}),
        gone(facts, every),
        likely=lambda made: _likely(facts, found, made),
    )


def _logits(facts: WorkFacts) -> _Logits | None:
    """The largest logits that a log-softmax goes through; None where none are of many words."""
    ops = facts.kernels.op[facts.atoms.index]
    loss = np.flatnonzero((ops >= 0) & matching(facts, np.maximum(ops, 0), _LOSS))
    size = {atom: _wide(facts, atom) for atom in loss.tolist()}
    largest = max(size.values(), default=(0, 0), key=lambda dims: dims[0] * dims[1])
    if not largest[1]:
        return None
    numbers = largest[0] * largest[1]
    mine = np.array([atom for atom in loss.tolist() if size[atom] == largest], np.int64)
    backward = matching(facts, ops[mine], _BACKWARD)
    passes = np.flatnonzero(~of_class(facts, *MATRIX_CLASSES, "optimizer") & (ops >= 0))
    inputs, group = np.unique(facts.timeline.events.inputs[ops[passes]], return_inverse=True)
    widths = [_widths(facts, one, numbers) for one in inputs.tolist()]
    beside = np.setdiff1d(passes[np.array([bool(one) for one in widths], bool)[group.reshape(-1)]], mine)
    width = min(min(one) for one in widths if one)
    return _Logits(*largest, mine[~backward], mine[backward], beside, width)


def _wide(facts: WorkFacts, atom: int) -> tuple[int, int]:
    """Rows and words of what a log-softmax is given."""
    tensors = tensors_of(facts, facts.op_row(atom))
    words = tensors[0].dims[-1] if tensors and tensors[0].dims else 0
    return (tensors[0].elements // words, words) if words else (0, 0)


def _widths(facts: StepFacts, inputs_id: int, numbers: int) -> list[int]:
    """Bytes a number of those of an op's tensors that are as large as the logits."""
    inputs = facts.timeline.details.inputs_of(inputs_id)
    tensors = Arguments(inputs).tensors() if inputs is not None else []
    return [one.size for one in tensors if one.elements == numbers and one.size]


def _likely(facts: WorkFacts, found: _Logits, made: Made) -> Change:
    """One generated pass forward, which reads the logits, and one backward, which reads and writes them."""
    if COMPILES_ALL & made or not facts.ceilings.bandwidth:
        return Change()
    width = min(found.width, NARROW_BYTES) if "bf16-autocast" in made else found.width
    once = found.rows * found.words * width / facts.ceilings.bandwidth * NS_PER_S
    forward, backward = rows_of(facts, found.forward), rows_of(facts, found.backward)
    taken = curves().likely_ns("fused/chain", np.array([once, 2 * once]))
    return Change(
        (
            Replace(forward, taken[:1]),
            Replace(backward, taken[1:]),
            Drop(np.unique(rows_of(facts, found.beside))),
        )
    )


FIX = Fix(("unfused-pointwise", "dtype-casts", "memory-roof"), "changes-numerics", use)
