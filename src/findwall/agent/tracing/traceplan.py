"""Which steps are traced: some usual ones, and with them one of every kind that comes soon enough."""

from __future__ import annotations

from math import ceil, log
from statistics import mean, median, pstdev

from findwall.agent.engine import Engine
from findwall.agent.timing.step_kinds import (
    FEWEST_FOR_SPREAD,
    STANDS_OUT_RATIO,
    Kind,
    Limits,
    Window,
    plan_window,
)
from findwall.model.catalogue import MAJORITY_SHARE, SMALL_PART
from findwall.model.kinds import USUAL
from findwall.units import NS_PER_S

# All chosen by hand, not calibrated.
WINDOW_AT_MOST_NS = 15 * NS_PER_S  # of traced steps: a step of many seconds is traced once
MOST_TRACED_STEPS = 24
KIND_STEPS = 4  # one of a kind with its neighbours, of which the last is not counted
MORE_STEPS_AT_MOST_NS = 3 * NS_PER_S  # of more steps than asked for: some hundred thousand events at most
# Of several ranks: a rank that is late by as much as that varies is told from chance, as one of sixteen, by
# Student's t over so many steps and no fewer.
STEPS_OF_RANKS = 12
FORESEEN_NS = 12 * NS_PER_S  # a kind of step that comes later than that is not waited for


def plan_trace(engine: Engine, warm: int) -> Window:
    """Which steps are traced: some usual ones, and with them one of every kind that comes soon."""
    steps = engine.record.steps
    usual_ns = max(engine.usual_ns, 1.0)
    step_ns = mean(steps.host_ns or [1])
    asked = max(1, min(engine.options.trace_steps, int(WINDOW_AT_MOST_NS / max(step_ns, 1))))
    if asked < engine.options.trace_steps:
        return Window(engine.step_number + warm, asked)
    more = max(asked, min(MOST_TRACED_STEPS, int(MORE_STEPS_AT_MOST_NS / usual_ns)))
    plain = [value for value, kind in zip(steps.host_ns, steps.kind, strict=False) if kind == USUAL]
    plain = plain or steps.host_ns
    told = len(plain) >= FEWEST_FOR_SPREAD and engine.options.steps is None
    spread = pstdev(plain) / max(mean(plain), 1) if told else 0.0
    wanted = min(max(asked, ceil((spread / SMALL_PART) ** 2)), more)
    wanted = min(max(wanted, STEPS_OF_RANKS if engine.rank.world_size > 1 else 0), more)
    seldom = [len(steps) / len(kind.rows) for kind in engine.kinds if kind.every is None]
    wanted = min(max([wanted, *map(ceil, seldom)]), more)
    # Places are counted from the first timed step.
    now = engine.step_number - engine.record.first_timed
    limits = Limits(max(more, KIND_STEPS), now + int(FORESEEN_NS / usual_ns), WINDOW_AT_MOST_NS, usual_ns)
    plan = plan_window(engine.kinds, now + warm, wanted, limits)
    return Window(plan.first + engine.record.first_timed, plan.steps)


def labels_of_traced(kinds: list[Kind], usual_ns: float, lengths: list[int], first: int) -> list[str]:
    """The kinds of the traced steps, the first of them at this place among the timed ones.

    A kind that is due there is told by that, else by what the step takes beyond usual ones. The profiler
    stretches launches, and those are in every step; what a slow one does besides takes about as long as ever.
    """
    if not kinds or not lengths:
        return []
    typical = median(lengths)

    def label(place: int, length: int) -> str:
        excess = length - typical
        due = [kind for kind in kinds if kind.is_due(place)]
        able = [kind for kind in kinds if kind.distance is None or kind in due] if due else kinds
        able = [kind for kind in able if excess > MAJORITY_SHARE * (kind.mean - usual_ns) > 0]
        if not able or (not due and length <= STANDS_OUT_RATIO * typical):
            return USUAL
        return min(able, key=lambda kind: abs(log(excess / (kind.mean - usual_ns)))).name

    return [label(first + at, length) for at, length in enumerate(lengths)]
