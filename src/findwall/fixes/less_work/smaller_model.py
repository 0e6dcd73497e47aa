"""Do less: a smaller or more efficient model, shorter sequences, fewer tokens.

What it does:
A step at the roof takes as long as its FLOPs and bytes say. Fewer layers or a smaller width,
grouped-query attention, a mixture of experts, pruning, distillation, packed sequences instead of
padding and a smaller vocabulary all reduce the work itself.

When it does not help:
The step is not at the roof: something else is in the way, and costs nothing in quality to remove.

Risk:
It is a different model: measure its quality.
"""

from __future__ import annotations

from findwall.fixes import Claim, Facts, Fix, Outcome, Use, not_here
from findwall.model.catalogue import MAJORITY_SHARE, ROOFS


def use(facts: Facts) -> Outcome:
    share = sum(facts.share(roof) for roof in ROOFS)
    if share < MAJORITY_SHARE:
        return not_here(facts, "roof/little", roof_share=share)
    return Use(Claim("smaller-model/less-work", {"roof_share": share}))


FIX = Fix(ROOFS, "needs-review", use, of_anything=True)
