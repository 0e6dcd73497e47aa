"""The document of a run without device events: what is known is said, nothing is guessed."""

from __future__ import annotations

from findwall.examine.rows import machine, memory, throughput, warnings
from findwall.model.catalogue import QUESTIONS
from findwall.model.diagnosis import (
    SCHEMA,
    Diagnosis,
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
from findwall.model.run import Run

NO_DEVICE = (
    "The trace holds no device events, so no wall can be named. Record it with ProfilerActivity.CUDA, or, "
    "if the job runs on the CPU, let `findwall run` measure it."
)


def diagnose_without_device(run: Run, ceilings: Ceilings, step_ms: float | None) -> Diagnosis:
    """Source, step and questions as far as they go; no verdict."""
    seconds = run.step_times.mean if run.step_times is not None else None
    known = step_ms if step_ms is not None else seconds * 1e3 if seconds is not None else None
    unknown = [Question(name, "unknown", None, "No device events.") for name in QUESTIONS]  # type: ignore[arg-type]
    events = sum(timeline.quality.events for timeline in run.ranks)
    return Diagnosis(
        schema=SCHEMA,
        source=Source(run.kind, list(run.paths), len(run.ranks)),
        machine=machine(run, ceilings),
        step=Step(
            ms=known,
            low_ms=None,
            high_ms=None,
            source="given" if step_ms is not None else "measured" if seconds is not None else "trace",
            median_ms=None,
            p10_ms=None,
            p90_ms=None,
            profiled_ms=None,
            count=len(run.step_times.seconds) if run.step_times is not None else 0,
            discarded=run.step_times.discarded if run.step_times is not None else 0,
            stable=None,
        ),
        questions=unknown,
        wall=Wall(None, None, NO_DEVICE, None, []),
        timeline=TimelineSummary(None, None, None, None, None, []),
        quality=Quality(events, 0, _launches(run), 0, any(t.quality.cut_off for t in run.ranks), None),
        budget=[],
        phases=[],
        memory=memory(run, None),
        prescriptions=[],
        not_worth_it=[],
        mfu=Mfu(None, None, None, None, "no device events"),
        throughput=throughput(run, known * 1e6) if known else None,
        kernels=[],
        trials=[],
        notes=[*(note for timeline in run.ranks for note in timeline.quality.notes), *run.notes],
        environment=warnings(run),
        cost=run.cost,
    )


def _launches(run: Run) -> int:
    """Launch calls whose device rows are all missing."""
    names = {
        "cudaLaunchKernel",
        "cudaLaunchKernelExC",
        "cuLaunchKernel",
        "cuLaunchKernelEx",
        "hipLaunchKernel",
    }
    return sum(
        sum(timeline.name_of(row) in names for row in timeline.rows(Kind.RUNTIME).tolist())
        for timeline in run.ranks
    )
