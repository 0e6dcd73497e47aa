"""A process of ours that starts others for us, so that none of them is the job's child.

A job may wait for any child, or have a handler for their ends: it must meet none of ours. So a helper is
forked off twice before the job's first line, when nobody but us can see it; it belongs to init then. It holds
nothing of the job's, waits at a socket, runs one command at a time, and leaves when the job has left.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import resource
import select
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn, Protocol

LONGEST_S = 300.0  # what runs longer after the job's end is ended; chosen by hand
LOOK_S = 0.02  # between two looks at whether the command has ended
HIGH_FD = 900  # the job gets the numbers for its files that plain python would give it
LENGTH = struct.Struct("!Q")
KILL = b"k"


class Process(Protocol):
    """Of a subprocess.Popen, what is asked of either kind."""

    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def kill(self) -> None: ...


class Helper:
    """This side of the socket."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._identity = _identity(descriptor)

    @property
    def is_there(self) -> bool:
        """The job may have closed all files it does not know, and opened its own under our number."""
        return self._descriptor >= 0 and _identity(self._descriptor) == self._identity

    def ask(
        self, command: list[str], env: Mapping[str, str], cwd: Path, stdout: int, stderr: int
    ) -> Errand | None:
        """Have this run; None if nobody is there to do it."""
        if not self.is_there:
            return None
        message = json.dumps({"command": command, "env": dict(env), "cwd": str(cwd)}).encode()
        nowhere = os.open(os.devnull, os.O_RDWR)
        try:
            files = [file if file >= 0 else nowhere for file in (stdout, stderr)]
            with self.line() as line:
                socket.send_fds(line, [LENGTH.pack(len(message))], files)
                line.sendall(message)
        except OSError:
            return None
        finally:
            os.close(nowhere)
        return Errand(self)

    @contextlib.contextmanager
    def line(self) -> Any:
        """The descriptor as a socket. It is never closed by an object's end: the number may be the job's."""
        line = socket.socket(fileno=self._descriptor)
        try:
            yield line
        finally:
            line.detach()

    def forget(self) -> None:
        """In a forked child: the job's end is not this child's."""
        if self.is_there:
            os.close(self._descriptor)
        self._descriptor = -1


class Errand:
    """One command under way. Speaks as subprocess.Popen does."""

    def __init__(self, helper: Helper) -> None:
        self._helper = helper
        self._code: int | None = None

    def poll(self) -> int | None:
        return self._look(0.0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._look(timeout)
        if code is None:
            raise subprocess.TimeoutExpired("findwall", timeout or 0.0)
        return code

    def kill(self) -> None:
        if self._code is None and self._helper.is_there:
            with contextlib.suppress(OSError), self._helper.line() as line:
                line.sendall(KILL)
            self._look(1.0)

    def _look(self, timeout: float | None) -> int | None:
        if self._code is None:
            if not self._helper.is_there:
                self._code = 1
                return self._code
            with self._helper.line() as line:
                poll = select.poll()  # select() knows only the first 1024 descriptors
                poll.register(line, select.POLLIN)
                if poll.poll(None if timeout is None else timeout * 1e3):
                    answer = line.recv(1)
                    self._code = answer[0] if answer else 1
        return self._code


def send_out() -> Helper | None:
    """Fork the helper off; None where that cannot be."""
    if os.getpid() == 1:
        return None  # orphans come back to us: nothing would be gained
    try:
        ours, theirs = socket.socketpair()
    except OSError:
        return None
    with ours, theirs:
        try:
            child = os.fork()
        except OSError:
            return None
        if child == 0:
            _become_helper(theirs)
        os.waitpid(child, 0)
        try:
            return Helper(fcntl.fcntl(ours, fcntl.F_DUPFD_CLOEXEC, _high()))
        except OSError:
            return None


def _high() -> int:
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return HIGH_FD if soft < 0 else max(3, min(HIGH_FD, soft - 8))


def _identity(descriptor: int) -> tuple[int, int] | None:
    try:
        found = os.fstat(descriptor)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _become_helper(line: socket.socket) -> NoReturn:
    try:
        os.setsid()  # Ctrl-C is the job's
        if os.fork() == 0:
            os.chdir("/")
            _close_all_but(line.fileno())
            _serve(line)
    finally:
        os._exit(0)


def _close_all_but(descriptor: int) -> None:
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        if number != descriptor:
            os.dup2(nowhere, number)
    listed = Path("/proc/self/fd")
    numbers = [int(entry.name) for entry in listed.iterdir()] if listed.is_dir() else list(range(256))
    for number in numbers:
        if number > 2 and number != descriptor:
            with contextlib.suppress(OSError):
                os.close(number)


def _serve(line: socket.socket) -> None:
    while True:
        header, files, _, _ = socket.recv_fds(line, LENGTH.size, 2)
        if len(header) < LENGTH.size or len(files) != 2:
            return
        wanted = json.loads(_receive(line, LENGTH.unpack(header)[0]))
        try:
            code = _run(line, wanted, files)
        except OSError:
            code = 1
        finally:
            for file in files:
                os.close(file)
        line.sendall(bytes([min(max(code, 0), 255) if code >= 0 else 1]))


def _receive(line: socket.socket, length: int) -> bytes:
    parts: list[bytes] = []
    while length > 0:
        part = line.recv(min(length, 1 << 16))
        if not part:
            os._exit(0)
        parts.append(part)
        length -= len(part)
    return b"".join(parts)


def _run(line: socket.socket, wanted: dict[str, Any], files: list[int]) -> int:
    process = subprocess.Popen(
        wanted["command"],
        stdin=subprocess.DEVNULL,
        stdout=files[0],
        stderr=files[1],
        env=wanted["env"],
        cwd=wanted["cwd"],
        start_new_session=True,
    )
    job_left = 0.0
    while process.poll() is None:
        if job_left:
            time.sleep(LOOK_S)
        elif select.select([line], [], [], LOOK_S)[0]:
            message = line.recv(1)
            job_left = 0.0 if message else time.monotonic()
            if message:
                _end(process)
        if job_left and time.monotonic() - job_left > LONGEST_S:
            _end(process)
    if job_left:
        os._exit(0)
    return process.returncode


def _end(process: subprocess.Popen[bytes]) -> None:
    """With all that it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
