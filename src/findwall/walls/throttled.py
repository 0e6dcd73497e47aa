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
from findwall.attribute.conditions import throttle_reasons
from findwall.attribute.facts import Facts
from findwall.attribute.figures import opening, told
from findwall.model.diagnosis import EVIDENCE_ROWS, Evidence
from findwall.units import format_share

CAUSE = "throttled"


def evidence(facts: Facts) -> list[Evidence]:
    held = [
        Evidence(f"{reason} held the clocks down in {format_share(share)} of the samples")
        for reason, share in sorted(throttle_reasons(facts.rank.telemetry).items(), key=lambda one: -one[1])
    ]
    return (held[: EVIDENCE_ROWS - 1] + kernel_evidence(facts, CAUSE))[:EVIDENCE_ROWS]


def sentence(facts: Facts) -> str:
    clock = facts.rank.telemetry.sm_clock_mhz
    if clock is None:
        return (
            "It is unknown whether the clocks were held down: a trace has no clocks (`findwall run` samples "
            "them)."
        )
    reasons = throttle_reasons(facts.rank.telemetry)
    why = max(reasons, key=lambda reason: reasons[reason]) if reasons else "no reason the driver names"
    fact = (
        f"{opening(facts, CAUSE)} is lost because the GPU ran at {clock.mean:,.0f} MHz instead of "
        f"{clock.max:,.0f} ({why})"
    )
    return told(facts, CAUSE, fact, "cool it or check its power")
