"""Whatever text a file holds, no regular expression of the package is kept by it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import jobs
import patterns_at_risk
from patterns_at_risk import AtRisk, endless

FEWEST = 200  # patterns that there are, at least: fewer, and they are not found any more


@pytest.mark.long
def test_no_pattern_is_kept_by_a_text() -> None:
    """In a process of its own, which sees every module compile its patterns."""
    done = subprocess.run(
        [sys.executable, "-m", "patterns_at_risk"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        timeout=jobs.HANG_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout.split()[0]) >= FEWEST


@pytest.mark.parametrize("text", [r"\[(?:\d{1,18}(?:, ?)?)*\]", r"(?:a|ab|b)*c", r" +(?=[*&])"])
def test_patterns_that_would_be_kept_are_told(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import re

    monkeypatch.setattr(patterns_at_risk, "PATTERN_S", 0.5)
    assert "not done" in endless(AtRisk(re.compile(text)), 1 << 18, texts=3)
