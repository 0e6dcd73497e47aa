"""A busy machine is no wall of the job's: what other processes may explain is not blamed on it."""

from __future__ import annotations

from typing import Any

import pytest

from findwall.examine.device import diagnose_device
from findwall.walls.verdict import Verdict, decide
from sketch import KERNELS, facts_of, sketch

STEPS = "|           |           |           "
TINY = {"k": KERNELS["k"].given([64, 64])}
LAUNCHES = sketch("o." * 18, "k.K." * 9, STEPS, kernels=TINY, us=20)  # half of the step is recoverable
STEP_MS = 0.24
BUSY = sketch("oooo                               ", "mM" * 18, STEPS)


def verdict_of(timeline: Any, in_line: float | None) -> Verdict:
    cpu = {"cores": 2, "others_busy": 1.5, "own_busy": 0.5, "in_line_share": in_line}
    return decide(facts_of(timeline, STEP_MS if timeline is LAUNCHES else None, telemetry={"cpu": cpu}))


@pytest.mark.parametrize("in_line", [None, 0.0, 0.24])
def test_a_calm_machine_explains_nothing(in_line):
    assert verdict_of(LAUNCHES, in_line).cause == "launch-bound"


def test_a_cause_that_is_most_of_the_step_stands_all_the_same():
    """They slow the whole step down, not one part of it."""
    sparse = sketch("o..." * 9, "k...K..." * 4 + "k...", STEPS, kernels=TINY, us=20)
    facts = facts_of(sparse, STEP_MS, telemetry={"cpu": {"in_line_share": 0.8}})
    assert decide(facts).cause == "launch-bound"


@pytest.mark.parametrize("in_line", [0.26, 0.8])
def test_one_that_they_may_explain_is_not_named(in_line):
    verdict = verdict_of(LAUNCHES, in_line)
    assert (verdict.cause, verdict.why_not, verdict.seeming) == (None, "contended", "launch-bound")


def test_the_work_of_a_gpu_is_not_slower_for_it():
    assert verdict_of(BUSY, 0.8) == verdict_of(BUSY, None)
    assert verdict_of(BUSY, 0.8).cause is not None


def test_the_report_says_why():
    facts = facts_of(LAUNCHES, STEP_MS, telemetry={"cpu": {"in_line_share": 0.8}})
    wall = diagnose_device(facts.run, [facts]).wall
    assert wall.cause is None and not wall.between
    assert "in line for a core 80 % of the time" in wall.sentence and "launch-bound" in wall.sentence
