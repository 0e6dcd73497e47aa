"""Why there is no verdict on a job that was measured while it still set itself up."""

from __future__ import annotations

from findwall.attribute.facts import Facts
from findwall.attribute.setups import set_ups
from findwall.examine.remarks import only_start_up
from findwall.units import format_ms, ms

TOO_EARLY = ("start-up", "growing", "too-early")
MEASURE_LATER = "measure it after that (`findwall run --wait STEPS`)"
RECORD_LATER = (
    "record after warm-up (torch.profiler.schedule(wait=5, warmup=3, active=3)), or let `findwall run` do it"
)


def too_early(facts: Facts, why: str) -> str:
    """The sentence for one of TOO_EARLY."""
    step = format_ms(ms(facts.step))
    if why == "growing":
        return (
            f"{format_ms(facts.spent_ms('recompilation'))} of the {step} step set up {set_ups(facts)[0].op} "
            "for lengths that grow from step to step. Each is set up once and comes back with the next text, "
            f"so this says little about later steps: {MEASURE_LATER}."
        )
    timed = facts.rank.step_times
    if why == "too-early" and timed is not None and timed.later_s is not None:
        return (
            f"{step} was the step while it was measured, and {format_ms(timed.later_s * 1e3)} after that: "
            f"the job was still setting itself up, so {MEASURE_LATER}."
        )
    later = MEASURE_LATER if facts.reading.source == "measured" else RECORD_LATER
    return f"{only_start_up(facts)}{later}."
