"""What a command leaves behind: its processes and temporary folders, found by a mark that all inherit."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import psutil

MARK = "FINDWALL_TEST_MARK"


def begun(folder: Path, *words: str) -> subprocess.Popen[str]:
    """A command whose processes can all be found again."""
    (folder / "temporary").mkdir()
    environ = {**os.environ, MARK: str(folder), "TMPDIR": str(folder / "temporary")}
    out = (folder / "out").open("w")
    command = [sys.executable, *words]
    return subprocess.Popen(command, stdout=out, stderr=subprocess.PIPE, text=True, env=environ, cwd=folder)


def left(folder: Path) -> list[str]:
    """Processes and folders that are still there."""
    found = [str(path) for path in (folder / "temporary").glob("findwall-*")]
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            is_ours = process.environ().get(MARK) == str(folder) or process.cwd() == str(folder)
            if is_ours and process.status() != psutil.STATUS_ZOMBIE:
                found.append(" ".join(process.cmdline()))
    return found
