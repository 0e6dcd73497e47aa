"""Run a command and watch what its whole process tree takes: wall time and peak memory.

Memory is PSS, so a page shared by several of its processes counts once.
"""

from __future__ import annotations

import os
import resource
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

_EVERY_S = 0.05


@dataclass(frozen=True)
class Measured:
    """What one run took."""

    seconds: float
    cpu_seconds: float  # of all its processes: what remains comparable on a busy machine
    peak_bytes: int
    exit_code: int
    output: str


def measure(command: list[str], timeout_s: float | None = None) -> Measured:
    """Run to the end, sampling the tree's memory."""
    began, cpu_before = time.perf_counter(), _children_cpu()
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=_as_installed()
    )
    watcher = _Watcher(process.pid)
    watcher.start()
    try:
        output, _ = process.communicate(timeout=timeout_s)
        seconds = time.perf_counter() - began
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        seconds, output = float("inf"), ""
    watcher.stop()
    return Measured(seconds, _children_cpu() - cpu_before, watcher.peak, process.returncode, output)


def _as_installed() -> dict[str, str]:
    """With compiled modules from the second run on, as pip leaves them: a checkout that may not write them
    compiles its source anew each time."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def _children_cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


class _Watcher(threading.Thread):
    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._pid, self._done, self.peak = pid, threading.Event(), 0

    def run(self) -> None:
        while not self._done.wait(_EVERY_S):
            self.peak = max(self.peak, _tree_pss(self._pid))

    def stop(self) -> None:
        self._done.set()
        self.join()


def _tree_pss(pid: int) -> int:
    try:
        root = psutil.Process(pid)
        pids = [pid, *(child.pid for child in root.children(recursive=True))]
    except psutil.Error:
        return 0
    return sum(map(_pss, pids))


def _pss(pid: int) -> int:
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:  # it ended in between
        pass
    return 0
