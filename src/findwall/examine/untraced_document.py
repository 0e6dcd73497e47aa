"""The document of a run without device events: what is known is said, nothing is guessed."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from msgspec.structs import replace

from findwall.examine.document_rows import (
    KERNELS_LISTED,
    counted_busy,
    is_steady,
    steadiness,
    throughput,
    warnings,
    without_step,
)
from findwall.examine.job_memory import failed, with_job
from findwall.examine.remarks import about_elapsed, about_kinds, elapsed_shares, kind_rows, notes_of_ranks
from findwall.facts.user_lines import lines_evidence
from findwall.model.catalogue import FAIR_PART, MAJORITY_SHARE, NEAR, ROOFS, SMALL_PART, WALL_OF, WORTH_IT
from findwall.model.claims import Claim, Figure, advises, plain
from findwall.model.diagnosis import BudgetRow, Diagnosis, KernelRow, Quality, Question, Step, Wall
from findwall.model.events import Kind
from findwall.model.machine import Ceilings, Counters
from findwall.model.measured_run import Rank, Run, StepTimes
from findwall.step.cores import computing
from findwall.step.kernel_classes import op_class
from findwall.step.links import link_launches
from findwall.step.step_bounds import find_steps
from findwall.units import ms
from findwall.work.hardware_counters import FP32_CEILING, TENSOR_CEILING


def diagnose_without_device(run: Run, ceilings: Ceilings, step_ms: float | None) -> Diagnosis:
    """Step and questions as far as they go; a verdict only where timing and counters support one."""
    rank = run.first
    timed = rank.step_times
    traced_only = timed is None and (rank.timeline is not None or run.kind != "run-folder")
    verdict = (
        CounterVerdict(None, (), Claim("no-device/events"), None) if traced_only else judge_counters(rank)
    )
    step = _step(timed, step_ms)
    held, on_memory = with_job(run, rank)
    oom = failed(run) if timed is None else None  # then it is the answer
    return replace(
        without_step(run, ceilings, "no device events"),
        step=step,
        questions=_questions(timed, verdict),
        wall=_wall(verdict, rank.why_no_trace) if oom is None else _out_of_memory(on_memory.pop(0)),
        quality=_quality(run),
        budget=_budget(rank, verdict) if step_ms is None else [],
        memory=held,
        throughput=throughput(run, step.ms * 1e6) if step.ms else None,
        kernels=_ops(rank) if traced_only else [],
        trials=list(run.trials),
        sweep=run.sweep,
        remarks=[
            *on_memory,
            *(plain(note) for timeline in run.timelines for note in timeline.quality.notes),
            *about_kinds(rank),
            *about_elapsed(rank),
            *_notes(run, rank, verdict),
        ],
        environment=warnings(run, rank, verdict.between if verdict.cause is None else (verdict.cause,)),
        cost=run.cost,
        kinds=kind_rows(rank) if step_ms is None else [],
        elapsed=elapsed_shares(rank),
    )


def _ops(rank: Rank) -> list[KernelRow]:
    """What the host computed, by op, longest first: of a trace without device events the only work seen."""
    if rank.timeline is None:
        return []
    events = rank.timeline.events
    steps = max(find_steps(rank.timeline, link_launches(rank.timeline)).count, 1)
    rows = computing(rank.timeline)
    names, inverse = np.unique(events.name[rows], return_inverse=True)
    calls = np.bincount(inverse.reshape(-1), minlength=len(names)) / steps
    took = np.bincount(inverse.reshape(-1), events.duration[rows], len(names)) / steps
    found = []
    for at in np.argsort(-took, kind="stable")[:KERNELS_LISTED].tolist():
        op = rank.timeline.names[int(names[at])]
        found.append(KernelRow(op, op, op_class(op) or "other", float(calls[at]), ms(float(took[at]))))
    return found


def _step(timed: StepTimes | None, step_ms: float | None) -> Step:
    seconds = np.array(timed.seconds) if timed is not None else np.empty(0)
    marks = (np.percentile(seconds, [10, 50, 90]) * 1e3).tolist() if len(seconds) else [None, None, None]
    low, middle, high = marks
    given = step_ms is not None
    return Step(
        ms=step_ms if given else timed.mean * 1e3 if timed is not None else None,
        low_ms=None,
        high_ms=None,
        source="given" if given else "measured" if timed is not None else "trace",
        median_ms=middle,
        p10_ms=low,
        p90_ms=high,
        profiled_ms=None,
        count=len(seconds),
        discarded=timed.discarded if timed is not None else 0,
        stable=is_steady(seconds),
    )


def _questions(timed: StepTimes | None, verdict: CounterVerdict) -> list[Question]:
    nothing = Claim("nothing/no-device" if timed is None else "nothing/not-traced")
    return [
        steadiness(np.array(timed.seconds if timed is not None else ())),
        counted_busy(verdict.busy, nothing),
        Question("matmul", "unknown", None, claim=nothing),
        Question("peak", "unknown", None, claim=nothing),
    ]


def _out_of_memory(claim: Claim) -> Wall:
    """The job died before a step was timed, and why is known."""
    return Wall(None, None, between=[], claim=claim, why_not="memory")


def _wall(verdict: CounterVerdict, why_no_trace: str) -> Wall:
    if verdict.cause is not None:
        claim = verdict.claim
        return Wall(WALL_OF[verdict.cause], verdict.cause, claim=claim, advises=advises(claim))
    missing = [Claim("no-device/no-trace", parts=[plain(why_no_trace.rstrip("."))])] if why_no_trace else []
    between = [[WALL_OF[cause], cause] for cause in verdict.between]
    claim = Claim("sentences", parts=[verdict.claim, *missing])
    return Wall(None, None, between=between, claim=claim, why_not=verdict.claim.id)


def _notes(run: Run, rank: Rank, verdict: CounterVerdict) -> list[Claim]:
    """What the verdict's place says already is not said again."""
    said = f"no trace of rank {rank.number}: {rank.why_no_trace}" if verdict.cause is None else ""
    return [note for note in notes_of_ranks(run, rank) if note != plain(said)]


