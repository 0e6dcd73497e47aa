"""Two sides are told apart by what they are, not by chance; and the parts of a difference sum to it."""

from __future__ import annotations

import random
from math import exp, fsum
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from examples import drawn
from findwall.api import read
from findwall.examine import examine
from findwall.examine.compared import Taken, compare_sides
from findwall.examine.document_rows import KERNELS_LISTED
from findwall.model.diagnosis import BudgetRow, Diagnosis, KernelRow, from_json
from findwall.model.events import Kind, Timeline
from findwall.model.machine import CONTENDED
from sketch import facts_of, sketch

FULL = Path(__file__).parents[1] / "fixtures" / "documents" / "full.json"
NOISE = 0.01  # by which processes of one job vary
CAUSES = ("misaligned-shapes", "launch-bound", "loader-starved", "unknown")
WALLS = {"misaligned-shapes": "compute", "launch-bound": "overhead", "loader-starved": "data"}


def timed(step_ms: float, spread: float = 0.004, **changes: object) -> Diagnosis:
    """A run whose steps were measured without the profiler."""
    one = from_json(FULL.read_bytes())
    step = replace(
        one.step,
        ms=step_ms,
        low_ms=step_ms * 0.999,
        high_ms=step_ms * 1.001,
        source="measured",
        median_ms=step_ms,
        p10_ms=step_ms * (1 - spread / 2),
        p90_ms=step_ms * (1 + spread / 2),
        count=200,
    )
    return replace(one, **{"step": step, "budget": [_row("launch-bound", step_ms)], **changes})


def _row(cause: str, ms: float) -> BudgetRow:
    return BudgetRow(WALLS.get(cause), cause, ms, None, None, None)


def taken(*documents: Diagnosis) -> list[Taken]:
    return [Taken(one) for one in documents]


def side(draw: random.Random, step_ms: float, runs: int) -> list[Taken]:
    return taken(*(timed(step_ms * exp(draw.gauss(0, NOISE))) for _ in range(runs)))


def test_runs_that_others_disturbed_are_left_out_where_both_sides_have_quiet_ones() -> None:
    busy = {CONTENDED: "Other processes kept 1.9 of 2 cores busy."}
    before = [*taken(timed(100.0), timed(100.2)), Taken(timed(109.0), {}, busy)]
    after = [*taken(timed(105.0), timed(105.2)), Taken(timed(118.0), {}, busy)]
    found = compare_sides(before, after)
    assert found.step.outcome == "slower" and found.before.steps_ms == [100.0, 100.2]
    assert found.notes[0].endswith("are left out: 1 of 3 of A and 1 of 3 of B.")
    one_sided = compare_sides(before, [Taken(timed(118.0), {}, busy)] * 2)
    assert len(one_sided.before.steps_ms) == 3
    assert one_sided.notes[0].endswith("1 of 3 of A and 2 of 2 of B. Repeat them on a quiet machine.")


def test_half_as_long_is_as_clear_as_twice_as_long() -> None:
    slow, fast = timed(60.0, spread=0.9), timed(25.0, spread=0.9)
    assert compare_sides(taken(fast), taken(slow)).step.outcome == "slower"
    assert compare_sides(taken(slow), taken(fast)).step.outcome == "faster"


def outcomes(draw: random.Random, slower: float, runs: int, times: int = 20) -> list[str]:
    return [
        compare_sides(side(draw, 100.0, runs), side(draw, 100.0 * slower, runs)).step.outcome
        for _ in range(times)
    ]


def test_runs_of_one_job_do_not_differ() -> None:
    """20 of 20, in nearly every series of twenty: one in five hundred comparisons may be unlucky."""
    series = [outcomes(random.Random(seed), 1.0, runs=4) for seed in range(20)]
    assert sum(one.count("no-difference") == 20 for one in series) >= 18
    assert sum(one.count("no-difference") for one in series) >= 0.995 * 400


def test_a_job_that_is_5_percent_slower_is_found() -> None:
    """18 of 20 in every series, and never called faster."""
    for seed in range(20):
        found = outcomes(random.Random(seed), 1.05, runs=4)
        assert found.count("slower") >= 18
        assert "faster" not in found


def test_one_run_a_side_of_one_job_does_not_differ() -> None:
    """Steps of most jobs vary by a few percent: that and what processes vary by is no difference."""
    draw = random.Random(0)
    for _ in range(100):
        one, two = (timed(100 * exp(draw.gauss(0, NOISE)), spread=0.02) for _ in range(2))
        assert compare_sides(taken(one), taken(two)).step.outcome == "no-difference"


