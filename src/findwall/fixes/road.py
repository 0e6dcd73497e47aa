"""The road: the step today, after the best fixes made together, and at the roofline."""

from __future__ import annotations

from findwall.facts.best_changes import roofline_ns
from findwall.facts.facts import Facts
from findwall.facts.gains import step_ms
from findwall.fixes import Use, all_fixes
from findwall.fixes.cause_behind import cause_after
from findwall.fixes.predict import changed, mended_by
from findwall.fixes.stacked import is_another_way
from findwall.model.catalogue import WALL_OF
from findwall.model.claims import Range
from findwall.model.diagnosis import Prescription, Stage
from findwall.units import NS_PER_MS, ms


def road(facts: Facts, cause: str | None, prescriptions: list[Prescription]) -> list[Stage]:
    """Empty where no fix has a prediction: then there is nowhere to go that anybody could name."""
    known = [one for one in prescriptions if one.step_ms.mid is not None]
    known = [one for at, one in enumerate(known) if not any(is_another_way(one, to) for to in known[:at])]
    if cause is None or not known:
        return []
    best = min(known, key=lambda one: one.step_ms.mid or 0.0)
    stops = [Stage([], "today", Range(mid=step_ms(facts)), WALL_OF[cause], cause)]
    then = _then(facts, best)
    stops.append(Stage(best.fixes, "predicted", best.step_ms, WALL_OF.get(then or ""), then))
    least = roofline_ns(facts)
    if least is not None and 0 < ms(least) < (best.step_ms.mid or 0.0):
        stops.append(Stage([], "roofline", Range(mid=ms(least))))
    return stops


def _then(facts: Facts, best: Prescription) -> str | None:
    outcomes = {name: all_fixes()[name].advise(facts) for name in best.fixes}
    uses = {name: one for name, one in outcomes.items() if isinstance(one, Use)}
    graph = changed(facts, uses)
    if graph is None:
        return None
    return cause_after(facts, graph, mended_by(uses), (best.step_ms.mid or 0.0) * NS_PER_MS)
