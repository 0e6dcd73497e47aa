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

from findwall.fixes import Claim, Facts, Figures, Fix, Outcome, Use, device_word, not_here
from findwall.model.catalogue import MAJORITY_SHARE, ROOFS


def use(facts: Facts) -> Outcome:
    compute, memory = (facts.share(roof) for roof in ROOFS)
    if compute + memory < MAJORITY_SHARE:
        return not_here(facts, "roof/little", roof_share=compute + memory)
    figures: Figures = {
        "device_word": device_word(facts),
        "more": "compute" if compute >= memory else "bandwidth",
        "roof_share": compute + memory,
    }
    return Use(Claim("better-hardware/more", figures, {"device": facts.ceilings.device or ""}))


FIX = Fix(ROOFS, "needs-review", use, of_anything=True)
