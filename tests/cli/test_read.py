from __future__ import annotations

import errno
import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest

import findwall
from findwall import cli
from findwall.cli.around import progress
from findwall.model.diagnosis import Diagnosis, from_json

DOCUMENTS = Path(__file__).parents[1] / "fixtures" / "documents"


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What the command asked of `findwall.api.read`, which answers with a hand-written document."""
    asked: list[dict[str, Any]] = []

    def read(paths: list[str], **options: Any) -> Diagnosis:
        asked.append({"paths": paths, **options})
        return from_json((DOCUMENTS / "full.json").read_bytes())

    api = types.ModuleType("findwall.api")
    api.read = read  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "findwall.api", api)
    monkeypatch.setattr(findwall, "api", api, raising=False)
    return asked


def test_the_view_goes_to_stdout(calls: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli._run(["read", "a.json", "b.json", "--step-ms", "41.3", "--ceilings", "c.json"]) == 0
    out, err = capsys.readouterr()
    assert "THE WALL: compute / misaligned-shapes" in out
    assert err == ""
    assert "\x1b" not in out
    asked = {"paths": ["a.json", "b.json"], "step_ms": 41.3, "ceilings": "c.json", "progress": None}
    others = dict.fromkeys(("gpu", "max_memory", "what_if", "ncu", "execution", "ray", "baseline"))
    assert calls == [{**asked, **others}]


def test_the_budget_for_reading_is_handed_on(calls: list[dict[str, Any]]) -> None:
    assert cli._run(["read", "a.json", "--max-memory", "2G"]) == 0
    assert calls[0]["max_memory"] == 2 << 30
    assert cli._run(["read", "a.json", "--max-memory", "lots"]) == 2


def test_what_a_person_asks_about_is_handed_on(calls: list[dict[str, Any]]) -> None:
    assert cli._run(["read", "a.json", "--what-if", "loader-workers=4,pin-memory"]) == 0
    assert calls[0]["what_if"] == "loader-workers=4,pin-memory"


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("sdpa", "- sdpa: about 13.7 ms (12."),
        ("sdpa,pin-memory", "- pin-memory: nothing is copied to the device in the step"),
        ("loader-workers=4", "- loader-workers: the device waits only 0.0 ms per step for the loader"),
    ],
)
def test_what_a_person_asks_about_is_answered_below_the_verdict(
    capsys: pytest.CaptureFixture[str], asked: str, said: str
) -> None:
    trace = str(DOCUMENTS.parent / "jobs" / "bias_attention.json.gz")
    assert cli._run(["read", trace, "--step-ms", "33.06", "--what-if", asked, "--brief"]) == 0
    out = capsys.readouterr().out
    assert out.index("THE WALL") < out.index("what if") < out.index(said) < out.index("try first")


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("sdp", "There is no fix called 'sdp'.\n  Did you mean sdpa?"),
        ("sdpa=2", "'sdpa=2' is not a fix with a number of at least 1."),
        ("", "No fix is named."),
    ],
)
def test_what_cannot_be_asked_is_wrong_usage(
    capsys: pytest.CaptureFixture[str], asked: str, said: str
) -> None:
    trace = str(DOCUMENTS.parent / "jobs" / "bias_attention.json.gz")
    assert cli._run(["read", trace, "--what-if", asked]) == 2
    out, err = capsys.readouterr()
    assert out == "" and said in err


def test_what_cannot_be_asked_is_refused_before_anything_is_read(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli._run(["read", "no_such_trace.json", "--what-if", "sdp"]) == 2
    assert "There is no fix called" in capsys.readouterr().err


def test_without_a_device_in_the_trace_what_is_asked_is_not_known(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    op = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1.0, "dur": 5.0}
    (tmp_path / "trace.json").write_text(json.dumps({"traceEvents": [op]}))
    assert cli._run(["read", str(tmp_path / "trace.json"), "--what-if", "tf32"]) == 0
    assert "What tf32 would give is not known" in " ".join(capsys.readouterr().out.split())


def test_brief_is_the_verdict_and_what_to_try(
    calls: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli._run(["read", "a.json", "--brief"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("┏━ THE WALL")
    assert "try first" in out
    assert "share" not in out


def test_top_adds_the_table(calls: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli._run(["read", "a.json", "--top", "3"]) == 0
    shown, table = capsys.readouterr().out.split("op or kernel")
    assert "THE WALL" in shown
    assert len(table.splitlines()) <= 1 + 3 + 1
    assert cli._run(["read", "a.json", "--top", "0"]) == 2


def test_json_to_stdout_is_all_there_is(
    calls: list[dict[str, Any]], capfd: pytest.CaptureFixture[str]
) -> None:
    assert cli._run(["read", "a.json", "--json", "-"]) == 0
    out, err = capfd.readouterr()
    assert json.loads(out)["schema"] == "findwall/1"
    assert err == ""


def test_json_to_a_file_comes_with_the_view(
    calls: list[dict[str, Any]], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert cli._run(["read", "a.json", "--json", str(tmp_path / "out.json")]) == 0
    assert "THE WALL" in capsys.readouterr().out
    assert json.loads((tmp_path / "out.json").read_text())["wall"]["wall"] == "compute"


def test_an_unwritable_file_does_not_cost_the_answer(
    calls: list[dict[str, Any]], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert cli._run(["read", "a.json", "--json", str(tmp_path / "no" / "out.json")]) == 2
    out, err = capsys.readouterr()
    assert "THE WALL" in out
    assert err.startswith("findwall: cannot write")


@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "-inf"])
def test_a_step_time_that_is_none_is_refused(
    calls: list[dict[str, Any]], capsys: pytest.CaptureFixture[str], value: str
) -> None:
    assert cli._run(["read", "a.json", f"--step-ms={value}"]) == 2
    assert "is not a step time" in capsys.readouterr().err
    assert calls == []


def test_no_bar_where_nobody_sees_it() -> None:
    with progress.progress_bar("reading") as update:
        assert update is None


def test_a_bar_after_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[tuple[int, int]] = []
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(
        progress, "_start", lambda _label, _stack: lambda done, total: shown.append((done, total))
    )
    now = 100.0
    with progress.progress_bar("reading", clock=lambda: now) as update:
        assert update is not None
        update(1, 10)
        now += 0.9
        update(2, 10)
        assert shown == []
        now += 0.2
        update(3, 10)
        update(4, 10)
    assert shown == [(3, 10), (4, 10)]


def test_the_bar_itself_draws(capsys: pytest.CaptureFixture[str]) -> None:
    from contextlib import ExitStack

    with ExitStack() as stack:
        update = progress._start("reading", stack)
        update(50, 100)
        update(100, 100)
    assert capsys.readouterr().out == ""


def test_a_full_disk_is_no_bug(
    calls: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full() -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(cli, "_flush", full)
    assert cli._run(["read", "a.json"]) == 1
    err = capsys.readouterr().err
    assert "the disk is full" in err
    assert "bug" not in err
