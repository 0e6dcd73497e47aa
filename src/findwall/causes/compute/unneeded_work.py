"""Work that nobody needs: the same losses come out without it.

What it finds:
Gradients that reach no parameter which is trained, as those of a teacher or a frozen backbone that is still
in the graph. Results that nobody reads. What was computed before from the same values.
Backward passes through one forward pass whose gradients are only added up. What every step
computes alike, from what never changes. An evaluation in every step. Rows that are worked on and thrown
away, that are copies of one another, or that an earlier pass of the model has worked on: old tokens, for each
new one. Places of a batch that only fill it up. Attention to positions that its mask leaves out. Products
with a matrix that is mostly zeros.

Why it costs:
It takes its time at whatever speed, and no faster kernel is as fast as none.

How it is told apart:
`findwall run` sees two iterations after the trace with all tensors of all ops, and follows who reads what:
the host, an update, something that is kept, or something that one of these reads. What nobody reads is
unneeded. Two ops compute the same if they have the same name and read the same values. From a trace alone
only gradients that are added up and never taken away are known. Unneeded work is of this cause before any
other: a roof that is reached by it is none. Rows are followed through ops that work row by row: where
fewer of them are read behind such an op, or were there before they were repeated, the rest is unneeded.
Masks of attention are looked at: one that lets through less than half of its blocks of 128 x 128 positions
makes that attention unneeded work. So are matrices that a job holds and does not train: where one is
the same in every step and so much of it is zero that a sparse product takes less than half as long, the rest
of its products is unneeded.

What helps:
no-unused-gradients: take what is not trained out of the graph. no-unread-results: leave out what nobody
reads. reuse-results: keep what was computed. one-backward:
take one pass of the sum of the losses. compute-once: compute what never changes before the loop.
evaluate-less-often: every n steps instead of in each. fewer-rows: pick rows before the work, repeat them
behind it. kv-cache: keep what was computed for old tokens. less-padding: fill batches up
to their longest sample. block-sparse-attention: compute the blocks that a mask lets through. sparse-product:
multiply with what is not zero.
"""

from __future__ import annotations

from findwall.causes import Cause, Claim, Facts, Told, lines
from findwall.model.catalogue import UNNEEDED
from findwall.units import ms

FIX_OF = {
    "gradients": "no-unused-gradients",
    "unread": "no-unread-results",
    "twice": "reuse-results",
    "passes": "one-backward",
    "always": "compute-once",
    "evaluation": "evaluate-less-often",
    "dropped": "fewer-rows",
    "repeated": "fewer-rows",
    "grown": "kv-cache",
    "filled": "less-padding",
    "masked": "block-sparse-attention",
    "zeros": "sparse-product",
}


def says(facts: Facts) -> Told | Claim:
    if not facts.unneeded:
        return Claim("unneeded-work/unknown")
    most = facts.unneeded[0]
    figures = {"most_ms": ms(most.needless(facts.own)), "ops": most.ops or None, "kinds": len(facts.unneeded)}
    places = lines(most.place)
    return Told(
        Claim(f"unneeded-work/{most.kind}", figures, places=places),
        Claim(f"advise/{FIX_OF[most.kind]}", places=places),
    )


CAUSE = Cause(UNNEEDED, says)
