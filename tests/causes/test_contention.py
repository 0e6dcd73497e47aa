"""A busy machine is no wall of the job's: what other processes may explain is not blamed on it."""

from __future__ import annotations

from typing import Any

import pytest

from findwall.causes.verdict import Verdict, decide
from findwall.examine.traced_document import diagnose_device
from findwall.model.machine import Ceilings, CpuUse, Telemetry
from findwall.model.measured_run import StepTimes
from findwall.report.words import spoken
from sketch import KERNELS, facts_of, hosts_own, sketch

STEPS = "|           |           |           "
TINY = {"k": KERNELS["k"].given([64, 64])}
LAUNCHES = sketch("o." * 18, "k.K." * 9, STEPS, kernels=TINY, us=20)  # half of the step is recoverable
STEP_MS = 0.24
BUSY = sketch("oooo                               ", "mM" * 18, STEPS)


def verdict_of(timeline: Any, in_line: float | None) -> Verdict:
    cpu = CpuUse(cores=2, others_busy=1.5, own_busy=0.5, in_line_share=in_line)
    return decide(facts_of(timeline, STEP_MS if timeline is LAUNCHES else None, telemetry=Telemetry(cpu=cpu)))


@pytest.mark.parametrize("in_line", [None, 0.0, 0.24])
def test_a_calm_machine_explains_nothing(in_line):
    assert verdict_of(LAUNCHES, in_line).cause == "launch-bound"


def test_a_cause_that_is_most_of_the_step_stands_all_the_same():
    """They slow the whole step down, not one part of it."""
    sparse = sketch("o..." * 9, "k...K..." * 4 + "k...", STEPS, kernels=TINY, us=20)
    facts = facts_of(sparse, STEP_MS, telemetry=Telemetry(cpu=CpuUse(others_busy=1.0, in_line_share=0.8)))
    assert decide(facts).cause == "launch-bound"


@pytest.mark.parametrize("in_line", [0.26, 0.8])
def test_one_that_they_may_explain_is_not_named(in_line):
    verdict = verdict_of(LAUNCHES, in_line)
    assert (verdict.cause, verdict.why_not, verdict.seeming) == (None, "contended", "launch-bound")


def test_the_work_of_a_gpu_is_not_slower_for_it():
    assert verdict_of(BUSY, 0.8) == verdict_of(BUSY, None)
    assert verdict_of(BUSY, 0.8).cause is not None


def test_the_report_says_why():
    facts = facts_of(LAUNCHES, STEP_MS, telemetry=Telemetry(cpu=CpuUse(others_busy=1.0, in_line_share=0.8)))
    wall = diagnose_device(facts.run, [facts]).wall
    assert wall.cause is None and not wall.between
    assert wall.claim is not None and wall.why_not == "contended"
    (why,) = wall.claim.parts
    assert why.figures == {"waited_share": 0.8, "cause": "launch-bound"}
    assert spoken(why).startswith("For 80 % of the time the job's thread waited for a core")


ON_CORES = sketch("oooo" * 3, "kKkK" * 3, "|   " * 3, kernels={"k": KERNELS["t"]}, device="")
CORES = {"fp32": 400e12}  # the op above then runs at a sixth of it


@pytest.mark.parametrize(
    ("in_line", "others", "named"),
    [(0.0, 0.0, True), (0.02, 1.0, True), (0.2, 1.0, False), (0.2, 0.3, True), (0.5, 1.5, False)],
)
def test_work_on_cores_suffers_most(in_line, others, named):
    """The threads of one op wait for the one that has no core, so being most of the step proves nothing."""
    cpu = CpuUse(cores=2, others_busy=others, own_busy=2 - others, in_line_share=in_line)
    ceilings = Ceilings(device="Some CPU", source="measured", flops=CORES, bandwidth=1e12)
    facts = facts_of(hosts_own(ON_CORES), ceilings=ceilings, device_kind="cpu", telemetry=Telemetry(cpu=cpu))
    verdict = decide(facts)
    assert (verdict.cause or verdict.seeming) == "slow-kernels" and (verdict.cause is not None) == named


def test_a_rate_that_was_reached_was_reached():
    cpu = CpuUse(cores=2, others_busy=1.0, own_busy=1.0, in_line_share=0.5)
    ceilings = Ceilings(device="Some CPU", source="measured", flops={"fp32": 72e12}, bandwidth=1e12)
    run = {"device_kind": "cpu", "telemetry": Telemetry(cpu=cpu)}
    assert decide(facts_of(hosts_own(ON_CORES), ceilings=ceilings, **run)).cause == "at-the-roof"
    assert decide(facts_of(hosts_own(ON_CORES), **run)).why_not == "contended"


@pytest.mark.parametrize(("in_line", "named"), [(0.0, True), (0.3, False)])
def test_rare_slow_steps_may_be_theirs_however_slow(in_line, named):
    timed = StepTimes((0.004,) * 18 + (0.1,) * 2, "measured")
    telemetry = Telemetry(cpu=CpuUse(others_busy=1.0, in_line_share=in_line))
    run = {"device_kind": "cpu", "telemetry": telemetry, "step_times": timed}
    verdict = decide(facts_of(hosts_own(ON_CORES), **run))
    assert (verdict.cause or verdict.seeming) == "unstable-steps" and (verdict.cause is not None) == named


def on_cores(step_s: float) -> dict[str, Any]:
    ceilings = Ceilings(device="Some CPU", source="measured", flops={"fp32": 72e12}, bandwidth=1e12)
    return {
        "device_kind": "cpu",
        "ceilings": ceilings,
        "step_times": StepTimes((step_s,) * 20, "measured"),
    }


def test_work_is_judged_by_the_time_that_it_takes_while_nothing_disturbs_it():
    """What was recorded at three quarters of the cores' speed reached the roof all the same."""
    work = hosts_own(ON_CORES)
    usual = facts_of(work, **on_cores(0.004))
    assert decide(usual).cause == "at-the-roof"
    slowed = facts_of(
        work,
        **{
            **on_cores(0.003),
            "ceilings": Ceilings("Some CPU", "measured", flops={"fp32": 96e12}, bandwidth=1e12),
        },
    )
    assert 0.7 < slowed.reading.likely.pace < 0.8
    assert decide(slowed).cause == "at-the-roof"


def test_steps_that_took_several_times_as_long_while_recorded_prove_nothing():
    facts = facts_of(hosts_own(ON_CORES), **on_cores(0.0015))
    verdict = decide(facts)
    assert (verdict.cause, verdict.why_not) == (None, "crowded-trace")
    wall = diagnose_device(facts.run, [facts]).wall
    assert wall.claim is not None
    assert "took about 3 times as long" in spoken(wall.claim.parts[0])
