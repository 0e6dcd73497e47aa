"""Reduce gradients once for several micro-batches: `no_sync`.

What it does:
With gradient accumulation only the last micro-batch needs its gradients averaged. `with
model.no_sync():` around the others leaves their collectives out, and the optimizer steps once for
all of them.

When it does not help:
There is no communication, or it is hidden already; or ranks exchange activations and tables (all-to-alls),
which each batch needs. A job that accumulates already and reduces after every
backward pass needs no more micro-batches, but no-sync-accumulation.

Risk:
A larger effective batch, which changes training. With sharded parameters (FSDP) unreduced gradients
take the memory that sharding saved.
"""

from __future__ import annotations

import numpy as np

from findwall.facts.collectives import host_collectives, reduced_too_early
from findwall.facts.message_traffic import REDUCTION, reductions
from findwall.fixes import Claim, Facts, Fix, Outcome, Use, is_training, spent_ms, unless
from findwall.fixes.communication.communication_refusals import NO_COLLECTIVES, communication_hidden
from findwall.model.causes import cause_index
from findwall.replay.change import Change, Drop
from findwall.units import ms

MOVES = ("exposed-collective", "small-collectives", "slow-link")


def use(facts: Facts) -> Outcome:
    """What waits for reductions: an all-to-all or a gather is of each batch, however many are added up."""
    if _on_host(facts):
        return Use(Claim("accumulate-gradients/no-sync", {"waits_ms": spent_ms(facts, *MOVES)}))
    rows = reductions(facts)
    mine = np.isin(facts.kernels.row[facts.atoms.index], rows)
    mine &= np.isin(facts.atoms.cause, [cause_index(cause) for cause in MOVES])
    figures = {"waits_ms": ms(float(facts.own[mine].sum()))}
    return Use(Claim("accumulate-gradients/no-sync", figures), Change((Drop(rows),)))


def _on_host(facts: Facts) -> bool:
    return any(REDUCTION.search(one.name) for one in host_collectives(facts))


def _reduces_nothing(facts: Facts) -> bool:
    return not _on_host(facts) and len(reductions(facts)) == 0


FIX = Fix(
    MOVES,
    "needs-review",
    use,
    (
        NO_COLLECTIVES,
        unless("accumulate-gradients/no-training", lambda facts: not is_training(facts)),
        unless("accumulate-gradients/no-reductions", _reduces_nothing),
        unless("accumulate-gradients/reduced-too-early", lambda facts: len(reduced_too_early(facts)) > 0),
        communication_hidden(*MOVES),
    ),
)
