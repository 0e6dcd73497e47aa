"""Reduce gradients once for several micro-batches: `no_sync`.

What it does:
With gradient accumulation only the last micro-batch needs its gradients averaged. `with
model.no_sync():` around the others leaves their collectives out, and the optimizer steps once for
all of them.

When it does not help:
There is no communication, or it is hidden already. A job that accumulates already and reduces after every
backward pass needs no more micro-batches, but no-sync-accumulation.

Risk:
A larger effective batch, which changes training. With sharded parameters (FSDP) unreduced gradients
take the memory that sharding saved.
"""

from __future__ import annotations

from findwall.facts.collectives import reduced_too_early
from findwall.fixes import Claim, Facts, Fix, Outcome, Use, is_training, spent_ms, unless
from findwall.fixes.communication.communication_refusals import NO_COLLECTIVES, communication_hidden

MOVES = ("exposed-collective", "small-collectives", "slow-link")


def use(facts: Facts) -> Outcome:
    return Use(Claim("accumulate-gradients/no-sync", {"waits_ms": spent_ms(facts, *MOVES)}))


FIX = Fix(
    MOVES,
    "needs-review",
    use,
    (
        NO_COLLECTIVES,
        unless("accumulate-gradients/no-training", lambda facts: not is_training(facts)),
        unless("accumulate-gradients/reduced-too-early", lambda facts: len(reduced_too_early(facts)) > 0),
        communication_hidden(*MOVES),
    ),
)
