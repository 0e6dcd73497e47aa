"""What the README shows is what the command prints."""

from __future__ import annotations

import difflib
import re
import shlex
import textwrap
from pathlib import Path

import pytest
from click.testing import CliRunner

from findwall.cli.read import command

ROOT = Path(__file__).parents[1]
SHOWN = re.compile(
    r"^ {4}findwall read (?P<words>.+)$\s+<!-- output:begin -->\n(?P<output>.+?)<!-- output:end -->",
    re.MULTILINE | re.DOTALL,
)


def test_the_sample_output_is_the_real_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a change of the view: put the new output between the README's output marks."""
    shown = SHOWN.search((ROOT / "README.md").read_text(encoding="utf-8"))
    assert shown is not None, "the README has no command with its output"
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "80")
    result = CliRunner().invoke(command, shlex.split(shown["words"]))
    assert result.exit_code == 0
    written, printed = textwrap.dedent(shown["output"]).splitlines(), result.stdout.splitlines()
    assert written == printed, "\n".join(difflib.unified_diff(written, printed, "README", "findwall", n=1))
