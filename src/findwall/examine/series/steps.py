"""The timed steps of a run in order, and what its machine said meanwhile."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate

from findwall.model.measurement import Measurement, StepColumns
from findwall.model.series import Samples, StepSeries, Stretch
from findwall.units import NS_PER_S, ms

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
    known = {name: column for name, column in noted.columns.items() if len(column) == len(at)}
    return Samples(at, known)


def _step_at(seconds: float, ends: list[float], first: int) -> float:
    """The step that ran so many seconds after the first timed one began."""
    row = bisect_right(ends, seconds)
    if row == len(ends):
        return float(first + row)
    before = ends[row - 1] if row else 0.0
    return first + row + (seconds - before) / max(ends[row] - before, 1e-9)
