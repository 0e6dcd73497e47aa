"""Why there is no verdict on a job that was measured while it still set itself up."""

from __future__ import annotations

from findwall.attribute.facts import Facts
from findwall.attribute.waits import set_ups
from findwall.examine.remarks import what_once
from findwall.model.claims import Claim, Figure
from findwall.structure.left_out import START_UP
from findwall.units import ms

TOO_EARLY = ("start-up", "growing", "too-early")


def too_early(facts: Facts, why: str) -> Claim:
    """What is said of one of TOO_EARLY."""
    step = ms(facts.step)
    if why == "growing":
        figures: dict[str, Figure] = {"spent_ms": facts.spent_ms("recompilation"), "step_ms": step}
        return Claim("too-early/growing", figures, {"op": set_ups(facts)[0].op})
    timed = facts.rank.step_times
    if why == "too-early" and timed is not None and timed.later_s is not None:
        return Claim("too-early/faster-later", {"step_ms": step, "later_ms": timed.later_s * 1e3})
    once = facts.whole.left_out.of(*START_UP).length
    recorded = once + int(facts.whole.steps.lengths.sum())
    figures = {
        "once_ms": ms(once),
        "recorded_ms": ms(recorded),
        "was_run": facts.reading.source == "measured",
    }
    return Claim("too-early/start-up", figures, parts=[what_once(facts)])
