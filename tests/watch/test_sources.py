"""The text of the lines that a job was seen on."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from findwall.model.watched import SeenStack, StackFrame
from findwall.watch.seen_lines import Sources

BOOT, STARTED_TICKS = 1_000_000, 100
LIBRARY = StackFrame("forward", "/opt/env/lib/python3.11/site-packages/torch/nn/modules/linear.py", 1)


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """A process whose root is a folder: what it calls /job/train.py lies in there."""
    (tmp_path / "stat").write_text(f"cpu 1 2 3\nbtime {BOOT}\n")
    (tmp_path / "7/root/job").mkdir(parents=True)
    script = tmp_path / "7/root/job/train.py"
    script.write_text("import torch\n    total += loss.item()\n")
    os.utime(script, (BOOT - 10, BOOT - 10))
    return tmp_path


def texts(proc: Path, line: int) -> dict[str, str]:
    stack = SeenStack((LIBRARY, StackFrame("main", "/job/train.py", line)), False, True)
    return Sources(7, STARTED_TICKS, proc).texts([stack])


def test_the_line_is_read_where_the_job_sees_it(proc: Path) -> None:
    assert texts(proc, 2) == {"/job/train.py:2": "total += loss.item()"}


def test_a_line_that_is_not_there_is_unknown(proc: Path) -> None:
    assert texts(proc, 9) == {} and texts(proc / "nothing", 2) == {}


def test_a_file_edited_since_the_job_began_says_nothing(proc: Path) -> None:
    os.utime(proc / "7/root/job/train.py", (BOOT + 3600, BOOT + 3600))
    assert texts(proc, 2) == {}
