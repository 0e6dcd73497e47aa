"""Processes that `try` starts: what ends one ends all that it started.

A process leads a group of its own, but a launcher gives each rank another, and a verdict is worked out in yet
another: so all inherit a variable that nobody else has, and are found by it. One that leaves its parents and
its environment behind, as daemons do, comes to us instead of to init. Where `try` itself is killed, a
watchdog (`watchdog.py`) does the same.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import psutil

from findwall.trial.watchdog import DONE, kill, started, strangers_to

LOOK_S = 0.02  # between two looks at a process
OWN_FOLDER = "findwall-process-"  # its name begins so
# Of a folder to run in: entries in it, and bytes of files, that each process has for itself. Together a small
# part of the time that a process takes to import torch. Chosen by hand.
MOST_ENTRIES, MOST_COPIED = 2_000, 64_000_000
PR_SET_CHILD_SUBREAPER, PR_GET_CHILD_SUBREAPER = 36, 37  # linux/prctl.h
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
    """A new folder in this one for one process to run in, filled with what is there; gone after it. What a
    process writes into its folders, or over the files that were copied, is found by no other process."""
    if parent is None:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix=OWN_FOLDER, dir=parent, ignore_cleanup_errors=True) as name:
        _fill(Path(name).absolute(), Path(parent).absolute())
        yield name


def _fill(own: Path, parent: Path) -> None:
    """With folders of its own and copies of files, the small ones first. The rest are links, through which a
    process reads and writes the original: files beyond what is copied, folders of very many entries, and
    links. What cannot be read is a link too, so that the job says so itself."""
    folders, files, left = [(parent, own)], list[tuple[int, Path, Path]](), MOST_ENTRIES
    for folder, here in folders:  # those inside are added behind: outer ones come first
        found = _entries(folder, None if folder == parent else left)
        if found is None:
            if folder != parent:
                here.symlink_to(folder)
            continue
        left = max(left - len(found), 0)
        here.mkdir(exist_ok=True)
        for one in found:
            path, to = Path(one.path), here / one.name
            if one.is_dir(follow_symlinks=False):
                folders.append((path, to))
            elif one.is_file(follow_symlinks=False):
                files.append((_size(path), path, to))
            else:
                to.symlink_to(path)
    copied = 0
    for size, path, to in sorted(files):
        copied += size
        if copied > MOST_COPIED or not _copied(path, to):
            to.symlink_to(path)


def _entries(folder: Path, most: int | None) -> list[os.DirEntry[str]] | None:
    """Without those of other processes; None: there are more, or it cannot be read."""
    try:
        with os.scandir(folder) as every:
            own = (one for one in every if not one.name.startswith(OWN_FOLDER))
            found = list(islice(own, None if most is None else most + 1))
    except OSError:
        return None
    return found if most is None or len(found) <= most else None


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:  # gone meanwhile
        return 0


def _copied(path: Path, to: Path) -> bool:
    try:
        shutil.copy2(path, to)
    except OSError:
        to.unlink(missing_ok=True)
        return False
    return True


def is_piped_to() -> bool:
    """Whether something waits on standard input that only one process could read."""
    try:
        if not stat.S_ISFIFO(os.fstat(0).st_mode):
            return False
        waiting = fcntl.ioctl(0, termios.FIONREAD, bytes(4))
    except OSError:
        return False
    return any(waiting)


@contextlib.contextmanager
def overseen(variable: str, value: str, *folders: str | None) -> Iterator[None]:
    """While one process runs, and no other of a trial: whatever comes of it ends with it, also where we are
    killed. `folders` are gone then, too. Where the system cannot do that, the rest is as ever."""
    watchdog = _watchdog(variable, value, [one for one in folders if one is not None])
    since = started(watchdog.pid) if watchdog is not None else -1
    before = _adopt_orphans(True)
    try:
        yield
    finally:
        if watchdog is not None:
            _end_orphans(since, watchdog.pid)
        if before is False:
            _adopt_orphans(False)
        if watchdog is not None:
            _dismiss(watchdog)


def _watchdog(variable: str, value: str, folders: list[str]) -> subprocess.Popen[bytes] | None:
    if not Path("/proc/self/stat").exists():
        return None
    words = (str(os.getpid()), variable, value, *folders)
    with contextlib.suppress(OSError):
        return subprocess.Popen(
            [sys.executable, "-I", "-S", str(Path(__file__).with_name("watchdog.py")), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )
    return None


def _dismiss(watchdog: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(OSError):
        watchdog.communicate(DONE)


def _adopt_orphans(on: bool) -> bool | None:
    """Be the one that orphans below us come to; whether that was so before, None where it cannot be."""
    try:
        prctl = ctypes.CDLL(None).prctl
        before = ctypes.c_int()
        if prctl(PR_GET_CHILD_SUBREAPER, ctypes.byref(before), 0, 0, 0) != 0:
            return None
        if prctl(PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(on), 0, 0, 0) != 0:
            return None
    except (OSError, AttributeError):  # another system
        return None
    return bool(before.value)


def _end_orphans(since: int, watchdog: int) -> None:
    """What came to us, and did not before. It is buried, too: nobody else would."""
    for _ in range(PASSES):
        found = list(strangers_to(os.getpid(), since, watchdog))
        kill(found)
        for pid in found:
            with contextlib.suppress(OSError):  # below another one that is ours: it comes to us next
                os.waitpid(pid, 0)
        if not found:
            return


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
