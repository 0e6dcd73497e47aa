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

from findwall.attribute.collectives import collectives_a_step
from findwall.attribute.facts import Facts
from findwall.attribute.step_traits import range_names
from findwall.fixes import Fix, Outcome, Use, no_use
from findwall.model.claims import Claim
from findwall.replay.change import Change, Elsewhere, Launch, OtherStream

MOVES = ("exposed-collective", "slow-link")


def advise(facts: Facts) -> Outcome:
    if collectives_a_step(facts) == 0:
        return no_use("communication/none")
    exposed = facts.spent_ms("exposed-collective") + facts.spent_ms("slow-link")
    if exposed <= 0:
        return no_use("communication/hidden")
    way = _way(" ".join(range_names(facts)))
    return Use(Claim(f"overlap-comms/{way}", {"exposed_ms": exposed}), _best(facts))


def _best(facts: Facts) -> Change:
    """Collectives on a stream of their own: beside the rest of the step, as far as that reaches."""
    rows = facts.kernels.row[facts.kernels.communication]
    return Change((OtherStream(rows), Launch(rows, 0.0), Elsewhere("exposed-collective", 1.0)))


def _way(ranges: str) -> str:
    if "FSDP" in ranges or "FullyShardedDataParallel" in ranges:
        return "fsdp"
    return "ddp" if "DistributedDataParallel" in ranges else "async"


FIX = Fix(MOVES, "safe", advise)
