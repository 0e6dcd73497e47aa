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
from findwall.attribute.figures import a_step
from findwall.attribute.job import range_names
from findwall.fixes import Fix, NoUse, Outcome, use
from findwall.replay.change import Change, Elsewhere, Launch, OtherStream

MOVES = ("exposed-collective", "slow-link")


def advise(facts: Facts) -> Outcome:
    if collectives_a_step(facts) == 0:
        return NoUse("there is no communication in this step")
    exposed = facts.spent_ms("exposed-collective") + facts.spent_ms("slow-link")
    if exposed <= 0:
        return NoUse("computation already hides all communication")
    return use(
        f"{_way(' '.join(range_names(facts)))}: {a_step(exposed)} of communication runs with nothing beside "
        "it.",
        _best(facts),
    )


def _best(facts: Facts) -> Change:
    """Collectives on a stream of their own: beside the rest of the step, as far as that reaches."""
    rows = facts.kernels.row[facts.kernels.communication]
    return Change((OtherStream(rows), Launch(rows, 0.0), Elsewhere("exposed-collective", 1.0)))


def _way(ranges: str) -> str:
    if "FSDP" in ranges or "FullyShardedDataParallel" in ranges:
        return (
            "Let FSDP prefetch the next layer's parameters (forward_prefetch, BackwardPrefetch.BACKWARD_PRE)"
        )
    if "DistributedDataParallel" in ranges:
        return (
            "Tune DDP's bucket_cap_mb so that gradients leave during the backward pass, with "
            "static_graph=True "
            "and without find_unused_parameters"
        )
    return "Issue collectives with async_op=True, and wait for each only where its result is needed"


FIX = Fix(MOVES, "safe", advise)
