"""The document of a run without device events: what is known is said, nothing is guessed."""

from __future__ import annotations

import numpy as np

from findwall.attribute.places import lines_evidence
from findwall.examine.counters import CounterVerdict, judge_counters, known_parts, recoverable_share
from findwall.examine.kinds import about_elapsed, about_kinds, elapsed_shares, kind_rows
from findwall.examine.questions import counted_busy, is_steady, steadiness
from findwall.examine.remarks import notes_of_ranks
from findwall.examine.rows import KERNELS_LISTED, machine, memory, throughput, warnings
from findwall.model.catalogue import WALL_OF
from findwall.model.claims import Claim, advises, plain
from findwall.model.diagnosis import (
    SCHEMA,
    BudgetRow,
    Diagnosis,
    KernelRow,
    Mfu,
    Quality,
    Question,
    Source,
    Step,
    TimelineSummary,
    Wall,
)
from findwall.model.events import Kind
from findwall.model.machine import Ceilings
from findwall.model.run import Rank, Run, StepTimes
from findwall.structure.classes import op_class
from findwall.structure.cores import computing
from findwall.structure.links import link_launches
from findwall.structure.steps import find_steps
from findwall.units import ms


def diagnose_without_device(run: Run, ceilings: Ceilings, step_ms: float | None) -> Diagnosis:
    """Step and questions as far as they go; a verdict only where timing and counters support one."""
    rank = run.first
    timed = rank.step_times
    traced_only = timed is None and (rank.timeline is not None or run.kind != "run-folder")
    verdict = (
        CounterVerdict(None, (), Claim("no-device/events"), None) if traced_only else judge_counters(rank)
    )
    step = _step(timed, step_ms)
    return Diagnosis(
        schema=SCHEMA,
        source=Source(run.kind, list(run.paths), len(run.ranks), run.crash),
        machine=machine(run, ceilings),
        step=step,
        questions=_questions(timed, verdict),
        wall=_wall(verdict, rank.why_no_trace),
        timeline=TimelineSummary(None, None, None, None, None, []),
        quality=_quality(run),
        budget=_budget(rank, verdict) if step_ms is None else [],
        phases=[],
        memory=memory(run, None),
        prescriptions=[],
        not_worth_it=[],
        mfu=Mfu(None, None, None, None, "no device events"),
        throughput=throughput(run, step.ms * 1e6) if step.ms else None,
        kernels=_ops(rank) if traced_only else [],
        trials=list(run.trials),
        notes=[],
        remarks=[
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
