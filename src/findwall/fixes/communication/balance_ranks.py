"""Give every rank the same amount of work.

What it does:
A collective ends when its last rank arrives. Sort or bucket samples by length so that all ranks get
batches of equal cost, shard by tokens instead of samples, even out pipeline stages and experts, and
look at the late rank's machine: clocks, loader, a neighbour on its GPU. The late rank is the one
that waits least.

When it does not help:
All ranks arrive together. From one rank's trace a slow link and a late rank look the same.

Risk:
Sorting by length changes the order of samples.
"""

from __future__ import annotations

from findwall.facts.collectives import collectives_a_step
from findwall.fixes import Claim, Facts, Figures, Fix, Outcome, Use, cannot_tell, no_use
from findwall.step.step_facts import StepFacts
from findwall.step.timed_steps import throttle_reasons

MOVES = ("straggler", "pipeline-bubble")


def use(facts: Facts) -> Outcome:
    spent = sum(facts.spent_ms(cause) for cause in MOVES)
    if spent > 0:
        return Use(Claim("balance-ranks/split-evenly", {"waits_ms": spent}, parts=_held(facts)))
    if collectives_a_step(facts) == 0:
        return no_use("communication/none")
    if len(facts.run.seen) < 2:
        return cannot_tell("balance-ranks/one-rank")
    return no_use("balance-ranks/together")


def _held(facts: StepFacts) -> list[Claim]:
    """Ranks whose clocks were held down, and what by."""
    found = []
    for rank in facts.run.ranks:
        if reasons := throttle_reasons(rank.telemetry):
            most = max(reasons, key=lambda reason: reasons[reason])
            held: Figures = {"reason": most, "rank": rank.number, "samples_share": reasons[most]}
            found.append(Claim("rank/held-down", held))
    return found


FIX = Fix(MOVES, "needs-review", use)
