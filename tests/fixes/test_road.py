"""The road: today, after the best fixes made together, at the roofline."""

from __future__ import annotations

import pytest

from findwall.causes.verdict import decide
from findwall.facts.best_changes import roofline_ns
from findwall.facts.facts import Facts
from findwall.fixes import Use, all_fixes
from findwall.fixes.predict import changed
from findwall.fixes.prescribe import prescribe
from findwall.fixes.road import road
from findwall.fixes.stacked import is_another_way
from findwall.model.catalogue import ROOFS, WALL_OF
from findwall.model.diagnosis import Prescription, Stage
from findwall.replay.blame import blame
from findwall.units import ms
from fixes.drawn import starved
from fixes.recorded import JOBS, job

MORE_JOBS = ("inference", "eager_training")


def walked(facts: Facts) -> tuple[str | None, list[Prescription], list[Stage]]:
    cause = decide(facts).cause
    given, _ = prescribe(facts, cause)
    return cause, given, road(facts, cause, given)


@pytest.mark.parametrize("name", [*JOBS, *MORE_JOBS])
def test_every_road_leads_from_today_by_the_best_prediction_to_the_roofline(name: str) -> None:
    facts = job(name)
    cause, given, stops = walked(facts)
    known = [one for one in given if one.step_ms.mid is not None]
    if not known:
        assert stops == []
        return
    today, then = stops[:2]
    assert (today.what, today.fixes, today.cause) == ("today", [], cause)
    assert today.step_ms.mid == pytest.approx(ms(facts.step))
    assert then.what == "predicted" and then.fixes in [one.fixes for one in known]
    plain = [one for at, one in enumerate(known) if not any(is_another_way(one, to) for to in known[:at])]
    best = min(one.step_ms.mid for one in plain if one.step_ms.mid is not None)
    assert then.step_ms.mid == best and best < ms(facts.step)
    assert then.wall == WALL_OF.get(then.cause or "")
    for last in stops[2:]:
        assert last.what == "roofline" and last.fixes == [] and last.step_ms.mid is not None
        assert 0 < last.step_ms.mid < best
        assert last.step_ms.mid == pytest.approx(ms(roofline_ns(facts) or 0.0))


@pytest.mark.parametrize("name", [*JOBS, *MORE_JOBS])
def test_what_stands_in_the_way_then_was_not_mended_unless_it_is_a_roof_or_waited_for(name: str) -> None:
    facts = job(name)
    _, _, stops = walked(facts)
    for stop in stops[1:2]:
        said = {fix: all_fixes()[fix].advise(facts) for fix in stop.fixes}
        uses = {fix: one for fix, one in said.items() if isinstance(one, Use)}
        moved = {cause for fix, one in uses.items() for cause in one.moves or all_fixes()[fix].moves}
        graph = changed(facts, uses)
        assert graph is not None
        waits = blame(graph, facts.reading.likely.calibration).idle.ranked()
        assert stop.cause not in moved or stop.cause in (*ROOFS, *waits)


def test_without_a_verdict_or_a_prediction_there_is_no_road() -> None:
    facts = job("conv_fp32")
    given, _ = prescribe(facts, "fast-path-off")
    assert road(facts, "fast-path-off", given)
    assert road(facts, None, given) == []
    assert road(facts, "fast-path-off", []) == []
    bounded = [one for one in given if one.step_ms.mid is None]
    assert bounded and road(facts, "fast-path-off", bounded) == []
    assert walked(starved())[2] == []  # what workers give there is only bounded


def test_a_job_whose_graph_costs_nothing_to_launch_goes_on_to_its_kernels() -> None:
    _, _, stops = walked(job("inference"))
    assert [stop.what for stop in stops][:2] == ["today", "predicted"]
    assert stops[0].cause == "launch-bound"
