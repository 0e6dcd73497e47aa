"""Run collectives beside computation instead of after it.

What it does:
Gradients can leave as soon as they exist: DDP sends them in buckets during the backward pass, FSDP
gathers the next layer's parameters while this one computes. What prevents it: a last bucket that
holds almost everything, `find_unused_parameters=True`, gathers that are not prefetched, gradients
clipped layer by layer, and collectives issued by hand on the compute stream.

When it does not help:
Collectives already run under computation, or they take longer than all the computation there is:
then fewer bytes or a faster link are needed.

Risk:
Prefetching holds more parameters at once: more memory. The results are the same.
"""

from __future__ import annotations

from findwall.fixes import Claim, Facts, Fix, Outcome, Use, range_names, spent_ms
from findwall.fixes.communication.communication_refusals import NO_COLLECTIVES, communication_hidden
from findwall.replay.change import Change, Elsewhere, Launch, OtherStream

MOVES = ("exposed-collective", "slow-link")


def use(facts: Facts) -> Outcome:
    ranges = " ".join(range_names(facts))
    way = "ddp" if "DistributedDataParallel" in ranges else "async"
    if "FSDP" in ranges or "FullyShardedDataParallel" in ranges:
        way = "fsdp"
    # At best collectives run on a stream of their own: beside the rest of the step, as far as that reaches.
    rows = facts.kernels.row[facts.kernels.communication]
    beside = Change((OtherStream(rows), Launch(rows, 0.0), Elsewhere("exposed-collective", 1.0)))
    return Use(Claim(f"overlap-comms/{way}", {"exposed_ms": spent_ms(facts, *MOVES)}), beside)


FIX = Fix(
    MOVES,
    "safe",
    use,
    (
        NO_COLLECTIVES,
        communication_hidden(*MOVES),
    ),
)
