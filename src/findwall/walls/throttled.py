"""The GPU holds its clocks down for heat or power, so arithmetic runs slower than the card could.

What it finds:
The share of compute-bound kernel time lost to clocks below the level the card itself held, while it
reported thermal or hardware reasons.

Why it costs:
Arithmetic runs at the clock. A card at two thirds of its clock does two thirds of the work, and looks
fully busy while doing it.

How it is told apart:
By the driver's reasons sampled during the run: thermal slowdown, hardware slowdown, power brake. A
software power cap is normal for a busy data-centre card and does not count. A trace alone has no clocks:
then nothing is given to this cause.

What helps:
raise-clocks: cooling, airflow, the power limit, the supply behind a power brake, clocks locked too low
(nvidia-smi -q -d PERFORMANCE names the reason). No change of code helps.
"""

from __future__ import annotations

from findwall.attribute.carriers import kernel_evidence
from findwall.attribute.facts import Facts
from findwall.attribute.figures import amounts, told
from findwall.attribute.timed_steps import throttle_reasons
from findwall.model.claims import Claim, Figure
from findwall.model.diagnosis import EVIDENCE_ROWS, Evidence

CAUSE = "throttled"


def evidence(facts: Facts) -> list[Evidence]:
    reasons = sorted(throttle_reasons(facts.rank.telemetry).items(), key=lambda one: -one[1])
    held = [
        Evidence(claim=Claim("evidence/held-down", {"reason": reason, "held_share": share}))
        for reason, share in reasons
    ]
    return (held[: EVIDENCE_ROWS - 1] + kernel_evidence(facts, CAUSE))[:EVIDENCE_ROWS]


def claim(facts: Facts) -> Claim:
    clock = facts.rank.telemetry.sm_clock_mhz
    if clock is None:
        return Claim("throttled/unknown")
    reasons = throttle_reasons(facts.rank.telemetry)
    figures: dict[str, Figure] = {
        **amounts(facts, CAUSE),
        "mean_mhz": clock.mean,
        "most_mhz": clock.max,
        "reason": max(reasons, key=lambda reason: reasons[reason]) if reasons else None,
    }
    return told(facts, CAUSE, Claim("throttled/slower", figures), Claim("clocks/cool"))
