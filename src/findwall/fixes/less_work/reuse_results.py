"""Compute once what is computed twice.

What it does:
The same op on the same values gives the same again: a forward pass for the loss and another for a metric, a
mask that every layer makes for itself, a cast of one weight for each use; a prompt that is encoded again in
each step of one request. Keep the first result, and hand it on:

    logits = model(x)
    loss, accuracy = criterion(logits, y), metric(logits.detach(), y)

When it does not help:
Where the first result would have to be kept for so long that memory runs out: then computing it again may be
what was meant.

Risk:
Whoever changes a shared result in place changes it for both. Layers that draw random numbers are never the
same twice, and are not counted.
"""

from __future__ import annotations

from findwall.fixes import Facts, Fix, Outcome
from findwall.fixes.less_work.removed_work import without_needless
from findwall.model.catalogue import UNNEEDED

SAID = "reuse-results/found", "reuse-results/none"


def use(facts: Facts) -> Outcome:
    return without_needless(facts, "twice", SAID, "")


FIX = Fix((UNNEEDED,), "needs-review", use, removes=True)
