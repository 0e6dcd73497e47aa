"""The text of the lines that threads were seen on, as the job has them: from its own files, if no newer."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

from findwall.model.watched import SeenStack
from findwall.watch.job_processes import PROC

LONGEST_TEXT = 400  # characters of a line
LARGEST_FILE = 4_000_000  # bytes: no program that people write is larger
_INSTALLED = re.compile(r"/(?:site-packages|dist-packages|lib/python\d[\d.]*)/|^<")


class Sources:
    """Lines of one process's own files, each file read once."""

    def __init__(self, pid: int, started: int, proc: Path = PROC) -> None:
        self._pid, self._proc = pid, proc
        self._since = _boot_time(proc) + started / os.sysconf("SC_CLK_TCK")
        self._files: dict[str, list[str]] = {}

    def texts(self, stacks: list[SeenStack]) -> dict[str, str]:
        """The lines of the frames inside which each stack was, down to the first of the person's own."""
        found: dict[str, str] = {}
        for stack in stacks:
            for frame in stack.frames:
                if not _INSTALLED.search(frame.file):
                    text = self._line(frame.file, frame.line)
                    if text:
                        found[f"{frame.file}:{frame.line}"] = text
                    break
        return found

    def _line(self, file: str, number: int) -> str:
        if file not in self._files:
            self._files[file] = self._read(file)
        lines = self._files[file]
        return lines[number - 1].strip()[:LONGEST_TEXT] if 0 < number <= len(lines) else ""

    def _read(self, file: str) -> list[str]:
        """Empty where it was edited since the job began: the line is another one then."""
        inside = self._proc / str(self._pid)
        path = inside / "root" / file.lstrip("/") if file.startswith("/") else inside / "cwd" / file
        try:
            status = path.stat()
            if not stat.S_ISREG(status.st_mode):  # /dev/stdin is ours here, and a pipe would never end
                return []
            if status.st_mtime > self._since or status.st_size > LARGEST_FILE:
                return []
            return path.read_text(errors="replace").splitlines()
        except OSError:
            return []


def _boot_time(proc: Path) -> float:
    try:
        rows = (proc / "stat").read_text().splitlines()
        return float(next(row.split()[1] for row in rows if row.startswith("btime")))
    except (OSError, StopIteration, ValueError):
        return 0.0
