"""How long the step really is, and how its idle time splits, once the profiler's own cost is taken off.

With a true step time the cost of a recorded host event is solved for; with a trace alone it is
estimated, and every figure that depends on it becomes an interval.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from findwall.attribute.budget import CAUSES, UNKNOWN, idle_by_cause
from findwall.attribute.idle import Idle, blame_gaps
from findwall.structure.queue import LONGEST_TURNAROUND_NS, Queue, rerun
from findwall.errors import InputError
from findwall.model.events import Header
from findwall.model.intervals import F64
from findwall.structure.host import Host
from findwall.units import NS_PER_S, NS_PER_US, format_share

# Microseconds a recorded host event costs the host: low, likely, high. Solved for on 14 host-bound jobs of
# known step time, recorded with shapes: 1.3 to 6.1, most of them between 2.3 and 5.
# The upper end leaves two of those jobs outside; at 6 one more public trace would be refused a verdict.
COST_WITH_SHAPES_US = (1.0, 2.6, 5.0)
COST_WITHOUT_SHAPES_US = (0.5, 1.6, 3.5)
HIGHEST_COST_US = 8.0
# A given step may hold this many times the idle time that the trace shows: host-bound steps vary. What goes
# beyond it did not happen while the trace was taken, so no gap in it can say why.
MOST_STRETCH = 2.0
REFUSE_BEYOND = 1.10  # a given step this much shorter than the device's work cannot be this job's


@dataclass(frozen=True, slots=True)
class Scenario:
    """One consistent reading of the step: its length and the idle time of every cause, in ns a step."""

    step: float
    busy: float
    idle: F64  # over CAUSES
    turnaround: float  # of the launch-bound idle time: the device's own, no host can give it back
    cost_us: float
    gaps: Idle  # the split gap by gap, over the whole window, for evidence
    shrink: float = 1.0  # what device time had to be scaled by to fit the true step
    shrink_paced: float = 1.0  # the same for pageable copies, which the host paces
    unexplained: float = 0.0  # of the unknown idle time: what the given step has beyond anything traced

    @property
    def idle_scale(self) -> float:
        """What one nanosecond of `gaps` is worth in this step."""
        total = float(self.gaps.blame.sum())
        return (float(self.idle.sum()) - self.unexplained) / total if total > 0 else 0.0


@dataclass(frozen=True, slots=True)
class StepReading:
    """The likely reading, and the two ends of what the trace allows."""

    likely: Scenario
    short: Scenario
    long: Scenario
    source: str  # "given", "measured", "trace" or "estimated"
    notes: tuple[str, ...]

    @property
    def scenarios(self) -> tuple[Scenario, Scenario, Scenario]:
        return self.short, self.likely, self.long


def read_step(
    queue: Queue, host: Host, count: int, header: Header, true_step_s: float | None, source: str
) -> StepReading:
    """The step as it is without the profiler. `true_step_s` None: from the trace alone."""
    if true_step_s is not None:
        return _from_truth(queue, host, count, header, true_step_s * NS_PER_S, source)
    return _from_trace(queue, host, count, header)


def costs_us(header: Header) -> tuple[float, float, float]:
    """Low, likely and high cost of a host event for what this trace recorded."""
    return COST_WITH_SHAPES_US if header.shapes is not False else COST_WITHOUT_SHAPES_US


def _from_trace(queue: Queue, host: Host, count: int, header: Header) -> StepReading:
    low, likely, high = costs_us(header)
    busy = float(queue.own.sum()) / count
    scenarios = [_scenario(queue, host, count, busy, cost) for cost in (high, likely, low)]
    trace = float(rerun(queue, host, 0.0).length) / count
    short, middle, long = scenarios
    stretched = trace > 1.01 * middle.step
    source = "estimated" if stretched else "trace"
    return StepReading(middle, short, long, source, _about_missing_rows(middle.gaps))


def _scenario(queue: Queue, host: Host, count: int, busy: float, cost_us: float) -> Scenario:
    gaps = blame_gaps(queue, host, cost_us * NS_PER_US)
    idle = idle_by_cause(gaps) / count
    turnaround = _turnaround(gaps, count)
    return Scenario(busy + float(idle.sum()), busy, idle, turnaround, cost_us, gaps)


def _from_truth(
    queue: Queue, host: Host, count: int, header: Header, step: float, source: str
) -> StepReading:
    """Keep kernel time, let idle be what is left, split it by the undilated gaps."""
    if queue.synchronous:
        return _from_truth_on_cores(queue, host, count, header, step, source)
    shrink, shrink_paced, notes = _fit_busy(queue, count, step, refuse=source == "given")
    own = np.where(queue.paced, queue.own * shrink_paced, queue.own) * shrink
    busy = float(own.sum()) / count
    cost = _solve_cost(queue, host, count, step)
    if cost is None:
        cost = costs_us(header)[1]
    gaps = blame_gaps(queue, host, cost * NS_PER_US)
    turnaround = _turnaround(gaps, count)
    wanted = max(step - busy, 0.0)
    unexplained = _beyond_the_trace(queue, host, count, wanted) if source == "given" else 0.0
    idle = _fit(idle_by_cause(gaps) / count, turnaround, wanted - unexplained)
    idle[CAUSES.index(UNKNOWN)] += unexplained
    turnaround = min(turnaround, float(idle[CAUSES.index("launch-bound")]))
    one = Scenario(step, busy, idle, turnaround, cost, gaps, shrink, shrink_paced, unexplained)
    return StepReading(one, one, one, source, (*notes, *_about_missing_rows(gaps)))


def _beyond_the_trace(queue: Queue, host: Host, count: int, wanted: float) -> float:
    """Idle time of the true step that is too long to be the idle time the trace shows."""
    traced = max(float(rerun(queue, host, 0.0).length) - float(queue.own.sum()), 0.0) / count
    return max(wanted - MOST_STRETCH * traced, 0.0)


def _from_truth_on_cores(
    queue: Queue, host: Host, count: int, header: Header, step: float, source: str
) -> StepReading:
    """Where the host does the work, the profiler stretches work and gaps alike: all of it is scaled.

    So is what other steps took longer: nothing says that it was the gaps.
    """
    cost = _solve_cost(queue, host, count, step)
    traced = _scenario(
        queue, host, count, float(queue.own.sum()) / count, costs_us(header)[1] if cost is None else cost
    )
    shrink = step / traced.step if traced.step > 0 else 1.0
    busy = traced.busy * shrink
    idle = _fit(traced.idle * shrink, 0.0, step - busy)
    one = replace(traced, step=step, busy=busy, idle=idle, shrink=shrink)
    return StepReading(one, one, one, source, ())


def _fit_busy(queue: Queue, count: int, step: float, refuse: bool) -> tuple[float, float, tuple[str, ...]]:
    """Scale factors that make the device's work fit the true step: pageable copies give first."""
    busy = float(queue.own.sum()) / count
    paced = float(queue.own[queue.paced].sum()) / count
    if busy <= step:
        return 1.0, 1.0, ()
    shrink_paced = max((step - (busy - paced)) / paced, 0.0) if paced > 0 else 1.0
    work = busy - paced + paced * shrink_paced
    shrink = min(step / work, 1.0)
    if refuse and 1.0 / shrink > REFUSE_BEYOND:
        raise InputError(
            f"A step of {step / 1e6:.3g} ms cannot hold the {busy / 1e6:.3g} ms of device work "
            "the trace shows.",
            "Check the step time given: it is of another job, or in another unit than milliseconds.",
        )
    note = (
        f"The trace shows {busy / 1e6:.2f} ms of device work in a step of {step / 1e6:.2f} ms: "
        + ("copies from pageable memory, which the host paces, were" if shrink == 1.0 else "it was")
        + " scaled down to fit."
    )
    return shrink, shrink_paced, (note,)


