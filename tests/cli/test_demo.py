from __future__ import annotations

import contextlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import warm
from findwall import cli
from findwall.cli import demo
from findwall.errors import FindwallError


def test_planted_walls_are_found_here(tmp_path: Path) -> None:
    """All but how much faster the jobs get, and the last act, which tests/cli/test_try.py plays."""
    pytest.importorskip("torch")
    acts = (
        "import sys; sys.executable = sys.argv[1]; from findwall.cli import demo, main; "
        "demo._try = lambda one: None; "
        "demo._time = lambda job, source: 40.0 if source in [one.source for one in demo.PLANTED] else 4.0; "
        "main(['demo'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", acts, warm.program(tmp_path / "python")],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    for one in demo.PLANTED:
        # A machine that is busy with other things may leave no verdict, but never a wrong one.
        told = re.escape(f"planted: {one.wall} / {one.cause}: ") + r"(found|NOT found \(None / None\))\n"
        assert re.search(told, done.stderr), done.stderr
    assert "chatty_logger.py:" in done.stderr  # the line is the job's own
    assert done.returncode == ("NOT found" in done.stderr), done.stderr
    again = re.findall(r"`findwall read (\S+)` shows it again", done.stderr)
    assert len(again) == 2 and all(Path(folder).is_dir() for folder in again)


@pytest.mark.parametrize("one", demo.PLANTED, ids=lambda one: one.job)
def test_a_fix_changes_two_or_three_lines_and_is_a_program(one: demo.Planted) -> None:
    changed = list(demo._changed(one.source, one.repaired))
    assert sum(line.startswith("-") for line in changed) in (1, 2)
    assert sum(line.startswith("+") for line in changed) == 2
    compile(one.repaired, one.job, "exec")


def test_without_torch_a_recorded_trace_is_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "find_spec", lambda name: None)
    assert cli._run(["demo"]) == 0
    shown = capsys.readouterr()
    assert "THE WALL" in shown.out
    assert "torch is not installed" in shown.err


@pytest.fixture
def staged(monkeypatch: pytest.MonkeyPatch) -> dict[str, bool]:
    """Both acts without their jobs: whether the walls are found, and whether it gets faster without them."""
    played = {"found": True, "faster": True}
    monkeypatch.setattr(demo, "find_spec", lambda name: object())
    monkeypatch.setattr(demo, "_try", lambda one: played.update(tried=True))
    monkeypatch.setattr(demo, "_find", lambda one: played["found"] or one.job != "chatty_logger")
    monkeypatch.setattr(
        demo,
        "_time",
        lambda job, source: 40.0 if "torch.tensor(wave)" in source or not played["faster"] else 4.0,
    )
    return played


def test_the_speed_up_is_told_beside_the_lines_that_gave_it(
    staged: dict[str, bool], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "PLANTED", demo.PLANTED[:1])
    assert cli._run(["demo"]) == 0
    shown = capsys.readouterr().err
    assert staged["tried"]
    assert "starved_loader: 40.0 ms → 4.00 ms per step, 10.0 times faster" in shown
    assert "  -        return torch.tensor(wave), index % 10" in shown
    assert "  +        return wave, index % 10" in shown


@pytest.mark.parametrize("code", [0, 1])
def test_the_last_act_is_a_try_of_the_planted_loader(
    code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given: list[list[str]] = []

    def run(command: list[str], *, check: bool) -> subprocess.CompletedProcess[str]:
        assert Path(command[-1]).read_text() == demo.PLANTED[0].source
        given.append(command[1:-1])
        return subprocess.CompletedProcess(command, code)

    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(FindwallError) if code else contextlib.nullcontext():
        demo._try(demo.PLANTED[0])
    assert given == [["-m", "findwall", "try", *demo.TRIED]]
    assert "$ findwall try " in capsys.readouterr().err


def test_a_wall_that_is_not_found_is_a_failure(
    staged: dict[str, bool], capsys: pytest.CaptureFixture[str]
) -> None:
    staged["found"] = False
    assert cli._run(["demo"]) == 1
    assert "not found in: chatty_logger" in capsys.readouterr().err


def test_a_fix_that_gives_nothing_is_a_failure(
    staged: dict[str, bool], capsys: pytest.CaptureFixture[str]
) -> None:
    staged["faster"] = False
    assert cli._run(["demo"]) == 1
    shown = capsys.readouterr().err
    assert "40.0 ms → 40.0 ms per step, NOT faster" in shown
    assert "No faster without its planted wall: starved_loader, chatty_logger" in shown
