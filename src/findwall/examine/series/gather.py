"""All that is drawn beside a Diagnosis, from the run it is of."""

from __future__ import annotations

from pathlib import Path

from findwall.attribute.facts import Facts
from findwall.examine.series.one_step import one_step
from findwall.examine.series.steps import step_series
from findwall.model.run import Rank, Run
from findwall.model.series import Series
from findwall.readers.run_folder import RUN_FOLDER, measurement_in, run_info

NO_TRACE = "There is no trace of the device, so no step can be drawn."
NOT_TIMED = (
    "A trace alone holds a few profiled steps. `findwall run` times the steps without the profiler and "
    "draws them here, with the clocks and the power beside them."
)


def gather(run: Run, facts: Facts | None) -> Series:
    """`facts`: of the rank that speaks, None where no device was traced."""
    rank = facts.rank if facts is not None else run.first
    folder = Path(run.paths[0]) if run.kind == RUN_FOLDER and run.paths else None
    info = run_info(folder) if folder is not None else None
    measured = measurement_in(folder, rank.number) if folder is not None else None
    steps = step_series(measured) if measured is not None else None
    return Series(
        timeline=one_step(facts) if facts is not None else None,
        why_no_timeline="" if facts is not None else _why_no_trace(rank),
        steps=steps,
        why_no_steps="" if steps is not None else "No step was timed." if folder is not None else NOT_TIMED,
        command=list(info.argv) or [info.script] if info is not None else [],
        started=info.started if info is not None else "",
        versions={name: version for name, version in run.environment.versions.items() if version},
        rank=rank.number,
    )


def _why_no_trace(rank: Rank) -> str:
    return f"{NO_TRACE} {rank.why_no_trace}".strip()