@pytest.mark.parametrize(
    ("after", "spread", "outcome"),
    [
        (102.9, 0.001, "no-difference"),  # less than 3 %
        (104.0, 0.001, "slower"),
        (96.0, 0.001, "faster"),
        (110.0, 0.10, "no-difference"),  # its steps vary as much
        (120.0, 0.10, "slower"),
    ],
)
def test_one_run_a_side_must_exceed_its_steps_and_3_percent(
    after: float, spread: float, outcome: str
) -> None:
    step = compare_sides(taken(timed(100.0)), taken(timed(after, spread))).step
    assert (step.outcome, step.rests_on) == (outcome, "steps")
    assert step.low is not None and step.high is not None and step.low < after / 100 - 1 < step.high


def test_several_runs_against_one_count_as_one_run() -> None:
    """What the several vary by is known, though."""
    apart = taken(timed(100.0), timed(108.0), timed(104.0))
    assert compare_sides(apart, taken(timed(113.0))).step.outcome == "no-difference"
    alike = taken(timed(104.0), timed(104.1), timed(104.2))
    assert compare_sides(alike, taken(timed(113.0))).step.outcome == "slower"


def test_steps_under_the_profiler_prove_nothing() -> None:
    one = timed(100.0)
    traced = replace(one, step=replace(one.step, ms=200.0, source="trace"))
    for before, after in (([traced], [traced]), ([one] * 3, [traced] * 3), ([traced] * 3, [one] * 3)):
        step = compare_sides(taken(*before), taken(*after)).step
        assert (step.outcome, step.rests_on, step.low, step.bar) == ("unknown", "nothing", None, None)
        assert "findwall run" in step.why


def test_a_step_that_is_not_known_is_no_difference_of_zero() -> None:
    one = timed(100.0)
    unknown = replace(one, step=replace(one.step, ms=None), budget=[])
    found = compare_sides(taken(one), taken(unknown))
    assert (found.step.outcome, found.step.ms, found.budget) == ("unknown", None, [])
    assert "second side" in found.step.why


def test_the_budget_is_of_the_runs_in_the_middle() -> None:
    """A run that went wrong moves neither the step nor its parts."""
    runs = [timed(step) for step in (101.0, 300.0, 99.0, 100.0)]
    found = compare_sides(taken(*runs), taken(*runs[2:], runs[0]))
    assert (found.before.step_ms, found.after.step_ms) == (100.5, 100.0)
    assert [(row.cause, row.before_ms, row.after_ms) for row in found.budget] == [
        ("launch-bound", 100.5, 100.0)
    ]
    untraced = replace(runs[3], budget=[])
    found = compare_sides(taken(runs[0], untraced, runs[2]), taken(runs[3]))
    assert {row.cause for row in found.budget} == {"launch-bound", "rest"}


budgets = st.dictionaries(st.sampled_from(CAUSES), st.floats(0.0, 500.0), min_size=1)
runs = st.lists(st.tuples(budgets, st.floats(-1.0, 50.0)), min_size=1, max_size=4)


def _drawn(parts: dict[str, float], beyond: float) -> Diagnosis:
    """A run with that budget, whose step is longer or shorter than it holds."""
    step = max(fsum(parts.values()) + beyond, 0.1)
    return timed(step, budget=[_row(cause, ms) for cause, ms in parts.items()])


@given(before=runs, after=runs)
@drawn(100)
def test_the_parts_sum_to_the_difference(
    before: list[tuple[dict[str, float], float]], after: list[tuple[dict[str, float], float]]
) -> None:
    sides = [taken(*(_drawn(*one) for one in several)) for several in (before, after)]
    found = compare_sides(*sides)
    assert found.before.step_ms is not None and found.after.step_ms is not None
    assert found.step.ms == found.after.step_ms - found.before.step_ms
    assert fsum(row.ms for row in found.budget) == pytest.approx(found.step.ms, abs=1e-5)
    assert fsum(row.before_ms for row in found.budget) == pytest.approx(found.before.step_ms, abs=1e-5)
    assert all(row.ms == row.after_ms - row.before_ms for row in found.budget)
    back = compare_sides(*reversed(sides))
    assert back.step.ms == -found.step.ms
    opposite = {"slower": "faster", "faster": "slower", "no-difference": "no-difference"}
    if found.step.rests_on == "steps" and abs(found.step.share or 0) < 0.03:
        assert back.step.outcome == opposite[found.step.outcome]
    assert {(row.cause, -row.ms) for row in back.budget} == {(row.cause, row.ms) for row in found.budget}


@given(several=runs)
@drawn(30)
def test_a_side_does_not_differ_from_itself(several: list[tuple[dict[str, float], float]]) -> None:
    own = taken(*(_drawn(*one) for one in several))
    found = compare_sides(own, own)
    assert found.step.outcome == "no-difference"
    assert all(row.ms == 0 for row in found.budget)
    assert found.kernels == [] and found.environment == []


