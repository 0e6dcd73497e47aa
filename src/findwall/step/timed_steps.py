"""What a run measured of its steps: their kinds, clocks held down, rare slow steps, collections.

The mean step is one over all kinds, in the shares in which they came while steps were timed. A window of a
few steps holds one of a kind that comes every sixteenth time: it counts for a sixteenth. Of a kind that no
traced step is of, only its time is known.

A trace has none of these. Without a measurement nothing is claimed.
"""

from __future__ import annotations

import msgspec
import numpy as np

from findwall.model.catalogue import FAIR_PART, MAJORITY_SHARE, NEARLY_ALL, SMALL_PART, WORTH_IT
from findwall.model.claims import Claim
from findwall.model.events import Timeline
from findwall.model.intervals import F64
from findwall.model.kinds import USUAL, StepKind
from findwall.model.machine import Telemetry
from findwall.model.measured_run import Rank
from findwall.step.step_bounds import step_numbers
from findwall.step.step_facts import Queue
from findwall.units import NS_PER_S


class KindsTraced(msgspec.Struct, frozen=True):
    """Of the counted steps: their shares of the mean; and the kinds that are not among them."""

    share: F64 | None  # None: all count the same
    missing: tuple[StepKind, ...]


def kinds_traced(rank: Rank, timeline: Timeline, queue: Queue) -> KindsTraced:
    """What the trace holds of the kinds of steps that were timed."""
    timed = rank.step_times
    kinds = timed.kinds() if timed is not None and timed.source == "measured" else ()
    if len(kinds) < 2:
        return KindsTraced(None, ())
    traced = traced_kinds(rank, timeline, queue)
    missing = tuple(kind for kind in kinds if kind.name not in traced)
    shares = {kind.name: kind.share for kind in kinds}
    share = np.array([shares.get(name, 0.0) / traced.count(name) for name in traced])
    is_told = len(set(traced)) > 1 and share.sum() > 0
    return KindsTraced(share / share.sum() if is_told else None, missing)


def traced_kinds(rank: Rank, timeline: Timeline, queue: Queue) -> list[str]:
    """The kind of each counted step."""
    found = kinds_found(rank, timeline)
    return [found[at] if at < len(found) else USUAL for at in queue.used.tolist()]


def kinds_found(rank: Rank, timeline: Timeline) -> list[str]:
    """The kind of each step that the trace marks, by the number it bears."""
    places = (step_numbers(timeline) - rank.first_traced).tolist() if rank.traced_kinds else []
    known = rank.traced_kinds
    return [known[place] if 0 <= place < len(known) else USUAL for place in places]


def evaluating(rank: Rank) -> tuple[StepKind, ...]:
    """The kinds of steps that are long because the model is evaluated in them."""
    kinds = rank.step_times.kinds() if rank.step_times is not None else ()
    return tuple(kind for kind in kinds if kind.doing == "evaluation")


def untraced_evaluations(rank: Rank, timeline: Timeline, queue: Queue) -> tuple[StepKind, ...]:
    """Those of them that no counted step is of: the time of rare steps is theirs."""
    missing = kinds_traced(rank, timeline, queue).missing
    return tuple(kind for kind in evaluating(rank) if kind in missing)


def beyond_usual_ns(rank: Rank, kinds: tuple[StepKind, ...]) -> float:
    """What steps of these kinds add to the mean step beyond usual ones."""
    timed = rank.step_times
    usual = next((kind for kind in timed.kinds() if kind.name == USUAL), None) if timed is not None else None
    if usual is None:
        return 0.0
    return sum(kind.share * max(kind.mean - usual.mean, 0.0) for kind in kinds) * NS_PER_S


# -- clocks, rare steps, collections, the loader, cores ------------------------------------------------

# A software power cap is how a busy data-centre card normally runs: it is no throttling.
HELD_BY = ("hw-slowdown", "sw-thermal", "hw-thermal", "hw-power-brake")
SLOW_STEP_RATIO = 1.0 + MAJORITY_SHARE  # times the median: a step this long is a slow one
FEWEST_STEPS = 5  # from fewer, one slow step is no rare one, and as many alike ones prove nothing
RARE = "unstable-steps"  # what is known of steps that stand out and nothing else
CAUSE_OF_DOING = {"saving": "host-work", "loader-start": "loader-starved"}  # what a hook saw in such steps


def throttle_reasons(telemetry: Telemetry) -> dict[str, float]:
    """Thermal and hardware reasons with the share of samples in which each held the clocks."""
    reasons = telemetry.throttle or {}
    return {name: reasons[name] for name in HELD_BY if reasons.get(name, 0.0) >= WORTH_IT}