def _turnaround(gaps: Idle, count: int) -> float:
    """The device's own share of launch-bound idle: true in a trace, so it is kept and not scaled."""
    own = gaps.blame[:, -1]
    return float(own[own <= LONGEST_TURNAROUND_NS].sum()) / count


def _about_missing_rows(gaps: Idle) -> tuple[str, ...]:
    if not gaps.lacks_rows:
        return ()
    share = format_share(gaps.queued_too_long / gaps.length)
    return (
        f"For {share} of the time the device stands still although kernels are queued: the trace lacks rows. "
        "That time is of unknown cause, and so is time in which the host seems silent.",
    )


def _fit(idle: F64, turnaround: float, wanted: float) -> F64:
    """Scale the host's causes so that the idle time sums to what the true step leaves."""
    launch = CAUSES.index("launch-bound")
    fixed = np.zeros_like(idle)
    fixed[launch] = min(turnaround, idle[launch])
    if wanted <= fixed[launch]:
        fixed[launch] = max(wanted, 0.0)
        return fixed
    host = idle - fixed
    rest = wanted - fixed[launch]
    if host.sum() <= 0:
        # The true step is longer than anything the trace shows: nobody knows why.
        fixed[CAUSES.index(UNKNOWN)] += rest
        return fixed
    scaled: F64 = fixed + host * (rest / host.sum())
    return scaled


