"""Stay in one number format from layer to layer.

What it does:
A cast reads a tensor and writes it again in another format. Activations that go to fp32 after every
layer and back before the next, or weights that autocast converts again for every micro-batch, are
traffic without arithmetic. Let norms and activations take 16-bit input (they compute in fp32
inside), keep weights in bfloat16 with fp32 masters in the optimizer, and cast once at the edges.

When it does not help:
Casts are a small part of the step, or a compiler already folds them into their neighbours.

Risk:
What was computed in fp32 on purpose (losses, softmax over a large vocabulary, running statistics)
should stay so.
"""

from __future__ import annotations

import numpy as np

from findwall.facts.cause_kernels import carriers
from findwall.facts.number_formats import SIXTEEN_BIT_BYTES_SHARE, on_wide_data
from findwall.facts.op_shapes import shapes_text
from findwall.facts.user_lines import line_of
from findwall.fixes import (
    Claim,
    Facts,
    Fix,
    Outcome,
    Use,
    at_most,
    gone,
    lines,
    of_class,
    takes_nothing,
    time_of,
    unless,
)
from findwall.model.catalogue import MATRIX_CLASSES
from findwall.model.intervals import I64
from findwall.replay.change import Change

# Of the bytes of what works on fp32: some of it does so for other reasons, so half of what could go. On a
# language model's loss, measured on an H200, 0.67 would have been right.
LIKELY_BYTES_SHARE = (1.0 + SIXTEEN_BIT_BYTES_SHARE) / 2


def use(facts: Facts) -> Outcome:
    spent = facts.spent_ms("dtype-casts")
    first = carriers(facts, "dtype-casts", 1)
    shape = shapes_text(facts, first[0].op_row, 1) if first else ""
    places = lines(line_of(facts, first[0].op_row)) if first else []
    figures = {"casts_ms": spent, "moves_less": time_of(facts, _wide(facts)) > spent}
    return Use(
        Claim("fewer-casts/drop", figures, {"shape": shape}, places),
        _without(facts, SIXTEEN_BIT_BYTES_SHARE),
        likely=lambda made: _without(facts, LIKELY_BYTES_SHARE),
        uncurved=True,
    )


def _without(facts: Facts, left: float) -> Change:
    """No casts, and what worked on their wide results works on less of its bytes."""
    return gone(facts, facts.atoms_of("dtype-casts")) + at_most(facts, _wide(facts), left)


def _wide(facts: Facts) -> I64:
    """What works on 32-bit numbers and multiplies none."""
    products = of_class(facts, *MATRIX_CLASSES, "optimizer", "memcpy", "collective")
    return np.setdiff1d(on_wide_data(facts, np.flatnonzero(~products)), facts.atoms_of("dtype-casts"))


FIX = Fix(
    ("dtype-casts",),
    "changes-numerics",
    use,
    (unless("fewer-casts/none", takes_nothing("dtype-casts")),),
    plainer=("fused-loss", "lookup-not-onehot"),
)
