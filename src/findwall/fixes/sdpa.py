"""Use scaled_dot_product_attention instead of attention written out as softmax(QKᵀ)V.

What it does:
Written out, attention writes a matrix of queries by keys to memory, reads it for the scale, the
mask, the softmax and the dropout, and once more for the product with V. A fused kernel computes it
in tiles that never leave the chip: traffic falls from the square of the sequence length to its
length.

    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=True)

When it does not help:
Attention is fused already, or there is none. An arbitrary additive mask rules out the flash kernel,
but the memory-efficient one takes it; `flex_attention` (compiled) covers biases and block masks.

Risk:
The order of sums differs, so results differ in the last bits. Attention weights are not returned.
"""

from __future__ import annotations

import numpy as np

from findwall.attribute.facts import Facts
from findwall.fixes.advice import Advice, a_step, cannot_tell, no_use, use
from findwall.fixes.job import has_shapes, of_class, time_of
from findwall.walls.evidence import carriers
from findwall.walls.places import line_of

MOVES = ("unfused-attention",)
SAFETY = "changes-numerics"


def advise(facts: Facts) -> Advice:
    spent = facts.spent_ms("unfused-attention")
    if spent <= 0:
        return _why_not(facts)
    at = next(
        (line for one in carriers(facts, "unfused-attention") if (line := line_of(facts, one.op_row))), None
    )
    where = f" at {at}" if at else ""
    return use(
        "Replace softmax(q @ kᵀ) @ v"
        f"{where} by `F.scaled_dot_product_attention(q, k, v, …)` (a bias as attn_mask, or flex_attention): "
        f"{a_step(spent)} are spent on the matrix of scores."
    )


def _why_not(facts: Facts) -> Advice:
    fused = time_of(facts, np.flatnonzero(of_class(facts, "attention")))
    if fused > 0:
        return no_use("attention already runs in fused kernels")
    if not has_shapes(facts):
        return cannot_tell("the trace has no shapes (record_shapes=True) by which attention could be told")
    return no_use("no attention is written out in this step")
