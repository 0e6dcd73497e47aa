"""Keep keys and values of earlier tokens, instead of computing them again for every new one.

What it does:
A model that is called with the whole text for each new token works on all old tokens again, and gives them
the results that they had. Keep each layer's keys and values, in buffers made once, and call it with the new
token alone: libraries do that with `use_cache=True`.

    keys[:, :, at : at + 1], values[:, :, at : at + 1] = k, v
    out = F.scaled_dot_product_attention(q, keys[:, :, : at + 1], values[:, :, : at + 1])

When it does not help:
Where attention looks ahead too, as in an encoder: then old tokens do get other results. With one token at a
time the host is the next wall: a CUDA graph over the step, with buffers of fixed length, comes after it.

Risk:
Positions and masks must go on from where they were. Memory for keys and values of all tokens of a batch.
"""

from __future__ import annotations

from msgspec.structs import replace

from findwall.fixes import Facts, Fix, Outcome, Use
from findwall.fixes.less_work.removed_work import on_fewer_rows
from findwall.model.catalogue import UNNEEDED

SAID = "kv-cache/found", "kv-cache/none"


def use(facts: Facts) -> Outcome:
    outcome = on_fewer_rows(facts, "grown", SAID, "attention-looks-back-only")
    passes = next((one.passes for one in facts.unneeded if one.kind == "grown"), 0.0)
    if isinstance(outcome, Use) and passes <= 1:
        return replace(outcome, likely=None)  # a text's first pass is whole, and was not seen: a bound alone
    return outcome


FIX = Fix((UNNEEDED,), "safe", use, reorders=True, removes=True)