def _solve_cost(queue: Queue, host: Host, count: int, step: float) -> float | None:
    """The cost of a host event at which the re-run takes the true step; None if no cost does."""
    low, high = 0.0, HIGHEST_COST_US
    length = float(rerun(queue, host, low).length) / count
    if length <= step:
        return 0.0 if length > 0.995 * step else None
    if float(rerun(queue, host, high * NS_PER_US).length) / count > step:
        return None
    for _ in range(12):
        middle = (low + high) / 2
        if float(rerun(queue, host, middle * NS_PER_US).length) / count > step:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def with_conditions(
    reading: StepReading,
    pauses: float,
    collections: float,
    loader: float | None = None,
    synchronous: bool = False,
) -> StepReading:
    """Idle time that the run itself has measured the reason of: the loader, collections, rare slow steps."""
    if reading.source != "measured" or (pauses <= 0 and collections <= 0 and loader is None):
        return reading
    scenarios = reading.scenarios
    if synchronous:
        timed = {"unstable-steps": pauses} | ({} if loader is None else {"loader-starved": loader})
        short, likely, long = (_as_timed(one, timed) for one in scenarios)
        scenarios, pauses = (short, likely, long), 0.0
    short, likely, long = (_conditioned(one, pauses, collections, loader) for one in scenarios)
    return replace(reading, short=short, likely=likely, long=long)


def _as_timed(scenario: Scenario, timed: dict[str, float]) -> Scenario:
    """Where the host does the work, nothing else runs while it waits: all other parts share the rest."""
    at = [CAUSES.index(cause) for cause in timed]
    rest = scenario.step - float(scenario.idle[at].sum())
    waits = np.array(list(timed.values()))
    waits *= min(scenario.step / max(float(waits.sum()), 1e-9), 1.0)
    if rest <= 0:
        return scenario
    scale = (scenario.step - float(waits.sum())) / rest
    idle = scenario.idle * scale
    idle[at] = waits
    return replace(scenario, busy=scenario.busy * scale, idle=idle, shrink=scenario.shrink * scale)


def _conditioned(scenario: Scenario, pauses: float, collections: float, loader: float | None) -> Scenario:
    idle = scenario.idle.copy()
    fixed = np.zeros_like(idle)
    fixed[CAUSES.index("launch-bound")] = min(scenario.turnaround, idle[CAUSES.index("launch-bound")])
    free = idle - fixed
    if loader is not None:
        free = _with_loader(free, loader)
    collector = CAUSES.index("gc-pause")
    for name in ("host-work", "launch-bound", UNKNOWN):
        # A trace without stacks shows a collection as silence, or as a slow op.
        moved = min(max(collections - free[collector], 0.0), free[CAUSES.index(name)])
        free[CAUSES.index(name)] -= moved
        free[collector] += moved
    rare = min(pauses, float(free.sum()))
    if rare > 0:
        free *= 1.0 - rare / free.sum()
        free[CAUSES.index("unstable-steps")] += rare
    return replace(scenario, idle=free + fixed)


def _with_loader(free: F64, loader: float) -> F64:
    """Idle time with the loader's own as it was timed over many steps: a few traced ones may miss its stalls.

    What the host waits for the loader while the device has work left is no idle time, so the wait counts only
    as far as there is any.
    """
    at, total = CAUSES.index("loader-starved"), float(free.sum())
    others = total - free[at]
    wanted = min(loader, total)
    if others <= 0:
        return free
    found: F64 = free * ((total - wanted) / others)
    found[at] = wanted
    return found