def _kernel(name: str, ms: float, op: str = "aten::mm", class_: str = "matmul") -> KernelRow:
    return KernelRow(name, op, class_, calls=2.0, ms=ms)


def test_kernels_that_appeared_vanished_or_changed() -> None:
    before = [_kernel("same", 10.0), _kernel("gone", 5.0), _kernel("grew", 3.0, "a"), _kernel("grew", 1.0)]
    after = [_kernel("same", 10.3), _kernel("came", 2.0), _kernel("grew", 6.0), _kernel("tiny", 0.01)]
    found = compare_sides(taken(timed(100.0, kernels=before)), taken(timed(100.0, kernels=after)))
    told = [(row.what, row.name, row.before_ms, row.after_ms) for row in found.kernels]
    assert told == [
        ("vanished", "gone", 5.0, 0.0),
        ("changed", "grew", 4.0, 6.0),
        ("appeared", "came", 0.0, 2.0),
    ]
    assert [row.before_calls for row in found.kernels] == [2.0, 4.0, 0.0]


def test_a_kernel_below_the_end_of_a_full_list_has_not_vanished() -> None:
    full = [_kernel(f"kernel {at}", 1.0) for at in range(KERNELS_LISTED)]
    before = timed(300.0, kernels=[*full[:-1], _kernel("short", 0.9)])
    found = compare_sides(taken(before), taken(timed(300.0, kernels=full)))
    assert [(row.what, row.name) for row in found.kernels] == [("appeared", full[-1].name)]


def test_what_differs_besides() -> None:
    one, two = timed(100.0), timed(100.0)
    two.machine = replace(two.machine, device="Tesla T4")
    before = Taken(
        one, {"torch": "2.6", "cuda": "12.4"}, {"tf32-off": "TF32 is off.", "busy": "3 cores busy"}
    )
    after = Taken(two, {"torch": "2.7", "cuda": "12.4"}, {"busy": "2 cores busy"})
    told = {(row.what, row.before, row.after) for row in compare_sides([before], [after]).environment}
    assert told == {
        ("GPU", one.machine.device, "Tesla T4"),
        ("torch", "2.6", "2.7"),
        ("finding", "TF32 is off.", None),
    }


def test_versions_that_a_document_does_not_hold_do_not_differ() -> None:
    one = timed(100.0, environment=["Others keep 3.2 cores busy."])
    two = timed(100.0, environment=["Others keep 1.7 cores busy."])
    assert compare_sides([Taken(one, {"torch": "2.6"})], [Taken(two)]).environment == []


def test_a_loader_that_got_workers(shared: Path) -> None:
    """The device no longer waits for batches; part of that time went to copies and launches. Not to the host:
    the second file begins behind 36 ms of device work that it does not hold."""
    folder = shared / "traces"
    one, two = (read(folder / f"v100_resnet50_workers{count}.json.gz") for count in (0, 4))
    found = compare_sides(taken(one), taken(two))
    changes = {row.cause: row.ms for row in found.budget}
    assert found.budget[0].cause == "loader-starved"
    assert changes["loader-starved"] == pytest.approx(-48, abs=1)
    assert 3 < changes["copy-exposed"] < 9 and 3 < changes["launch-bound"] < 9
    assert changes["copy-exposed"] + changes["launch-bound"] == pytest.approx(7 + 5, abs=1)
    assert abs(changes["host-work"]) < 1
    assert found.before.step_ms == pytest.approx(160, abs=1)
    assert found.after.step_ms == pytest.approx(126, abs=1)
    assert found.step.ms is not None
    assert fsum(changes.values()) == pytest.approx(found.step.ms, abs=1e-6)
    # Behind the loader, host, copies and fp32 products hide each other: the profiler decides which leads.
    assert (found.before.cause, found.after.wall) == ("loader-starved", None)
    assert found.step.outcome == "unknown"


def without_marks(cpu: str, gpu: str) -> Timeline:
    timeline = sketch(cpu, gpu)
    unmarked = np.flatnonzero(timeline.events.kind != Kind.ANNOTATION)
    return replace(timeline, events=timeline.events.take(unmarked))


def test_traces_without_steps_still_tell_the_device_s_time() -> None:
    """Spans, of which nobody timed a step: what the device did is known, kernel by kernel."""
    gpu = ("kkmwwww   ", "kkmw      ")
    before, after = (examine(facts_of(without_marks("o o o     ", one)).run) for one in gpu)
    assert before.step.found_by == "span"
    found = compare_sides(taken(before), taken(after))
    assert found.step.outcome == "unknown"
    assert any(
        "device works" in note and "7.00 ms" in note and "4.00 ms" in note and "−43 %" in note
        for note in found.notes
    )
    assert [row.ms for row in found.kernels] == [pytest.approx(-3, abs=0.1)]
