"""Send fewer, larger messages.

What it does:
Each collective costs tens of microseconds before the first byte moves. Many small ones (a reduction
for every parameter, a gather for every layer norm) become few when gradients are put into buckets
(DDP's `bucket_cap_mb`), parameters are wrapped in larger FSDP units, and scalars are packed into
one tensor.

When it does not help:
Messages are large already: then bandwidth decides.

Risk:
A bucket leaves only when its last gradient is there: too large ones cannot overlap.
"""

from __future__ import annotations

from findwall.attribute.collectives import collectives_a_step
from findwall.attribute.facts import Facts
from findwall.attribute.figures import a_step
from findwall.fixes import Fix, NoUse, Outcome, use

MOVES = ("small-collectives", "exposed-collective")
COLLECTIVES_WORTH_PACKING = 8  # fewer messages are not what costs the time. Chosen by hand, not calibrated.


def advise(facts: Facts) -> Outcome:
    count = collectives_a_step(facts)
    if count == 0:
        return NoUse("there is no communication in this step")
    spent = facts.spent_ms("small-collectives") + facts.spent_ms("exposed-collective")
    if spent <= 0 or count < COLLECTIVES_WORTH_PACKING:
        return NoUse(
            f"there are only {count:,.0f} collectives per step"
            if count < COLLECTIVES_WORTH_PACKING
            else "the device waits for no communication"
        )
    return use(
        f"Pack the {count:,.0f} collectives per step into fewer (DDP: a larger bucket_cap_mb; FSDP: wrap "
        f"whole blocks; scalars: stack them first): the device waits {a_step(spent)} for them."
    )


FIX = Fix(MOVES, "safe", advise)
