"""Attend only where the mask lets anything through.

What it does:
A fused kernel that is given a dense mask (`attn_mask`, true and false or additive) computes every score and
adds the mask to it, whatever the mask says. Where it leaves most out, as for a sliding window, for documents
or clips that are packed into one sequence, or for blocks of a prefix, most of that is for nothing. Three ways
compute what is needed alone:

    # any rule, in blocks of 128 x 128: those that it leaves out are not computed
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention
    def rule(b, h, q, k):                             # a window; packed: document[q] == document[k]
        return (q >= k) & (q - k < WINDOW)
    blocks = create_block_mask(rule, None, None, L, L)            # once for all layers
    out = torch.compile(flex_attention)(q, k, v, block_mask=blocks)

    # packed sequences: n of one length as rows of a batch and no mask at all; of several, a nested tensor
    q, k, v = (x.unflatten(2, (n, -1)).transpose(1, 2).flatten(0, 1) for x in (q, k, v))
    out = F.scaled_dot_product_attention(q, k, v)

    # a window: chunks of it as a batch, each with its own keys and those of the chunk before

When it does not help:
The mask lets most through: a plain causal one is a flag (`is_causal=True`), with which half is computed.
Sequences of a few hundred tokens are few blocks. `flex_attention` takes no dropout and no bias that is a
tensor of all scores, and is slow where it is not compiled.

Risk:
Sums are added in another order, so results differ in the last bits. A query that may look at nothing gives
zeros here, and NaN or a mean of all values there.
"""

from __future__ import annotations

import numpy as np

from findwall.dataflow.masked_attention import ATTENTION, masks_seen
from findwall.facts.step_traits import has_shapes
from findwall.fixes import (
    Claim,
    Facts,
    Fix,
    Outcome,
    Use,
    cannot_tell,
    lines,
    no_use,
    of_class,
    on_cores,
    rows_of,
    time_of,
)
from findwall.fixes.less_work.removed_work import left_of
from findwall.model.catalogue import UNNEEDED
from findwall.model.dataflow import MASK_BLOCK, Unneeded
from findwall.model.events import Kind
from findwall.model.intervals import F64
from findwall.replay.change import Change, Scale
from findwall.units import NOT_ZERO_NS, NS_PER_S
from findwall.work.op_arguments import Arguments

MASK_AT = 3  # among what it is given
# Of today's scores per second, what a kernel reaches that looks at a mask of blocks or gets small pieces.
# Measured on an H200: 0.66 for chunks of 512 of 8,192 tokens. Others are nearer to 1.
RATE = 0.7
# A window in chunks: each has the keys of the one before as well, twice as many as its window.
NEIGHBOURS = 2.0
# Times the bytes of attention that chunks move besides: keys and values joined with those of the chunk
# before, results put back, and the same for gradients. Measured on an H200: 6 to 7 in the same job.
COPIES = 6.0


def use(facts: Facts) -> Outcome:
    found = next((one for one in facts.unneeded if one.kind == "masked"), None)
    if found is None or found.left is None or found.through is None:
        return _why_not(facts)
    blocks, through = found.left, found.through
    inside = of_class(facts, "attention")[found.atoms]
    own = facts.own[found.atoms]
    likely = np.where(inside, blocks / RATE, blocks)
    worst = np.where(inside, NEIGHBOURS * blocks / RATE, NEIGHBOURS * blocks) + _copied(facts, found)
    claim = Claim(
        "block-sparse-attention/found",
        {
            "spent_ms": time_of(facts, found.atoms),
            "left_share": left_of(facts, found),
            "through_share": float((own * through).sum() / own.sum()) if own.sum() > 0 else None,
            "side": MASK_BLOCK,
        },
        places=lines(found.place),
    )
    index = facts.atoms.index[found.atoms]
    fast = np.nan_to_num(facts.kernels.floor[index]) / np.maximum(facts.kernels.duration[index], NOT_ZERO_NS)
    best = np.where(inside, through, 0.0)  # no mask of numbers is made any more
    return Use(
        claim,
        _scaled(facts, found, best * np.minimum(fast, 1.0)),  # a kernel without a mask is a faster one
        likely=lambda made: _scaled(facts, found, likely),
        may=(lambda made: _scaled(facts, found, best), lambda made: _scaled(facts, found, worst)),
        uncurved=not on_cores(facts),
    )


def _copied(facts: Facts, found: Unneeded) -> F64:
    """What chunks copy besides, as a share of each kernel's time; nothing where that is unknown."""
    if not facts.ceilings.bandwidth:
        return np.zeros(len(found.atoms))
    index = facts.atoms.index[found.atoms]
    ns = np.nan_to_num(facts.kernels.bytes[index]) * COPIES / facts.ceilings.bandwidth * NS_PER_S
    inside = of_class(facts, "attention")[found.atoms]
    share: F64 = np.where(inside, ns / np.maximum(facts.kernels.duration[index], NOT_ZERO_NS), 0.0)
    return share


def _scaled(facts: Facts, found: Unneeded, share: F64) -> Change:
    """With so much of each kernel left; none gets slower, for then nobody keeps it."""
    rows, first = np.unique(rows_of(facts, found.atoms), return_index=True)
    return Change((Scale(rows, np.minimum(share[first], 1.0)),))


def _why_not(facts: Facts) -> Outcome:
    calls = [row for row in facts.timeline.rows(Kind.OP).tolist() if facts.timeline.name_of(row) == ATTENTION]
    if not calls:
        return no_use("block-sparse-attention/no-attention")
    if not has_shapes(facts):
        return cannot_tell("block-sparse-attention/no-shapes")
    if not any(_has_blocks(facts, row) for row in calls):
        return no_use("block-sparse-attention/no-mask")
    observed = facts.rank.observed
    if observed is None or not masks_seen(observed.names):
        return cannot_tell("block-sparse-attention/not-seen")
    return no_use("block-sparse-attention/mostly-needed")


def _has_blocks(facts: Facts, call: int) -> bool:
    """Whether it has a mask of more than one block."""
    inputs = facts.timeline.inputs_of(call)
    mask = Arguments(inputs).tensor(MASK_AT) if inputs is not None else None
    return mask is not None and max(mask.dims[-2:], default=0) > MASK_BLOCK


FIX = Fix((UNNEEDED,), "changes-numerics", use, removes=True)