def _budget(rank: Rank, verdict: CounterVerdict) -> list[BudgetRow]:
    """What was timed as waiting. Of the rest only where the host stood is known without a trace."""
    timed = rank.step_times
    if timed is None:
        return []
    parts = known_parts(timed, verdict)
    rows = [
        BudgetRow(WALL_OF[cause], cause, 1e3 * seconds, None, None, 1e3 * seconds * recoverable_share(cause))
        for cause, seconds in parts.items()
    ]
    rest = timed.mean - sum(parts.values())
    seen = lines_evidence(rank.host_lines)
    return [*rows, BudgetRow(None, "unknown", 1e3 * rest, None, None, None, evidence=seen)]


def _quality(run: Run) -> Quality:
    events = sum(timeline.quality.events for timeline in run.timelines)
    return Quality(events, 0, _launches(run), 0, any(t.quality.cut_off for t in run.timelines), None)


def _launches(run: Run) -> int:
    """Launch calls whose device rows are all missing."""
    return sum(
        sum("launchkernel" in timeline.name_of(row).lower() for row in timeline.rows(Kind.RUNTIME).tolist())
        for timeline in run.timelines
    )


# -- what step times and hardware counters support without a trace ----------------------------------------
#
# Three walls can be told apart by counters alone: a tensor pipe that is busy, a memory that is busy, and
# multiprocessors that are idle. Which cause inside a wall often cannot: then it is said between which.


# Percent of the time, as NVML's GPM reports it.
TENSOR_AT_ROOF, FP32_AT_ROOF = 100 * TENSOR_CEILING, 100 * FP32_CEILING
# Times fp32's rate: TF32 on the tensor cores of every GPU that has these counters (Hopper and later), by
# their data sheets.
TENSOR_CORES_RATIO = 7.0


class CounterVerdict(msgspec.Struct, frozen=True):
    """`cause` None: only `between` can be said."""

    cause: str | None
    between: tuple[str, ...]
    claim: Claim
    busy: float | None  # share of the step with work on the multiprocessors; None unknown
    carried: float = 0.0  # share of the step that the verdict's pipe accounts for


class Wait(msgspec.Struct, frozen=True):
    """A wait of the host that was seen: its share of the time, and what is said about it."""

    cause: str
    share: float  # the least it is
    claim: Claim


class Whole(msgspec.Struct, frozen=True):
    """What the shares are of: a step that was timed, or the time in which a job was watched."""

    step_s: float | None = None
    watched: bool = False  # then `findwall run` would show what is unknown, else a trace

    def figures(self, share: float | None = None) -> dict[str, Figure]:
        """Of what a share is, and how long that is where a step was timed."""
        step = None if self.step_s is None else self.step_s * 1e3
        part = None if share is None or step is None else share * step
        return {"step_ms": step, "part_ms": part, "part_share": share, "watched": self.watched}


def judge_counters(rank: Rank) -> CounterVerdict:
    """The verdict that timing and counters support."""
    timed = rank.step_times
    if timed is None:
        return CounterVerdict(None, (), Claim("counters/no-steps"), None)
    whole = Whole(timed.mean)
    waits = _timed_waits(timed, whole)
    return judge(rank, whole, waits) or CounterVerdict(
        None, (), Claim("counters/none", {"on_cores": rank.device_kind == "cpu"}), None
    )


def judge(
    rank: Rank, whole: Whole, waits: Sequence[Wait], knows_loader: bool = True
) -> CounterVerdict | None:
    """The verdict on a job whose host waits so, the wait that comes first being asked first; None where there
    are neither counters nor a wait that explains what the device does.

    `knows_loader`: somebody looked whether it waits for the loader.
    """
    gpm = counters_of(rank)
    share = None if gpm.sm is None else gpm.sm / 100.0
    idle = 1.0 if share is None else 1.0 - share
    waiting = _waiting(rank, whole, waits, idle, share is not None or rank.device_kind == "cpu")
    if waiting is not None:
        return _weighed(CounterVerdict(*waiting, share), whole, waits)
    if gpm.sm is None:
        return None
    found = CounterVerdict(*_by_pipes(whole, gpm, knows_loader), share)
    reached = {
        "at-the-roof": (gpm.tensor or 0.0) / TENSOR_AT_ROOF,
        "fast-path-off": (gpm.fp32 or 0.0) / FP32_AT_ROOF,
    }
    return _weighed(replace(found, carried=min(reached.get(found.cause or "", 0.0), 1.0)), whole, waits)


