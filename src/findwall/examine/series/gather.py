"""All that is drawn beside a Diagnosis, from the run it is of."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from pathlib import Path

from findwall.examine.series.one_step import one_step
from findwall.facts.facts import Facts
from findwall.model.measured_run import Run
from findwall.model.measurement import Measurement, StepColumns
from findwall.model.series import Samples, Series, StepSeries, Stretch
from findwall.readers.run_folder import RUN_FOLDER, measurement_in, run_info
from findwall.units import NS_PER_S, ms

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
        why_no_timeline="" if facts is not None else f"{NO_TRACE} {rank.why_no_trace}".strip(),
        steps=steps,
        why_no_steps="" if steps is not None else "No step was timed." if folder is not None else NOT_TIMED,
        command=list(info.argv) or [info.script] if info is not None else [],
        started=info.started if info is not None else "",
        versions={name: version for name, version in run.environment.versions.items() if version},
        rank=rank.number,
    )


# -- the timed steps of a run in order, and what its machine said meanwhile -------------------------------


MOST_STEPS = 4000  # drawn: more than a chart has pixels for; chosen by hand


def step_series(measured: Measurement) -> StepSeries | None:
    """None where no step was timed."""
    columns = measured.steps
    rows = columns.timed(range(len(columns)))[:MOST_STEPS]
    if not rows:
        return None
    times = columns.times(rows)
    later = measured.later
    kinds = [columns.kind[row] for row in rows] if len(columns.kind) == len(columns) else []
    return StepSeries(
        warm_up=measured.first_timed or measured.warmup.steps,
        why_warm_up=measured.warmup.why,
        timed=Stretch(measured.first_timed, [ms(value) for value in times], kinds),
        traced_from=measured.trace.first_step if measured.trace.file else None,
        traced=measured.trace.steps,
        slow_later=dict(zip(later.slow_step, map(ms, later.slow_ns), strict=False)) if later else {},
        samples=_samples(measured, columns),
        telemetry=measured.telemetry,
    )


def _samples(measured: Measurement, columns: StepColumns) -> Samples | None:
    """The samples, each at the step that ran when it was taken."""
    noted = measured.telemetry.noted
    if noted is None or not noted.seconds:
        return None
    ends = [end / NS_PER_S for end in accumulate(columns.host_ns)]
    at = [_step_at(seconds, ends, measured.first_timed) for seconds in noted.seconds]
    return Samples(at, {name: column for name, column in noted.columns.items() if len(column) == len(at)})


def _step_at(seconds: float, ends: list[float], first: int) -> float:
    """The step that ran so many seconds after the first timed one began."""
    row = bisect_right(ends, seconds)
    if row == len(ends):
        return float(first + row)
    before = ends[row - 1] if row else 0.0
    return first + row + (seconds - before) / max(ends[row] - before, 1e-9)
