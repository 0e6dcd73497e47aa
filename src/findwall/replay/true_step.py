"""How long the step really is, and how its idle time splits, once the profiler's own cost is taken off.

The replay is calibrated until it gives the true step; with a trace alone the costs are what they likely are,
and every figure that depends on them becomes an interval. What the true step has beyond the replay is of
unknown cause: it is never spread over the causes that were seen.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
from msgspec.structs import replace

from findwall.errors import InputError
from findwall.model.catalogue import MENTION_SHARE, SMALL_PART
from findwall.model.causes import UNKNOWN, ByCause, cause_index
from findwall.replay.blame import blame
from findwall.replay.calibrate import CLOSE, HIGH_US, LIKELY_US, LOW_US, Calibration, fit, play_with
from findwall.replay.graph import Graph
from findwall.replay.step_reading import Blame, Scenario, StepReading
from findwall.units import NS_PER_S, format_ms, format_share, ms

REFUSED_WORK_RATIO = 1.0 + SMALL_PART  # times a given step: more device work than this is another job's
STRETCHED_RATIO = 1.0 + MENTION_SHARE  # times the likely step: a trace this much longer shows the profiler


def read_step(
    graph: Graph,
    true_step_s: float | None,
    source: str,
    rare: Mapping[str, float] | None = None,
    calibration: Calibration | None = None,
) -> StepReading:
    """The step as it is without the profiler. `true_step_s` None: from the trace alone. `calibration`: where
    it is known from more than the step."""
    if true_step_s is None:
        return _from_trace(graph)
    return _from_truth(graph, true_step_s * NS_PER_S, source, rare or {}, calibration)


def _from_trace(graph: Graph) -> StepReading:
    short, middle, long = (_scenario(graph, Calibration(cost)) for cost in (HIGH_US, LIKELY_US, LOW_US))
    traced = play_with(graph, Calibration()).step
    source = "estimated" if traced > STRETCHED_RATIO * middle.step else "trace"
    return StepReading(middle, short, long, source, _about_missing_rows(middle))


def _scenario(graph: Graph, calibration: Calibration) -> Scenario:
    found = blame(graph, calibration)
    idle = _known(found)
    step = found.replay.step
    return Scenario(step, step - idle.total, idle, found.turnaround, calibration, found)


def _known(found: Blame) -> ByCause:
    """The blame, but where rows are missing from the trace a silent host proves nothing."""
    idle = found.idle.copy()
    if found.lacks_rows:
        idle[UNKNOWN] += idle["host-work"]
        idle["host-work"] = 0.0
    return idle


def _from_truth(
    graph: Graph, step: float, source: str, rare: Mapping[str, float], known: Calibration | None
) -> StepReading:
    """Calibrated to the true step; rare slow steps are a part of it that no traced step shows."""
    pauses = min(sum(rare.values()), step)
    one = _scenario(graph, known or fit(graph, step - pauses).calibration)
    notes = _about_missing_rows(one)
    left_over = step - pauses - one.step
    if left_over >= 0:
        if left_over > CLOSE * step:
            _hold_to_recorded(one, blame(graph, Calibration()).idle, graph.measured)
        one.idle[UNKNOWN] += left_over
        one = replace(one, step=step - pauses, left_over=left_over)
    else:
        one, note = _squeezed(one, step - pauses, refuse=source == "given")
        notes = (*note, *notes)
    if pauses > 0:
        fitting = {cause: spent * (pauses / sum(rare.values())) for cause, spent in rare.items()}
        for cause, spent in fitting.items():
            one.idle[cause] += spent
        one = replace(one, step=step, rare=fitting)
    return StepReading(one, one, one, source, notes)


def _hold_to_recorded(one: Scenario, recorded: ByCause, timed: Collection[str]) -> None:
    """Idle is never scaled up: a step longer than the traced ones gives no cause more than they showed, but
    what was timed without them."""
    beyond = np.maximum(one.idle.values - recorded.values, 0.0)
    beyond[[cause_index(cause) for cause in (UNKNOWN, *timed)]] = 0.0
    one.idle.values[:] -= beyond
    one.idle[UNKNOWN] += float(beyond.sum())


def _squeezed(one: Scenario, step: float, refuse: bool) -> tuple[Scenario, tuple[str, ...]]:
    """A step shorter than any replay: idle time gives first, then the device's work, which is then said."""
    idle = max(step - one.busy, 0.0)
    share = idle / one.idle.total if one.idle.total > 0 else 0.0
    found = replace(one, step=step, idle=one.idle * share, turnaround=one.turnaround * share)
    if one.busy <= step:
        return found, ()
    shrink = step / one.busy
    if refuse and 1.0 / shrink > REFUSED_WORK_RATIO:
        raise InputError(
            f"A step of {step / 1e6:.3g} ms cannot hold the {one.busy / 1e6:.3g} ms of device work "
            "the trace shows.",
            "Check the step time you gave: it is another job's, or not in milliseconds.",
        )
    note = (
        f"The trace shows {format_ms(ms(one.busy))} of device work in a step of {format_ms(ms(step))}, so "
        "it was scaled down to fit."
    )
    return replace(found, busy=step, shrink=shrink), (note,)


def _about_missing_rows(one: Scenario) -> tuple[str, ...]:
    if not one.gaps.lacks_rows:
        return ()
    share = format_share(one.gaps.idle[UNKNOWN] / one.gaps.replay.step)
    return (
        f"For {share} of the time the device waits although kernels are queued: the trace lacks rows. "
        "That time has no known cause, nor has time in which the host seems silent.",
    )
