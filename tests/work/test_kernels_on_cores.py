"""Cores of unknown ceilings: what can be said all the same, and what not."""

from __future__ import annotations

from typing import Any

import pytest

from findwall.causes.verdict import Verdict, decide
from findwall.examine.traced_document import diagnose_device
from findwall.facts.facts import Facts
from findwall.model.machine import NO_TELEMETRY, CpuUse, Telemetry
from findwall.model.measured_run import StepTimes
from findwall.report.words import spoken
from findwall.step.timed_steps import cores_at_work
from sketch import Drawn, facts_of, hosts_own, sketch

MATMUL = Drawn("", "aten::mm").given([1000, 1000], [1000, 1000])
VECTOR = Drawn("", "aten::mv").given([3000, 3000], [3000])
MUL = Drawn("", "aten::mul").given([1000, 1000], [1000, 1000])
NARROW = Drawn("", "aten::mm").given([1000, 30], [30, 1000])  # between the regimes


def facts(cpu: str, drawn: Drawn, used: float | None = 8.0, **run: Any) -> Facts:
    """Three steps, every `o` a millisecond of such an op, on eight cores."""
    steps = ("|" + " " * (len(cpu) - 1)) * 3
    timeline = sketch(cpu * 3, ("kK" * (2 * len(cpu)))[: 3 * len(cpu)], steps, {"k": drawn}, device="")
    telemetry = Telemetry(cpu=CpuUse(cores=8, others_busy=0.0, own_busy=used))
    return facts_of(hosts_own(timeline), device_kind="cpu", telemetry=telemetry, **run)


@pytest.mark.parametrize("used", [8.0, 6.5, None])
def test_large_products_are_arithmetic(used: float | None) -> None:
    found = facts("oooo", MATMUL, used)
    assert decide(found) == Verdict(None, between=("at-the-roof", "slow-kernels"), why_not="ceilings")
    wall = diagnose_device(found.run, [found]).wall
    assert "Run `findwall ceilings`" in spoken(wall.claim) and wall.cause is None


def test_nothing_is_said_of_how_near_the_ceiling_they_run() -> None:
    found = diagnose_device(facts("oooo", MATMUL).run, [facts("oooo", MATMUL)])
    peak = next(one for one in found.questions if one.id == "peak")
    assert peak.answer == "unknown" and peak.value is None
    assert all(kernel.floor_ms is None and kernel.bound == "unknown" for kernel in found.kernels)


def test_products_on_one_core_of_eight_leave_seven_idle() -> None:
    found = facts("oooo", MATMUL, used=1.0)
    assert decide(found).cause == "slow-kernels"
    assert found.recoverable_ms("slow-kernels") == pytest.approx(4 * 7 / 8, rel=0.01)


def test_python_beside_them_does_not_hide_the_cores_they_use() -> None:
    assert cores_at_work(Telemetry(cpu=CpuUse(cores=2, others_busy=0.0, own_busy=1.5)), busy_share=0.5) == 1.0
    assert cores_at_work(Telemetry(cpu=CpuUse(cores=2, others_busy=0.0, own_busy=1.0)), busy_share=1.0) == 0.5
    assert cores_at_work(NO_TELEMETRY, 1.0) is None
    assert cores_at_work(Telemetry(cpu=CpuUse(cores=2)), 1.0) is None


def test_products_with_a_vector_read_memory() -> None:
    assert decide(facts("oooo", VECTOR)).between == ("memory-roof", "slow-kernels")


def test_a_chain_could_keep_most_of_its_bytes_on_the_cores() -> None:
    found = facts("oooooooo", MUL)
    assert decide(found).cause == "unfused-pointwise"
    assert (found.recoverable_ms("unfused-pointwise") or 0) < 8


def test_products_between_the_regimes_hide_what_is_small() -> None:
    timed = StepTimes((0.010,) * 10, "measured", loader_s=0.002)
    assert decide(facts("oooooooodd", NARROW, step_times=timed)).cause is None
    starved = StepTimes((0.010,) * 10, "measured", loader_s=0.006)
    assert decide(facts("oooodddddd", NARROW, step_times=starved)).cause == "loader-starved"
