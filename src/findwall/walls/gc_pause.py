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

from findwall.attribute.facts import Facts
from findwall.attribute.figures import amounts, told
from findwall.attribute.waits import Wait, rows_named, wait_evidence, waits
from findwall.model.claims import Claim, Figure, lines
from findwall.model.diagnosis import EVIDENCE_ROWS, Evidence
from findwall.model.events import Kind
from findwall.structure.host import GARBAGE

CAUSE = "gc-pause"


def evidence(facts: Facts) -> list[Evidence]:
    timed = facts.rank.step_times
    measured = []
    if timed is not None and timed.gc_s:
        spent = timed.gc_s * 1e3
        ran = Claim("evidence/collector", {"collects_ms": spent, "steps": len(timed.seconds)})
        measured = [Evidence(ms=spent, claim=ran)]
    return (measured + wait_evidence(_calls(facts)))[:EVIDENCE_ROWS]


def claim(facts: Facts) -> Claim:
    calls = _calls(facts)
    timed = facts.rank.step_times
    if not calls and (timed is None or timed.gc_s is None):
        return Claim("gc-pause/unknown")
    places = lines(facts.rank.collected_at or next((wait.line for wait in calls if wait.line), None))
    asked = bool(facts.rank.collected_at) or any("collect" in wait.call for wait in calls)
    figures: dict[str, Figure] = {**amounts(facts, CAUSE), "asked": asked}
    action = Claim("advise/freeze-gc/asked" if asked else "advise/freeze-gc", places=places if asked else [])
    return told(facts, CAUSE, Claim("gc-pause/stops", figures, places=places), action)


def _calls(facts: Facts) -> list[Wait]:
    return waits(facts, CAUSE, rows_named(facts, GARBAGE, Kind.ANNOTATION, Kind.PYTHON))
