"""Verdicts without a trace, from counters as an H200 gave them for jobs of known truth."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from findwall.examine import examine
from findwall.model.diagnosis import KindRow, from_json, to_json
from findwall.model.machine import Counters, Environment, Finding, Telemetry
from findwall.model.measured_run import Rank, Run, StepTimes

# SM, tensor pipe, fp32 pipe and DRAM in percent, as GPM reported them on an H200.
MISALIGNED_MATMULS = Counters(sm=96.3, tensor=26.7, fp32=2.0, dram=9.0)
TINY_KERNELS = Counters(sm=2.8, tensor=0.2, fp32=0.0, dram=0.4)
STARVED = Counters(sm=0.9, tensor=0.2, fp32=0.0, dram=0.3)
FP32_MATMULS = Counters(sm=97.2, tensor=0.0, fp32=75.9, dram=10.7)
BF16_MATMULS = Counters(sm=87.0, tensor=84.0, fp32=1.0, dram=15.0)
POINTWISE = Counters(sm=95.0, tensor=1.0, fp32=20.0, dram=83.0)


def measured(gpm: Counters | None, kind: str = "gpu", **waits: Any) -> Run:
    times = StepTimes(tuple([0.1] * 30), "measured", **waits)
    rank = Rank(step_times=times, telemetry=Telemetry(gpm=gpm), device_kind=kind)
    return Run("run-folder", ("run",), (rank,))


@pytest.mark.parametrize(
    ("run", "cause"),
    [
        (measured(STARVED, loader_s=0.09), "loader-starved"),
        (measured(TINY_KERNELS, gc_s=0.08), "gc-pause"),
        (measured(FP32_MATMULS), "fast-path-off"),
        (measured(BF16_MATMULS), "at-the-roof"),
        (measured(None, kind="cpu", loader_s=0.09), "loader-starved"),
    ],
)
def test_counters_and_waits_name_the_wall(run: Run, cause: str) -> None:
    document = examine(run)
    assert document.wall.cause == cause
    assert sum(row.ms for row in document.budget) == pytest.approx(document.step.ms)
    assert from_json(to_json(document)) == document


@pytest.mark.parametrize(
    ("run", "among"),
    [
        (measured(TINY_KERNELS), ["overhead", "launch-bound"]),
        (measured(POINTWISE), ["bandwidth", "unfused-pointwise"]),
        (measured(MISALIGNED_MATMULS), ["compute", "misaligned-shapes"]),
    ],
)
def test_where_the_cause_cannot_be_told_it_is_said_between_which(run: Run, among: list[str]) -> None:
    wall = examine(run).wall
    assert wall.wall is None and wall.between is not None
    assert among in wall.between
    assert "trace" in wall.sentence


def test_a_loader_that_is_waited_for_under_a_busy_device_is_no_wall() -> None:
    """The queue still holds work while the host waits: the counters see a busy device."""
    document = examine(measured(BF16_MATMULS, loader_s=0.05))
    assert document.wall.cause == "at-the-roof"


@pytest.mark.parametrize("kind", ["gpu", "cpu"])
def test_step_times_alone_name_nothing(kind: str) -> None:
    document = examine(measured(None, kind=kind))
    assert document.wall.wall is None
    assert document.step.ms == pytest.approx(100.0)
    assert document.kinds == [KindRow("usual", 1.0, pytest.approx(100.0), None)]
    assert [row.cause for row in document.budget] == ["unknown"]


def test_a_rank_without_device_events_says_so_and_nothing_else() -> None:
    document = examine(Run("torch-trace", ("trace",), ()))
    assert document.wall.wall is None
    assert document.step.ms is None
    assert "no device events" in document.wall.sentence


@pytest.mark.parametrize(
    ("run", "touched"),
    [
        (measured(STARVED, loader_s=0.09), "loader-starved"),
        (measured(TINY_KERNELS), "launch-bound, host-work and host-sync"),
        (measured(BF16_MATMULS), None),
    ],
)
def test_a_verdict_on_the_host_is_doubted_where_others_had_its_cores(run: Run, touched: str | None) -> None:
    sentence = "Other processes kept 1.4 of 2 cores busy."
    found = Finding("cpu-contended", "warning", sentence, "run it alone")
    run = replace(run, environment=Environment((found,)))
    doubt = f"{sentence[:-1]}, so part of {touched} may be their doing." if touched else sentence
    assert examine(run).environment == [f"{doubt} Fix: run it alone."]


@pytest.mark.parametrize(
    ("run", "cause"),
    [
        (measured(Counters(sm=40.0, tensor=5.0, fp32=1.0, dram=20.0), loader_s=0.035), "loader-starved"),
        (measured(Counters(sm=95.0, tensor=65.0, fp32=1.0, dram=20.0)), "at-the-roof"),
    ],
)
def test_where_more_is_unknown_than_known_no_wall_is_named(run: Run, cause: str) -> None:
    wall = examine(run).wall
    assert wall.cause is None and wall.between is not None
    assert [pair[1] for pair in wall.between] == [cause]
    assert "Only a trace would show where" in wall.sentence
