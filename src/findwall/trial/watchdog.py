"""What is left when `try` itself is killed: a small process that clears it away.

It runs this file alone, in a bare interpreter, while one process of a trial does. It knows that process and
all that comes of it by the variable that they inherit, and by being seen below `try` since it began; whoever
is neither is not touched. Where the system has no /proc, it does nothing.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import time

LOOK_S = 0.5  # between two looks at who is there
PASSES = 20  # over all that are left: one may start another meanwhile
DONE = b"done"
OWN = "findwall-"  # how the names of folders begin that may be taken away
_AFTER_NAME = {"state": 0, "session": 3, "started": 19}  # places in /proc/PID/stat behind the name


def fact(pid: int, name: str) -> str | None:
    """Of a process, as the system writes it; None where it is gone or a zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else fields[_AFTER_NAME[name]].decode()


def started(pid: int) -> int:
    """When, in the system's ticks: with it, a number names one process for good. -1: it is gone."""
    found = fact(pid, "started")
    return -1 if found is None else int(found)


def below(pid: int) -> list[int]:
    """All that a process has started, and what these have."""
    found = list[int]()
    waiting = [pid]
    while waiting:
        one = waiting.pop()
        try:
            tasks = os.listdir(f"/proc/{one}/task")  # noqa: PTH208 - a bare interpreter starts quicker
        except OSError:
            continue
        for task in tasks:
            try:
                with open(f"/proc/{one}/task/{task}/children", "rb") as file:
                    children = [int(word) for word in file.read().split()]
            except OSError:
                continue
            found += children
            waiting += children
    return found


def strangers_to(parent: int, since: int, apart: int) -> dict[int, int]:
    """Below a process, in sessions of their own and not from before: with when each started. `apart` is none
    of them. What a program starts for itself is in its own session."""
    session = fact(parent, "session")
    found = {pid: started(pid) for pid in below(parent) if pid != apart}
    return {
        pid: at for pid, at in found.items() if at >= since and fact(pid, "session") not in (None, session)
    }


def marked(variable: str, value: str) -> list[int]:
    """All processes that have this in their environment."""
    found, wanted = [], f"{variable}={value}".encode()
    for name in os.listdir("/proc"):  # noqa: PTH208 - as above
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                if wanted in file.read().split(b"\0") and started(int(name)) >= 0:
                    found.append(int(name))
        except OSError:  # gone, or another person's
            continue
    return found


def kill(pids: list[int]) -> None:
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            continue


def clear(seen: dict[int, int], variable: str, value: str, folders: list[str]) -> None:
    for _ in range(PASSES):
        left = [pid for pid, at in seen.items() if started(pid) == at] + marked(variable, value)
        if not left:
            break
        kill(left)
        time.sleep(LOOK_S / 10)
    for folder in folders:
        if os.path.basename(folder).startswith(OWN) and not os.path.islink(folder):  # noqa: PTH114, PTH119
            shutil.rmtree(folder, ignore_errors=True)


def main(parent: int, variable: str, value: str, *folders: str) -> None:
    own, seen, said = os.getpid(), dict[int, int](), b""
    since = started(own)
    while not select.select([0], [], [], LOOK_S)[0]:
        seen.update(strangers_to(parent, since, own))
    said = os.read(0, len(DONE))
    if said != DONE:
        clear(seen, variable, value, list(folders))


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
