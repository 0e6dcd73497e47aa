"""Steps after all was measured: counted to the job's end, for what comes too seldom to be timed."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns

from findwall.agent.ending.account import save
from findwall.agent.ending.measuring_again import change_the_mean
from findwall.agent.engine import Engine
from findwall.agent.step_ends.step_gate import FOR_GOOD, Watch
from findwall.agent.timing.step_kinds import FEWEST_FOR_SPREAD
from findwall.model.measurement import Later


def watch_on(
    engine: Engine,
    block_ended: Callable[[float], None],
    waits_ns: int,
    waited: Callable[[], None],
    is_disturbed: Callable[[], bool],
) -> None:
    """`block_ended` is told the mean of as many as were timed, again and again; `waited` is called after so
    long (0 never). Steps are not timed before nothing disturbs them any more."""
    if engine.gate.watch is not None or engine.usual_ns <= 0:
        return
    begun = engine.step_number

    def looked(mean_ns: float) -> None:
        engine.guard(lambda: engine.look_at_memory(perf_counter_ns()))
        block_ended(mean_ns)

    engine.gate.watch = Watch(
        engine.finder.source,
        engine.finder.key,
        engine.usual_ns,
        lambda count, now: engine.diary.step_ended(begun + count, now, engine.usual_ns),
        max(len(engine.record.steps), FEWEST_FOR_SPREAD),
        looked,
        perf_counter_ns() + waits_ns if waits_ns else FOR_GOOD,
        waited,
        is_disturbed,
    )


def timed_ns(engine: Engine) -> float:
    """The mean of the timed steps."""
    return sum(engine.record.steps.host_ns) / max(len(engine.record.steps), 1)


def look_back(engine: Engine) -> bool:
    """The job has ended after all was measured. True: the steps since then change what was said."""
    watch, engine.gate.watch = engine.gate.watch, None
    if watch is None or watch.timed < FEWEST_FOR_SPREAD or engine.usual_ns <= 0:
        return False
    engine.diary.last_step = watch.last
    later = Later(watch.timed, watch.ns, engine.step_number, watch.slow_step, watch.slow_ns)
    engine.record.later = later
    if not change_the_mean(later, timed_ns(engine), engine.usual_ns):
        return False
    save(engine, final=True)
    return True
