"""`findwall report`: what it prints and where it writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from captures import FIXTURES
from findwall import api, cli
from findwall.report.markdown import to_markdown

TRACE = FIXTURES / "jobs" / "slow_loader.json.gz"


def test_markdown_is_the_verdict_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["report", str(TRACE), "--markdown"]
    assert cli._run(words) == 0
    said = capsys.readouterr().out
    assert said == to_markdown(api.read(TRACE))
    assert cli._run([*words, "-o", "verdict.md", "--export-trace", "step.json"]) == 0
    assert capsys.readouterr().out == ""
    assert (tmp_path / "verdict.md").read_text(encoding="utf-8") == said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step.json", "verdict.md"]


def test_redacted_markdown_names_no_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli._run(["report", str(TRACE), "--markdown", "--redact"]) == 0
    out = capsys.readouterr().out
    assert "slow_loader" not in out and "input-1" in out and "loader-starved" in out
