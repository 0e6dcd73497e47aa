"""Python's garbage collector stops the launching thread.

What it finds:
Idle time while Python collects cycles: gc.collect() in the loop, or automatic collections over millions
of live objects.

Why it costs:
A full collection looks at every tracked object. With a large dataset or model in Python objects that is
tens to hundreds of milliseconds in which nothing is launched; several ranks stop at different moments,
and all wait for each of them.

How it is told apart:
Collections are not in a profiler's trace unless Python stacks are, or gc.collect() is called: `findwall
run` times them with the collector's own hook, and that time is taken out of host-work.

What helps:
freeze-gc: gc.freeze() after start-up and gc.disable() with one gc.collect() every few hundred steps at
the same step on all ranks; no gc.collect() in the loop; fewer Python objects (arrays instead of lists).
"""

from __future__ import annotations

from findwall.causes import Cause, Claim, Evidence, Facts, Told, Wait, lines, wait_evidence, waits
from findwall.facts.waits import rows_named
from findwall.model.events import Kind
from findwall.step.host_activity import GARBAGE


def shows(facts: Facts) -> list[Evidence]:
    timed = facts.rank.step_times
    measured = []
    if timed is not None and timed.gc_s:
        spent = timed.gc_s * 1e3
        ran = Claim("evidence/collector", {"collects_ms": spent, "steps": len(timed.seconds)})
        measured = [Evidence(ms=spent, claim=ran)]
    return measured + wait_evidence(_calls(facts))


def says(facts: Facts) -> Told | Claim:
    calls = _calls(facts)
    timed = facts.rank.step_times
    if not calls and (timed is None or timed.gc_s is None):
        return Claim("gc-pause/unknown")
    places = lines(facts.rank.collected_at or next((wait.line for wait in calls if wait.line), None))
    asked = bool(facts.rank.collected_at) or any("collect" in wait.call for wait in calls)
    action = Claim("advise/freeze-gc/asked", places=places) if asked else Claim("advise/freeze-gc")
    return Told(Claim("gc-pause/stops", {"asked": asked}, places=places), action)


def _calls(facts: Facts) -> list[Wait]:
    return waits(facts, "gc-pause", rows_named(facts, GARBAGE, Kind.ANNOTATION, Kind.PYTHON))


CAUSE = Cause("gc-pause", says, shows)
