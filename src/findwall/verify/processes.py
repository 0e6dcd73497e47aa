"""Processes that `try` starts: what ends one ends all that it started.

A process leads a group of its own, but a launcher gives each rank another, and a verdict is worked out in yet
another: so all inherit a variable that nobody else has, and are found by it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import stat
import subprocess
import tempfile
import termios
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import psutil

LOOK_S = 0.02  # between two looks at a process
OWN_FOLDER = "findwall-process-"  # its name begins so
PASSES = 5  # over all processes, until none is left: one may start another meanwhile. Chosen by hand.


class Process(Protocol):
    """Of a subprocess.Popen, what is needed here. Its process group has its own number."""

    pid: int

    def poll(self) -> int | None: ...


@contextlib.contextmanager
def same_input() -> Iterator[int]:
    """Standard input for one of many processes that are to read the same: the file that this one was given,
    from where it stands there. What can be read only once, a pipe or a terminal, is empty for all."""
    try:
        file = os.open("/proc/self/fd/0", os.O_RDONLY) if stat.S_ISREG(os.fstat(0).st_mode) else None
        place = os.lseek(0, 0, os.SEEK_CUR) if file is not None else 0
    except OSError:  # closed, or no such system
        file = None
    if file is None:
        yield subprocess.DEVNULL
        return
    try:
        os.lseek(file, place, os.SEEK_SET)
        yield file
    finally:
        os.close(file)


@contextlib.contextmanager
def own_folder(parent: str | None) -> Iterator[str | None]:
    """A new folder in this one for one process to run in, with links to what is there; gone after it. What a
    process leaves behind is found by no other."""
    if parent is None:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix=OWN_FOLDER, dir=parent, ignore_cleanup_errors=True) as name:
        for path in Path(parent).absolute().iterdir():
            if not path.name.startswith(OWN_FOLDER):
                Path(name, path.name).symlink_to(path)
        yield name


def is_piped_to() -> bool:
    """Whether something waits on standard input that only one process could read."""
    try:
        if not stat.S_ISFIFO(os.fstat(0).st_mode):
            return False
        waiting = fcntl.ioctl(0, termios.FIONREAD, bytes(4))
    except OSError:
        return False
    return any(waiting)


def end(process: Process, variable: str, value: str) -> None:
    """The process, and all that have this in their environment."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    while process.poll() is None:
        time.sleep(LOOK_S / 10)
    end_marked(variable, value)


def end_marked(variable: str, value: str) -> None:
    for _ in range(PASSES):
        found = [one for one in psutil.process_iter() if _is_marked(one, variable, value)]
        for one in found:
            with contextlib.suppress(psutil.Error):
                one.kill()
        if not found:
            return
        psutil.wait_procs(found, timeout=1.0)


def _is_marked(process: psutil.Process, variable: str, value: str) -> bool:
    try:
        return process.pid != os.getpid() and bool(process.environ().get(variable) == value)
    except (psutil.Error, OSError):  # gone, a zombie, or another person's
        return False


class Stop:
    """Ctrl-C and the like, noted instead of raised: an exception could fall between a start and its end.

    A SIGTERM ends the process as it would have, once what it started is gone.
    """

    def __init__(self) -> None:
        self.asked = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Stop:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._note)
        return self

    def _note(self, number: int, _frame: object) -> None:
        self.asked = self.asked or number

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self.asked == signal.SIGTERM:
            signal.raise_signal(signal.SIGTERM)
