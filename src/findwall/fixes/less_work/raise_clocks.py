"""Give the GPU its clocks back: cooling, power limit, application clocks.

What it does:
A GPU that is too hot or capped by hardware lowers its clocks, and every kernel slows down with
them. Better airflow, the vendor's power limit (`nvidia-smi -pl`), no locked application clocks
(`nvidia-smi -rgc`) and no neighbour on the same board bring them back.

When it does not help:
Clocks are where the card holds them under load. A software power cap on a busy GPU is normal.

Risk:
None for the results. Power and temperature limits are there for a reason: stay inside the vendor's
range.
"""

from __future__ import annotations

from findwall.fixes import Claim, Facts, Fix, Outcome, Use, cannot_tell, no_use


def use(facts: Facts) -> Outcome:
    spent = facts.spent_ms("throttled")
    if spent > 0:
        return Use(Claim("raise-clocks/check", {"lost_ms": spent}))
    if facts.rank.telemetry.sm_clock_mhz is None:
        return cannot_tell("raise-clocks/unread")
    return no_use("raise-clocks/usual")


FIX = Fix(("throttled", "unstable-steps"), "safe", use)
