"""Step times as a measurement holds them: kinds, what they do, what came later, the job's whole time."""

from __future__ import annotations

import pytest

from findwall.model.measurement import Beside, Elapsed, Later, Measurement, StepColumns
from findwall.readers.step_times import elapsed, evaluated_apart, evaluates_always, step_times

MS = 1_000_000


def measured(times: list[int], kinds: list[str] | None = None, **more: object) -> Measurement:
    count = len(times)
    steps = StepColumns(
        host_ns=times,
        device_ns=[None] * count,
        loader_ns=[0] * count,
        gc_ns=[0] * count,
        hook_ns=[0] * count,
        batches=[0] * count,
        compiles=[0] * count,
        evaluated=[False] * count,
        kind=kinds or [],
    )
    return Measurement(steps=steps, first_timed=100, **more)  # type: ignore[arg-type]


def test_a_kind_does_what_a_hook_saw_in_its_steps() -> None:
    times = [20 * MS] * 7 + [480 * MS] + [20 * MS] * 7 + [480 * MS] + [20 * MS] * 7 + [480 * MS]
    kinds = ["slow" if ns > 100 * MS else "usual" for ns in times]
    beside = [
        Beside(107, "saving", 440 * MS),
        Beside(115, "saving", 450 * MS),
        Beside(123, "saving", 445 * MS),
    ]
    timed = step_times(measured(times, kinds, beside=beside), [])
    assert timed is not None
    usual, slow = timed.kinds()
    assert (usual.name, usual.share, usual.every) == ("usual", 21 / 24, None)
    assert (slow.every, slow.doing) == (8, "saving")
    assert slow.mean == pytest.approx(0.48)
    assert timed.saving_s == pytest.approx(1.335 / 24)
    assert timed.mean == pytest.approx(usual.share * usual.mean + slow.share * slow.mean)


def test_what_explains_little_is_not_what_a_kind_does() -> None:
    times = [20 * MS] * 15 + [480 * MS]
    kinds = ["usual"] * 15 + ["slow"]
    timed = step_times(measured(times, kinds, beside=[Beside(115, "saving", 40 * MS)]), [])
    assert timed is not None
    assert timed.kinds()[1].doing == ""


def test_steps_that_came_later_count_in_the_mean() -> None:
    later = Later(1000, 1000 * 20 * MS + 4 * 9_980 * MS, 200, [199, 449, 699, 949], [10_000 * MS] * 4)
    beside = [Beside(200 + at, "saving", 9_900 * MS) for at in later.slow_step]
    timed = step_times(measured([20 * MS] * 30, later=later, beside=beside), [])
    assert timed is not None
    assert timed.seldom is not None
    assert (timed.seldom.every, timed.seldom.doing) == (250, "saving")
    assert timed.seldom.share == pytest.approx(4 / 1030)
    assert timed.mean == pytest.approx(0.02 + 4 / 1030 * 9.98)


def test_evaluations_that_came_later_are_no_steps() -> None:
    later = Later(1000, 1000 * 20 * MS + 40_000 * MS, 200, [499], [40_000 * MS])
    beside = [Beside(699, "evaluation", 39_000 * MS)]
    timed = step_times(measured([20 * MS] * 30, later=later, beside=beside), [])
    assert timed is not None
    assert timed.seldom is None


def test_the_parts_of_the_job_s_time() -> None:
    found = elapsed(measured([MS], elapsed=Elapsed(100 * MS, 20 * MS, 1 * MS, 4 * MS, {"saving": 30 * MS})))
    assert found is not None
    assert (found.start_up, found.saving, found.evaluation) == (0.02, 0.03, 0.0)
    assert found.steps == pytest.approx(0.1 - 0.02 - 0.03 - 0.005)
    assert elapsed(measured([MS])) is None


@pytest.mark.parametrize(
    ("evaluated", "beside_s", "always"), [(1, 0.03, False), (6, 0.0, False), (16, 0.0, True)]
)
def test_what_every_step_evaluates_is_not_beside_the_steps(
    evaluated: int, beside_s: float, always: bool
) -> None:
    rank = measured([MS] * 20, elapsed=Elapsed(100 * MS, 20 * MS, 1 * MS, 4 * MS, {"evaluation": 30 * MS}))
    rank.steps.evaluated[:evaluated] = [True] * evaluated
    found = elapsed(rank)
    assert found is not None and found.evaluation == beside_s
    assert found.steps == pytest.approx(0.1 - 0.02 - 0.005 - beside_s)
    assert evaluates_always(rank) is always


@pytest.mark.parametrize(("rows", "mean_ms"), [((4, 9, 14, 19), 36), ((4, 14), 20), ((4, 6, 13, 19), 20)])
def test_evaluations_at_even_distances_count_in_the_mean(rows: tuple[int, ...], mean_ms: int) -> None:
    """They come again and again, like any work of every n-th step; others are beside the steps."""
    notes: list[str] = []
    rank = measured([100 * MS if row in rows else 20 * MS for row in range(20)])
    rank.steps.evaluated[:] = [row in rows for row in range(20)]
    timed = step_times(rank, notes)
    assert timed is not None and timed.mean == pytest.approx(mean_ms / 1e3)
    assert bool(notes) is (mean_ms == 20)


@pytest.mark.parametrize(("evaluated", "apart"), [(1, {107, 130}), (0, {107, 130}), (5, set())])
def test_evaluations_are_apart_from_steps_unless_they_are_in_many(evaluated: int, apart: set[int]) -> None:
    """Also those of traced steps, which come after the timed ones."""
    beside = [Beside(107, "evaluation", MS), Beside(130, "evaluation", MS), Beside(131, "saving", MS)]
    rank = measured([20 * MS] * 20, beside=beside)
    rank.steps.evaluated[:evaluated] = [True] * evaluated
    assert evaluated_apart(rank) == apart
