from __future__ import annotations

import subprocess
import sys

import pytest

from findwall import cli
from findwall.cli import demo


def test_planted_walls_are_found_in_jobs_that_run_here() -> None:
    pytest.importorskip("torch")
    done = subprocess.run(
        [sys.executable, "-m", "findwall", "demo"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "planted: data / loader-starved: found" in done.stderr
    assert "planted: overhead / host-work: found" in done.stderr
    assert "chatty_logger.py:" in done.stderr  # the line is the job's own


def test_without_torch_a_recorded_trace_is_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "find_spec", lambda name: None)
    assert cli._run(["demo"]) == 0
    shown = capsys.readouterr()
    assert "THE WALL" in shown.out
    assert "torch is not installed" in shown.err


def test_a_wall_that_is_not_found_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "_run", lambda name: ("data", "loader-starved"))
    assert cli._run(["demo"]) == 1
    assert "chatty_logger" in capsys.readouterr().err
