"""Cut the batch into more micro-batches, so that pipeline stages wait for less of the step.

What it does:
With p stages and m micro-batches a pipeline idles about (p − 1) / m of its working time while it
fills and drains. More micro-batches, or a schedule that interleaves them (1F1B, interleaved,
zero-bubble), shrink that share.

When it does not help:
There is no pipeline, or micro-batches are already so small that kernels no longer fill the device.

Risk:
Smaller micro-batches run less efficiently; activations of more of them are held at once in some
schedules.
"""

from __future__ import annotations

from findwall.fixes import Claim, Facts, Fix, Outcome, Use, takes_nothing, unless


def use(facts: Facts) -> Outcome:
    return Use(Claim("more-microbatches/cut", {"waits_ms": facts.spent_ms("pipeline-bubble")}))


FIX = Fix(
    ("pipeline-bubble",), "safe", use, (unless("more-microbatches/none", takes_nothing("pipeline-bubble")),)
)
