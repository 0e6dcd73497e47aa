"""Keep Python's garbage collector out of the step.

What it does:
A collection walks every Python object; with millions of them (samples, configurations, caches) it
takes tens to hundreds of milliseconds, at moments nobody chose. `gc.freeze()` after set-up takes
what exists out of the walk; `gc.disable()` and a `gc.collect()` every n steps put the pause where
it is planned, and on all ranks at once.

When it does not help:
No pause falls into the step. Traces do not show the collector unless Python stacks are recorded;
`findwall run` times it, and so do `gc.callbacks`.

Risk:
Objects in reference cycles live until the next planned collection: memory grows in between.
"""

from __future__ import annotations

from findwall.attribute.facts import Facts
from findwall.attribute.figures import a_step, gain_ms, step_ms
from findwall.attribute.host_copies import BULK_BYTES, downloads
from findwall.attribute.whatif import ideal
from findwall.fixes import Fix, NoUse, Outcome, surely, use
from findwall.model.catalogue import WORTH_IT

MOVES = ("gc-pause", "host-work", "unstable-steps")
COLLECTED_SHARE = 0.005  # of the step: shorter pauses are not worth a change. Chosen by hand, not calibrated.
WAY = "call `gc.freeze()` after set-up, then `gc.disable()` and `gc.collect()` every n steps"


def advise(facts: Facts) -> Outcome:
    spent = facts.spent_ms("gc-pause")
    if spent > COLLECTED_SHARE * step_ms(facts):
        return surely(
            f"{WAY.capitalize()}: the device waits {a_step(spent)} for collections.",
            ideal(facts, "gc-pause"),
            ("gc-pause",),
        )
    timed = facts.rank.step_times is not None and facts.rank.step_times.gc_s is not None
    unexplained = gain_ms(facts, "host-work")
    if timed or facts.timeline.header.stacks or unexplained <= WORTH_IT * step_ms(facts):
        return NoUse(f"the collector takes {a_step(spent)}" if timed else "no collector pause was seen")
    if downloads(facts).nbytes > BULK_BYTES:
        return NoUse("the long host work comes with a large copy off the device, so it saves something")
    return use(
        "If the garbage collector is to blame (`findwall run` shows it, a trace without stacks does not), "
        f"{WAY}.",
        None,
        ("host-work",),
    )


FIX = Fix(MOVES, "safe", advise)
