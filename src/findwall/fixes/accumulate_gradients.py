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

from findwall.attribute.collectives import collectives_a_step, reduced_too_early
from findwall.attribute.facts import Facts
from findwall.attribute.step_traits import is_training
from findwall.fixes import Fix, Outcome, Use, no_use
from findwall.model.claims import Claim

MOVES = ("exposed-collective", "small-collectives", "slow-link")


def advise(facts: Facts) -> Outcome:
    if collectives_a_step(facts) == 0:
        return no_use("communication/none")
    if not is_training(facts):
        return no_use("accumulate-gradients/no-training")
    if len(reduced_too_early(facts)):
        return no_use("accumulate-gradients/reduced-too-early")
    spent = sum(facts.spent_ms(cause) for cause in MOVES)
    if spent <= 0:
        return no_use("communication/hidden")
    return Use(Claim("accumulate-gradients/no-sync", {"waits_ms": spent}))


FIX = Fix(MOVES, "needs-review", advise)
