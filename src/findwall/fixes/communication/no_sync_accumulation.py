"""Leave out the reductions of gradients that are still being added up: `model.no_sync()`.

What it does:
Who accumulates gradients calls backward() several times before the optimizer's step. DistributedDataParallel
reduces all gradients after each of them, and only the last reduction counts. Inside `no_sync()` the others
are left out:

    for micro in micro_batches[:-1]:
        with model.no_sync():
            loss_of(model(micro)).backward()
    loss_of(model(micro_batches[-1])).backward()
    optimizer.step()

FSDP has the same (`set_requires_gradient_sync(False)`); Accelerate and Lightning do it by themselves.

When it does not help:
Gradients are reduced once before each optimizer's step already, or computation hides the others.

Risk:
None for the results. With sharded parameters (FSDP) unreduced gradients take the memory that sharding saved.
The forward pass must lie inside `no_sync()` as well.
"""

from __future__ import annotations

import numpy as np

from findwall.facts.collectives import reduced_too_early
from findwall.fixes import Claim, Facts, Fix, Outcome, surely, unless
from findwall.fixes.communication.communication_refusals import (
    NO_COLLECTIVES,
    NOT_DATA_PARALLEL,
    communication_hidden,
)
from findwall.replay.change import Change, Drop
from findwall.units import ms

MOVES = ("exposed-collective", "slow-link", "small-collectives")


def use(facts: Facts) -> Outcome:
    rows = reduced_too_early(facts)
    spent = ms(float(facts.own[np.isin(facts.kernels.row[facts.atoms.index], rows)].sum()))
    figures = {"reductions": len(rows) / facts.steps.count, "spent_ms": spent}
    return surely(Claim("no-sync-accumulation/wrap", figures), Change((Drop(rows),)))


FIX = Fix(
    MOVES,
    "safe",
    use,
    (
        NO_COLLECTIVES,
        NOT_DATA_PARALLEL,
        unless("no-sync-accumulation/none", lambda facts: len(reduced_too_early(facts)) == 0),
        communication_hidden(*MOVES),
    ),
)
