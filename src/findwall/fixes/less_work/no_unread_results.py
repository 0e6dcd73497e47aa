"""Leave out what nobody reads.

What it does:
Ops whose results reach no loss, no update, no host and nothing that is kept: a head that is computed and not
used, an auxiliary loss with weight zero, statistics that only some steps log. Without them the step is
shorter
by all that they take:

    if step % 100 == 0:
        stats = statistics(features)

When it does not help:
Where steps that were not seen read it: every hundredth may. Then compute it in these.

Risk:
What is read by code that torch does not see, as kernels of an extension's own, looks unread. Ops that draw
random numbers move the stream of those that follow.
"""

from __future__ import annotations

from findwall.fixes import Facts, Fix, Outcome
from findwall.fixes.less_work.removed_work import without_needless
from findwall.model.catalogue import UNNEEDED

SAID = "no-unread-results/found", "no-unread-results/none"


def use(facts: Facts) -> Outcome:
    return without_needless(facts, "unread", SAID, "read-in-no-step")


FIX = Fix((UNNEEDED,), "needs-review", use, removes=True)
