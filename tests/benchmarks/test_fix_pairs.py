"""The pairs of jobs and fixes that are measured: enough, named, runnable, and written as others read them."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from captures import FIXTURES
from findwall.trial.arms_in_turn import Arm, Outcome, Plan, Sample, Trial, run_trial

ROOT = Path(__file__).resolve().parents[2] / "benchmarks"


def loaded(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PAIRS = loaded("fix_pairs")
FIX_OF: dict[str, str] = loaded("fix_names").FIX_OF
RECORDED = sorted(path.name.removesuffix(".json.gz") for path in (FIXTURES / "jobs").glob("*.json.gz"))


def test_there_are_enough_pairs_of_recorded_jobs() -> None:
    fixes = {name: PAIRS.declared(ROOT / "zoo" / f"{name}.py") for name in RECORDED}
    assert sum(len(of) >= 3 for of in fixes.values()) >= 14
    assert sum(len(of) for of in fixes.values()) >= 45


def test_every_fix_of_a_recorded_job_is_one_of_findwalls() -> None:
    for name in RECORDED:
        assert set(PAIRS.declared(ROOT / "zoo" / f"{name}.py")) <= set(FIX_OF), name


def test_the_most_telling_jobs_come_first_and_none_is_left_out() -> None:
    names = PAIRS.job_names()
    assert tuple(names[: len(PAIRS.TELLING)]) == PAIRS.TELLING
    assert set(RECORDED) <= set(names)
    assert len(names) == len(set(names))


def test_every_fix_that_needs_no_compiler_takes_a_step_on_the_cpu() -> None:
    """Those that compile are tried by `fix_pairs.py --size cpu`: a compiler is not everywhere."""
    code = """
import importlib, sys, torch
import fix_pairs
sys.path.insert(0, str(fix_pairs.ZOO))
torch.set_num_threads(1)
for name in sys.argv[1:]:
    try:
        job = importlib.import_module(name)
    except ImportError as missing:
        assert missing.name in ("accelerate",), missing
        continue
    for fix in [None, *job.FIXES]:
        if not fix_pairs.compiles(fix or "") and fix not in ("workers8", "workers12", "workers16"):
            job.make("cpu", fix)()
            print(name, fix)
"""
    jobs = [name for name in RECORDED if name != "changing_lengths"]  # it compiles by itself
    path = os.pathsep.join([str(ROOT), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", code, *jobs],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert len(done.stdout.splitlines()) >= 45


def test_a_forked_arm_runs_its_script_as_python_would(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("STEP = 7.5\n")
    script = tmp_path / "job.py"
    script.write_text(
        "import os, sys\nfrom beside import STEP\n"
        "assert __name__ == '__main__' and sys.argv[1:] == ['--size', 'cpu']\n"
        "assert os.environ['CHANGED'] == '1'\n"
        "print('mean step ms', STEP)\n"
    )
    arm = Arm("a", (sys.executable, str(script), "--size", "cpu"), {"CHANGED": "1"})
    bad = tmp_path / "bad.py"
    bad.write_text("raise SystemExit('torch.OutOfMemoryError')\n")
    broken = Arm("broken", (sys.executable, str(bad)))
    trial = run_trial([arm, broken], Plan(rounds=2, start=PAIRS.forked))
    assert trial.arms["a"].runs_ms == [7.5, 7.5], trial.arms["a"].failures
    assert [one.trouble for one in trial.arms["broken"].failures] == ["out-of-memory"] * 2
    assert "CHANGED" not in os.environ


def test_a_row_says_steps_speedups_and_what_failed() -> None:
    plain = Outcome("plain", [Sample(turn, 1.0, step_ms) for turn, step_ms in enumerate((10.0, 10.1, 9.9))])
    fixed = Outcome("fused", [Sample(turn, 1.0, step_ms) for turn, step_ms in enumerate((5.0, 5.1, 4.9))])
    row = PAIRS.job_row(Trial({"plain": plain, "fused": fixed, "compile": Outcome("compile", [])}))
    assert row["step_ms"] == 10.0
    assert row["fixes"]["fused"]["speedup"] == 2.0
    assert row["fixes"]["fused"]["low"] < 2.0 < row["fixes"]["fused"]["high"]
    assert row["fixes"]["compile"]["step_ms"] is None
    assert json.loads(json.dumps(row)) == row


@pytest.mark.parametrize("name", PAIRS.TELLING)
def test_arms_are_the_plain_job_and_each_fix(name: str) -> None:
    options = type("Options", (), {"size": "cpu", "seconds": 1.0})()
    arms = PAIRS.arms_of(name, options)
    assert [arm.name for arm in arms] == ["plain", *PAIRS.declared(ROOT / "zoo" / f"{name}.py")]
    assert "--fix" not in arms[0].argv
