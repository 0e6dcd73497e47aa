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
from findwall.fixes.advice import Advice, a_step, gain_ms, no_use, use
from findwall.fixes.job import downloads
from findwall.units import NS_PER_S

MOVES = ("gc-pause", "host-work", "unstable-steps")
SAFETY = "safe"
POPULAR = False
BULK = 1e6  # bytes a step: more than a logged value, as a checkpoint is
WAY = "`gc.freeze()` after set-up, then `gc.disable()` and `gc.collect()` every n steps"


def advise(facts: Facts) -> Advice:
    spent = facts.spent_ms("gc-pause")
    timed = facts.run.step_times.gc_s if facts.run.step_times is not None else None
    if spent > 0:
        return use(
            f"{WAY}: the device idles {a_step(spent)} behind collections.",
            gain_ms(facts, "gc-pause"),
            ("gc-pause",),
        )
    if timed is not None:
        pause = timed * NS_PER_S / 1e6
        if pause <= 0.01 * facts.step / 1e6:
            return no_use(f"the collector takes {a_step(pause)}")
        return use(f"{WAY}: collections take {a_step(pause)}.", min(pause, gain_ms(facts, "host-work")))
    if facts.timeline.header.stacks or gain_ms(facts, "host-work") <= 0.05 * facts.step / 1e6:
        return no_use("no pause of the collector falls into the step")
    if downloads(facts).nbytes > BULK:
        return no_use("the long host work goes with a large copy off the device: saving, not collecting")
    return use(
        f"If it is the collector (a trace without Python stacks does not show it; `findwall run` does): "
        f"{WAY}.",
        gain_ms(facts, "host-work"),
    )
