"""`findwall run`: which words are findwall's and which the job's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from findwall import cli
from findwall.agent.options import Options
from findwall.cli import run as module


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    calls: list[Any] = []
    monkeypatch.setattr(module, "launch", lambda *arguments: calls.append(arguments))
    return calls


def invoke(*words: str) -> int:
    return CliRunner().invoke(module.command, words).exit_code


def test_everything_after_the_script_is_the_jobs(launched):
    assert invoke("--steps", "5", "train.py", "--steps", "7", "-m", "--help", "--", "x") == 0
    ((target, arguments, is_module, options, effects, judge, _),) = launched
    assert (target, is_module) == ("train.py", False)
    assert arguments == ["--steps", "7", "-m", "--help", "--", "x"]
    assert options == Options(steps=5) and effects.names == [] and judge is None


def test_a_module(launched):
    assert invoke("-m", "pkg.mod", "--lr", "1") == 0
    assert launched[0][:4] == ("pkg.mod", ["--lr", "1"], True, Options())


def test_all_options(launched):
    steps = ["--wait", "3", "--steps", "4", "--trace-steps", "2", "--no-trace", "--memory", "--stop"]
    words = [*steps, "--out", "d", "--json", "x.json", "--brief", "--top", "9", "--probe", "a.py"]
    assert invoke(*words) == 0
    assert launched[0][3] == Options(
        wait=3,
        steps=4,
        trace_steps=2,
        trace=False,
        memory=True,
        stop=True,
        out="d",
        json=str(Path("x.json").absolute()),
        brief=True,
        top=9,
        probe=True,
        verdict=True,
    )


def test_the_document_does_not_go_into_the_jobs_output(launched, capsys):
    assert cli._run(["run", "--json", "-", "a.py"]) == 2
    said = capsys.readouterr().err
    assert "standard output is the job's own" in said
    assert "findwall read --json -" in said
    assert launched == []


def test_wrong_words_are_usage_errors(launched):
    assert invoke() == 2
    assert invoke("--steps", "0", "a.py") == 2
    assert invoke("--stps", "3", "a.py") == 2
    assert launched == []
