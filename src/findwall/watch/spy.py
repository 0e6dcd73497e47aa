"""Where threads are, told by py-spy: it reads the job's memory from outside and never stops it.

`--nonblocking` reads while the job runs on, so a look may find a stack in the middle of a change; such a look
fails or is counted like any other. A look is one short process of py-spy: whatever happens to it, the job
does not notice.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec

from findwall.files import program
from findwall.model.watched import SeenStack, StackFrame
from findwall.watch.job_processes import PROC, owner_of

LOOK_LIMIT_S = 5.0  # of one look: it takes hundredths of a second
SYS_PTRACE = 19  # the capability's number in CapEff
DEEPEST = 200  # frames of a stack that are kept, innermost first

INSTALL = "pip install py-spy"
NOT_INSTALLED = f"py-spy is not installed, so the Python line is unknown. Install it: {INSTALL}."


class _Frame(msgspec.Struct):
    name: str
    filename: str
    line: int


class _Thread(msgspec.Struct):
    os_thread_id: int | None = None
    thread_name: str | None = None
    active: bool = True
    owns_gil: bool = False
    frames: list[_Frame] = []


class ThreadStack(msgspec.Struct, frozen=True):
    """One thread, as one look found it."""

    thread: int | None  # the system's number
    name: str
    stack: SeenStack


class Refused(Exception):  # noqa: N818 - not a fault of the program
    """No look at this process will succeed; the text says why and what to do."""


def find_spy() -> str | None:
    """Where py-spy is: beside this interpreter, or on the path."""
    beside = Path(sys.executable).with_name("py-spy")
    return str(beside) if beside.is_file() and os.access(beside, os.X_OK) else program("py-spy")


def look(spy: str, pid: int) -> list[ThreadStack] | None:
    """The Python threads of a process; None where this look failed and another may not."""
    command = [spy, "dump", "--json", "--nonblocking", "--full-filenames", "--pid", str(pid)]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=LOOK_LIMIT_S,
            check=False,
            env={"PATH": os.environ.get("PATH", ""), "RUST_BACKTRACE": "0"},
            start_new_session=True,  # Ctrl-C is ours
        )
    except subprocess.TimeoutExpired:
        return None
    except OSError as error:
        raise Refused(
            f"py-spy could not be started ({error.strerror}), so the Python line is unknown. "
            f"Install it again: {INSTALL}."
        ) from None
    if done.returncode != 0:
        refusal = why_refused(pid, done.stderr.decode(errors="replace"))
        if refusal:
            raise Refused(refusal)
        return None
    return parse(done.stdout)


def parse(raw: bytes) -> list[ThreadStack] | None:
    """The threads in a dump; None where it is not one."""
    try:
        threads = msgspec.json.decode(raw, type=list[_Thread])
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return [
        ThreadStack(
            one.os_thread_id,
            one.thread_name or "",
            SeenStack(
                tuple(StackFrame(frame.name, frame.filename, frame.line) for frame in one.frames[:DEEPEST]),
                one.owns_gil,
                one.active,
            ),
        )
        for one in threads
    ]


def why_refused(pid: int, said: str, proc: Path = PROC) -> str:
    """What keeps py-spy from looking, and what to do; empty where the next look may succeed."""
    text = said.lower()
    if "permission denied" in text or "operation not permitted" in text or "os error 1)" in text:
        return no_permission(pid, proc)
    if "python version" in text or "unsupported version" in text:
        return (
            "py-spy does not know this Python, so its lines are unknown. Upgrade it: pip install -U py-spy."
        )
    return ""


def no_permission(pid: int, proc: Path = PROC) -> str:
    """Why this process may not read the other's memory, and who may."""
    owner = owner_of(pid, proc)
    start = "The Python line is unknown"
    if owner is not None and owner != os.geteuid() and os.geteuid() != 0:
        return f"{start}: process {pid} is another user's. Run findwall as that user, or with sudo."
    scope = _number(proc / "sys/kernel/yama/ptrace_scope")
    if scope and not _has_capability(proc):
        allow = "sudo sysctl kernel.yama.ptrace_scope=0" if scope < 3 else "a reboot without it"
        return (
            f"{start}: kernel.yama.ptrace_scope is {scope}, so only root may look into processes. "
            f"Run findwall with sudo, or allow it ({allow})."
        )
    return (
        f"{start}: this container may not look into processes. Start it with --cap-add=SYS_PTRACE, or run "
        "findwall on the host with sudo."
    )


def _number(path: Path) -> int:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return 0


def _has_capability(proc: Path) -> bool:
    try:
        status = (proc / "self/status").read_text()
    except OSError:
        return False
    held = next((line.split()[1] for line in status.splitlines() if line.startswith("CapEff:")), "0")
    return bool(int(held, 16) >> SYS_PTRACE & 1)