def counters_of(rank: Rank) -> Counters:
    """A GPU beside a job on cores has counters too, of somebody else's work."""
    return (rank.telemetry.gpm if rank.device_kind == "gpu" else None) or Counters()


def _timed_waits(timed: StepTimes, whole: Whole) -> list[Wait]:
    """What the hooks timed."""
    found = []
    for cause, seconds in (("loader-starved", timed.loader_s), ("gc-pause", timed.gc_s)):
        if seconds is not None and timed.mean > 0:
            share = seconds / timed.mean
            found.append(Wait(cause, share, Claim(f"timed/{cause}", whole.figures(share))))
    return found


def _weighed(verdict: CounterVerdict, whole: Whole, waits: Sequence[Wait]) -> CounterVerdict:
    """The verdict, if what is unknown without a trace could not be a better one."""
    if verdict.cause is None:
        return verdict
    parts = known_shares(waits, verdict)
    unknown = 1.0 - sum(parts.values())
    gain = parts.get(verdict.cause, 0.0) * recoverable_share(verdict.cause)
    if verdict.cause in ROOFS and unknown <= SMALL_PART:
        return verdict
    if verdict.cause not in ROOFS and unknown <= gain:
        return verdict
    both = Claim("sentences", parts=[verdict.claim, Claim("counters/where-else", whole.figures(unknown))])
    return replace(verdict, cause=None, between=(verdict.cause,), claim=both)


def recoverable_share(cause: str) -> float:
    """What of a cause's time could come back: all of a wait, nothing of a roof."""
    if cause == "fast-path-off":
        return 1.0 - 1.0 / TENSOR_CORES_RATIO
    return 0.0 if cause in ROOFS else 1.0


def _waiting(
    rank: Rank, whole: Whole, waits: Sequence[Wait], idle: float, known: bool
) -> tuple[str | None, tuple[str, ...], Claim] | None:
    """A wait that was seen and that explains most of the idle time, if there is much of that."""
    if not known or idle < FAIR_PART:
        return None
    for wait in waits:
        if wait.share >= MAJORITY_SHARE * idle:
            return wait.cause, (), wait.claim
    if rank.compiles:
        compiles = Claim("counters/compiles", {**whole.figures(), "idle_share": idle})
        return None, ("recompilation", "launch-bound", "host-work"), compiles
    return None


def _by_pipes(whole: Whole, gpm: Counters, knows_loader: bool) -> tuple[str | None, tuple[str, ...], Claim]:
    sm, tensor, dram, fp32 = (value or 0.0 for value in (gpm.sm, gpm.tensor, gpm.dram, gpm.fp32))
    figures: dict[str, Figure] = {**whole.figures(), "sm": sm, "tensor": tensor, "dram": dram, "fp32": fp32}
    if sm < 100 * NEAR:
        between = ("launch-bound", "host-work", "host-sync", *(() if knows_loader else ("loader-starved",)))
        idle = {"idle_share": 1 - sm / 100, "not_loader": knows_loader}
        return None, between, Claim("counters/idle", {**figures, **idle})
    if tensor >= NEAR * TENSOR_AT_ROOF:
        return "at-the-roof", (), Claim("counters/tensor-busy", figures)
    if fp32 >= NEAR * FP32_AT_ROOF and tensor < 100 * WORTH_IT:
        return "fast-path-off", (), Claim("counters/fp32-busy", figures)
    if dram >= 100 * MAJORITY_SHARE:
        between = ("unfused-pointwise", "memory-roof", "unfused-attention")
        return None, between, Claim("counters/memory-busy", figures)
    # fp32 convolutions keep their pipe less busy than matmuls do on an H200.
    slow = ("slow-kernels", "fast-path-off") if tensor < 100 * WORTH_IT else ("slow-kernels",)
    between = (*slow, "misaligned-shapes", "unfused-pointwise")
    return None, between, Claim("counters/no-pipe", figures)


def known_parts(timed: StepTimes, verdict: CounterVerdict) -> dict[str, float]:
    """Seconds of the step by cause: known to be waiting, never more than the device idles, and carried."""
    shares = known_shares(_timed_waits(timed, Whole(timed.mean)), verdict)
    return {cause: share * timed.mean for cause, share in shares.items()}


def known_shares(waits: Sequence[Wait], verdict: CounterVerdict) -> dict[str, float]:
    """The same as shares of the whole."""
    room = 1.0 if verdict.busy is None else 1.0 - verdict.busy
    parts: dict[str, float] = {}
    for wait in waits:
        if wait.share and (verdict.cause == wait.cause or verdict.busy is not None):
            parts[wait.cause] = min(wait.share, room)
            room -= parts[wait.cause]
    if verdict.cause and verdict.carried > 0:
        parts[verdict.cause] = min(verdict.carried, 1.0 - sum(parts.values()))
    return parts
