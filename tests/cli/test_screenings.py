"""Fixes screened in as many processes as a job needs for it, and nothing left of them."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Sequence
from math import inf
from pathlib import Path

import msgspec
import pytest

from findwall.cli.jobs.screening import Screenings
from findwall.cli.jobs.trying import Job, _arm
from findwall.model.arms import ArmReport, ScreenedFix, Screening
from findwall.trial.arms_in_turn import Arm
from findwall.trial.stacks_tried import Stack
from processes_left import begun, left

PAIRS = [(10.0, 5.0), (10.0, 5.1), (10.0, 4.9)]
TELLS = """
import os, sys
open(os.environ["FINDWALL_REPORT"], "w").write(sys.argv[1])
sys.exit(int(sys.argv[2]))
"""
HANGS = """
import subprocess, sys, time
open("hangs", "w").close()
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
time.sleep(60)
"""


class Screens:
    """A job of which each process screens the first `at_once` of the fixes, and then ends."""

    def __init__(self, at_once: int, code: int = 0, why_not: str = "") -> None:
        self.at_once, self.code, self.why_not = at_once, code, why_not
        self.asked: list[list[str]] = []

    def arm(self, name: str, stack: Stack, fixes: Sequence[str]) -> Arm:
        self.asked.append(list(fixes))
        told = Screening(
            [ScreenedFix(one, PAIRS, seen="there") for one in fixes[: self.at_once]], self.why_not
        )
        report = msgspec.json.encode(ArmReport(step_ms=1.0, screening=told)).decode()
        return Arm(name, (sys.executable, "-c", TELLS, report, str(self.code)))


LIVE = ["torch-compile", "bf16-autocast", "freeze-gc"]


@pytest.mark.parametrize("code", [0, 1])
def test_a_job_that_ends_early_or_fails_is_run_again_for_the_rest(code: int) -> None:
    job, said = Screens(2, code), list[str]()
    found = Screenings(job.arm, said.append).of(LIVE, ("tf32",), inf)
    assert job.asked == [["bf16-autocast", "freeze-gc", "torch-compile"], ["torch-compile"]]  # that last
    assert [(one.fix, one.says, one.base) for one in found] == [
        (name, "gain", ("tf32",)) for name in ("bf16-autocast", "freeze-gc", "torch-compile")
    ]
    assert "  freeze-gc: 2.00× (1.90–2.10) while the job ran" in said


def test_what_no_fix_may_be_switched_beside_is_asked_once() -> None:
    job, said = Screens(0, why_not="the job runs code that it compiled"), list[str]()
    screens = Screenings(job.arm, said.append)
    assert screens.of(LIVE, (), inf) == [] and screens.of(LIVE, (), inf) == []
    assert len(job.asked) == 1 and "  nothing was screened: the job runs code that it compiled" in said


def test_one_fix_alone_and_what_is_fixed_at_a_start_are_not_screened() -> None:
    job = Screens(3)
    assert Screenings(job.arm, print).of(["bf16-autocast", "loader-workers=2", "pin-memory"], (), inf) == []
    assert Screenings(job.arm, print).of(LIVE, (), 10.0) == [] and job.asked == []  # nor without the time


SCREENS_IT = """
import sys
from findwall.cli.jobs import screening
from findwall.trial.arms_in_turn import Arm

screening.EACH_S = 0.1
arm = Arm("screening", (sys.executable, "-c", sys.argv[1]))
print(screening.Screenings(lambda *_: arm, print).of(["bf16-autocast", "freeze-gc"], (), float(sys.argv[2])))
"""


def test_one_that_hangs_is_ended_with_all_it_started(tmp_path: Path) -> None:
    assert begun(tmp_path, "-c", SCREENS_IT, HANGS, "3").wait(60) == 0
    assert "there was no time" in (tmp_path / "out").read_text() and left(tmp_path) == []


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_whoever_screens_may_be_killed(tmp_path: Path, how: signal.Signals) -> None:
    """Ctrl-C ends what runs at once; after kill -9 a watchdog does."""
    screens = begun(tmp_path, "-c", SCREENS_IT, HANGS, "60")
    until = time.monotonic() + 60
    while not (tmp_path / "hangs").exists() and time.monotonic() < until:
        time.sleep(0.05)
    screens.send_signal(how)
    assert screens.wait(60) != 0
    while left(tmp_path) and time.monotonic() < until:
        time.sleep(0.05)
    assert left(tmp_path) == []


TRAINS = """
import torch

torch.set_num_threads(1)
model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(20)])
optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
while True:
    optimizer.zero_grad()
    model(torch.randn(8, 64)).square().mean().backward()
    optimizer.step()
"""


def test_a_real_job_is_screened_in_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.py").write_text(TRAINS)
    job = Job("job.py")
    found = Screenings(lambda *made: _arm(job, *made), print).of(["fused-optimizer", "freeze-gc"], (), 120.0)
    assert [one.fix for one in found] == ["fused-optimizer", "freeze-gc"]
    assert found[0].seen == "fused=True in AdamW" and found[1].seen.startswith("froze ")
    assert all(one.faster is not None or one.trouble for one in found)
