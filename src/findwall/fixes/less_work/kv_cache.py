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

from findwall.fixes import Claim, Facts, Fix, Outcome, Use, lines, no_use, time_of
from findwall.fixes.less_work.removed_work import left_of, scaled
from findwall.model.catalogue import UNNEEDED


def use(facts: Facts) -> Outcome:
    found = next((one for one in facts.unneeded if one.kind == "grown"), None)
    if found is None:
        return no_use("kv-cache/none")
    change = scaled(facts, found)
    figures = {
        "spent_ms": time_of(facts, found.atoms),
        "left_share": left_of(facts, found),
        "pick": found.pick or None,
    }
    return Use(
        Claim("kv-cache/found", figures, places=lines(found.place)),
        change,
        likely=lambda made: change,
        uncurved=True,
        condition="attention-looks-back-only",
    )


FIX = Fix((UNNEEDED,), "safe", use, reorders=True, removes=True)
