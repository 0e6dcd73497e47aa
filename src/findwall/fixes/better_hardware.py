"""Use faster or more hardware.

What it does:
Where every part of the step already runs at what the machine can do, only another machine does it
faster: more FLOP/s for the compute wall, more memory bandwidth for the bandwidth wall, more devices
for either.

When it does not help:
The step is not at the roof. A faster GPU behind the same loader, host or network only waits longer.

Risk:
Money. More devices add communication.
"""

from __future__ import annotations

from findwall.attribute.device_kind import device_word
from findwall.attribute.facts import Facts
from findwall.fixes import Fix, Outcome, not_here, use
from findwall.model.catalogue import MAJORITY_SHARE, ROOFS
from findwall.units import format_share

MOVES = ROOFS


def advise(facts: Facts) -> Outcome:
    compute, memory = (facts.share(roof) for roof in ROOFS)
    if compute + memory < MAJORITY_SHARE:
        return not_here(facts, f"only {format_share(compute + memory)} of the step is at the roof")
    what = "FLOP/s" if compute >= memory else "memory bandwidth"
    device = facts.ceilings.device or "this device"
    return use(
        f"Use a {device_word(facts)} with more {what}, or more of them: {format_share(compute + memory)} of "
        "the "
        f"step is at the roof of {device}."
    )


FIX = Fix(MOVES, "needs-review", advise)
