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

from findwall.causes import EVIDENCE_ROWS, Cause, Claim, Evidence, Figures, Told
from findwall.step.step_facts import StepFacts
from findwall.step.timed_steps import throttle_reasons


def shows(facts: StepFacts) -> list[Evidence]:
    reasons = sorted(throttle_reasons(facts.rank.telemetry).items(), key=lambda one: -one[1])
    return [
        Evidence(claim=Claim("evidence/held-down", {"reason": reason, "held_share": share}))
        for reason, share in reasons[: EVIDENCE_ROWS - 1]
    ]


def says(facts: StepFacts) -> Told | Claim:
    clock = facts.rank.telemetry.sm_clock_mhz
    if clock is None:
        return Claim("throttled/unknown")
    reasons = throttle_reasons(facts.rank.telemetry)
    figures: Figures = {
        "mean_mhz": clock.mean,
        "most_mhz": clock.max,
        "reason": max(reasons, key=lambda reason: reasons[reason]) if reasons else None,
    }
    return Told(Claim("throttled/slower", figures), Claim("clocks/cool"))


CAUSE = Cause("throttled", says, shows)