def throttled_share(telemetry: Telemetry) -> float:
    """What of arithmetic's time was lost to clocks below the level the card itself held."""
    clock = telemetry.sm_clock_mhz
    if not throttle_reasons(telemetry) or clock is None or clock.max <= 0:
        return 0.0
    return float(np.clip(1.0 - clock.mean / clock.max, 0.0, 1.0))


def holding_down(rank: Rank) -> Claim | None:
    """What held this rank's clocks down most; None where nothing did."""
    reasons = throttle_reasons(rank.telemetry)
    if not reasons:
        return None
    most = max(reasons, key=lambda reason: reasons[reason])
    return Claim("clocks/held-down", {"reason": most, "rank": rank.number, "held_share": reasons[most]})


def rare_ns(rank: Rank, traced: KindsTraced) -> dict[str, float]:
    """Time a step that steps which no traced one is like add to the mean, by cause.

    What the collector took is known for itself, and not in here; nor what the loader took, unless the trace
    itself tells which of several kinds waits for it.
    """
    timed = rank.step_times
    if timed is None or timed.source != "measured" or len(timed.seconds) < FEWEST_STEPS:
        return {}
    explained = ((timed.loader_s or 0.0) + (timed.gc_s or 0.0)) * NS_PER_S
    if len(timed.kinds()) < 2:
        return {RARE: max(_uneven_s(np.array(timed.seconds)) * NS_PER_S - explained, 0.0)}
    found: dict[str, float] = {}
    for kind in traced.missing:
        cause = CAUSE_OF_DOING.get(kind.doing, RARE)
        found[cause] = found.get(cause, 0.0) + beyond_usual_ns(rank, (kind,))
    if RARE in found:
        found[RARE] = max(found[RARE] - max(explained - found.get("loader-starved", 0.0), 0.0), 0.0)
    if timed.seldom is None and (traced.share is None or not rank.loader_workers):
        found.pop("loader-starved", None)  # timed with the loader's other waits
    elif timed.seldom is None and "loader-starved" in found:
        found["loader-starved"] = min(found["loader-starved"], (timed.loader_s or 0.0) * NS_PER_S)
    return found


def _uneven_s(seconds: np.ndarray) -> float:
    """What a few steps that take much longer than the rest add to the mean."""
    low, median, high = np.percentile(seconds, [10, 50, 90])
    slow = seconds > SLOW_STEP_RATIO * median
    if (
        not slow.any()
        or slow.mean() > FAIR_PART  # that is how this job runs
        or (high - low <= FAIR_PART * median and seconds.mean() <= (1 + SMALL_PART) * median)
    ):
        return 0.0
    return float(seconds.mean() - median)


def collections_ns(rank: Rank) -> float:
    """Garbage collection a step, as the collector's own hook timed it."""
    timed = rank.step_times
    return (timed.gc_s or 0.0) * NS_PER_S if timed is not None and timed.source == "measured" else 0.0


def loader_ns(rank: Rank) -> float | None:
    """The wait in the data loader a step, as its own hook timed it; None where no loader was seen."""
    timed = rank.step_times
    if timed is None or timed.source != "measured" or timed.loader_s is None:
        return None
    return timed.loader_s * NS_PER_S


def timed_causes(rank: Rank) -> tuple[str, ...]:
    """Causes whose time the run's own hooks took while the steps were timed: it needs no ceiling and no
    trace."""
    found = {"loader-starved": loader_ns(rank) or 0.0, "gc-pause": collections_ns(rank)}
    return tuple(cause for cause, spent in found.items() if spent > 0)


def in_line_share(rank: Rank) -> float:
    """The share of the time in which the training thread could have run and other processes had the cores;
    where those may have been other ranks, nothing."""
    cpu = rank.telemetry.cpu
    return (cpu.in_line_share or 0.0) if cpu is not None and cpu.others_busy is not None else 0.0


def others_share(rank: Rank) -> float:
    """The share of the cores that other processes kept busy while no core was left over; else nothing."""
    cpu = rank.telemetry.cpu
    if cpu is None or not cpu.cores:
        return 0.0
    others, own = cpu.others_busy or 0.0, cpu.own_busy or 0.0
    return others / cpu.cores if others + own >= NEARLY_ALL * cpu.cores else 0.0


def cores_at_work(telemetry: Telemetry, busy_share: float) -> float | None:
    """The most of its cores that the job can have used while it computed; None where nobody counted.

    All its CPU time is taken to lie in its ops: what Python, workers and spinning threads used is in it.
    """
    cpu = telemetry.cpu
    if cpu is None or not cpu.cores or cpu.own_busy is None or cpu.others_busy is None or busy_share <= 0:
        return None
    return min(cpu.own_busy / busy_share / cpu.cores, 1.0)
