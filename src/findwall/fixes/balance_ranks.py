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

from findwall.attribute.collectives import collectives_a_step
from findwall.attribute.conditions import held_down
from findwall.attribute.facts import Facts
from findwall.attribute.figures import a_step
from findwall.fixes import CannotTell, Fix, NoUse, Outcome, use

MOVES = ("straggler", "pipeline-bubble")
RANKS_NAMED = 2  # in one sentence


def advise(facts: Facts) -> Outcome:
    spent = sum(facts.spent_ms(cause) for cause in MOVES)
    if spent > 0:
        return use(
            "Split the work evenly (batches of equal cost, samples bucketed by length, stages of equal time) "
            f"and check the late rank's machine{_held(facts)}: the others wait {a_step(spent)} for it."
        )
    if collectives_a_step(facts) == 0:
        return NoUse("there is no communication in this step")
    if len(facts.run.traced) < 2:
        return CannotTell("one rank alone cannot tell a late rank from a slow link: read all ranks together")
    return NoUse("the ranks arrive together")


def _held(facts: Facts) -> str:
    """Ranks whose clocks were held down, in brackets."""
    held = [text for rank in facts.run.ranks if (text := held_down(rank)) is not None]
    return f" ({'; '.join(held[:RANKS_NAMED])})" if held else ""


FIX = Fix(MOVES, "needs-review", advise)
