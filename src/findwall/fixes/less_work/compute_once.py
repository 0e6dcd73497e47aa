"""Compute before the loop what every step computes alike.

What it does:
A mask, positions, a normalised adjacency, the encoding of a prompt that stays, a cast of weights that nobody
trains: made from what never changes, they are the same in every step. Make them once and keep them, in a
buffer
of the module:

    self.register_buffer("mask", torch.ones(size, size).tril(), persistent=False)

When it does not help:
Where its inputs do change, if seldom: then make it again when they do.

Risk:
Two steps were compared. What changes every hundredth step (a curriculum, a length that grows) looks constant
in them: read the line before you move it.
"""

from __future__ import annotations

from findwall.fixes import Facts, Fix, Outcome
from findwall.fixes.less_work.removed_work import without_needless
from findwall.model.catalogue import UNNEEDED

SAID = "compute-once/found", "compute-once/none"


def use(facts: Facts) -> Outcome:
    return without_needless(facts, "always", SAID, "never-changes")


FIX = Fix((UNNEEDED,), "needs-review", use, removes=True)
