"""Take one backward pass of the sum of the losses, where each loss has its own.

What it does:
Gradients add up: two backward passes through one forward pass leave the same in `.grad` as one pass of both
losses together, and go through all that the losses share twice.

    (loss_a + loss_b).backward()        # instead of loss_a.backward(retain_graph=True); loss_b.backward()

When it does not help:
Each loss's gradient is wanted by itself, to weigh, project or log it.

Risk:
Sums are added in another order: results differ in the last bits. What the losses do not share is held until
the one pass comes to it.
"""

from __future__ import annotations

from findwall.fixes import Facts, Fix, Outcome
from findwall.fixes.less_work.removed_work import without_needless
from findwall.model.catalogue import UNNEEDED

SAID = "one-backward/found", "one-backward/none"


def use(facts: Facts) -> Outcome:
    return without_needless(facts, "passes", SAID, "")


FIX = Fix((UNNEEDED,), "safe", use, removes=True, reorders=True)
