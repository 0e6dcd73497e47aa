"""Which steps are traced: some usual ones, and with them one of every kind that comes soon enough."""

from __future__ import annotations

from math import ceil, log
from statistics import mean, median, pstdev

from findwall.measure.engine import Engine
from findwall.measure.kinds import Kind, Limits, Window, plan_window
from findwall.model.kinds import USUAL
from findwall.units import NS_PER_S as NS

# All chosen by hand, not calibrated.
WINDOW_AT_MOST_NS = 15 * NS  # of traced steps: a step of many seconds is traced once
MOST_TRACED_STEPS = 24
KIND_STEPS = 4  # one of a kind with its neighbours, of which the last is not counted
MORE_STEPS_AT_MOST_NS = 3 * NS  # of more steps than asked for: some hundred thousand events at most
FORESEEN_NS = 12 * NS  # a kind of step that comes later than that is not waited for
FEWEST_FOR_SPREAD = 20  # steps: from fewer, how much they vary is chance
TRACED_MEAN_SHARE = 0.1  # of the step: where steps vary, as many are traced as bring their mean so near


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
    wanted = min(max(asked, ceil((spread / TRACED_MEAN_SHARE) ** 2)), more)
    seldom = [len(steps) / len(kind.rows) for kind in engine.kinds if kind.every is None]
    wanted = min(max([wanted, *map(ceil, seldom)]), more)
    # Places are counted from the first timed step.
    now = engine.step_number - engine.record.first_timed
    limits = Limits(max(more, KIND_STEPS), now + int(FORESEEN_NS / usual_ns), WINDOW_AT_MOST_NS, usual_ns)
    plan = plan_window(engine.kinds, now + warm, wanted, limits)
    return Window(plan.first + engine.record.first_timed, plan.steps)


def labels_of_traced(kinds: list[Kind], usual_ns: float, lengths: list[int]) -> list[str]:
    """The kinds of the traced steps, by their lengths beside each other: the profiler stretches them all."""
    if not kinds or not lengths:
        return []
    stretch = median(lengths) / max(usual_ns, 1.0)
    means = {USUAL: usual_ns, **{kind.name: kind.mean for kind in kinds}}

    def nearest(length: int) -> str:
        return min(means, key=lambda name: abs(log(max(length, 1) / (means[name] * stretch))))

    return [nearest(length) for length in lengths]
