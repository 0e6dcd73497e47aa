"""The processes of a job, from /proc: its launcher, its ranks, their loader workers.

Of a process's environment two names are read, RANK and LOCAL_RANK, and nothing else is kept.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

import msgspec

from findwall.errors import InputError

PROC = Path("/proc")
RANK_NAMES = (b"RANK", b"LOCAL_RANK")  # the first that is there is the rank
# Mapped by every process that has torch in it, whatever its version; then what only GPU jobs open.
_TORCH = re.compile(r"/libtorch_(?:cpu|python)\.so|/libtorch\.so")
_GPU_NODE = re.compile(r"/dev/nvidia\d+$|/dev/kfd$")
_GPU_MAPPED = re.compile(r"/dev/nvidia\d+\b|/dev/kfd\b")
_PYTHON = re.compile(r"(?:pypy|python)[0-9.]*t?$")
_PYTHON_LIBRARY = re.compile(r"/libpython[0-9.]+[a-z]*\.so")
_DIGITS = 9  # of a rank, at most
# Processes beside a job that never train: they only hold things for others.
_HOLDERS = ("resource_tracker", "compile_worker", "forkserver", "semaphore_tracker")


class Process(msgspec.Struct, frozen=True):
    """One process of the job's tree. None: this user may not see it."""

    pid: int
    parent: int
    words: tuple[str, ...]  # its command line
    name: str
    is_python: bool
    has_torch: bool | None
    has_gpu: bool | None  # it has a GPU's device file open
    rank: int | None
    state: str  # "R", "S", "T" and so on
    started: int  # ticks since boot: a number that is given to another process has another start
    local_rank: int | None = None  # torchrun and its like give it to ranks alone; RANK may be the machine's

    @property
    def holds_things(self) -> bool:
        return any(holder in word for word in self.words for holder in _HOLDERS)


def root_process(pid: int, proc: Path = PROC) -> Process:
    """The process a person named; an error of one line where that cannot be watched."""
    if not proc.is_dir():
        raise InputError("findwall watch needs Linux: there is no /proc here", "Use `findwall run` instead.")
    found = look_at(pid, proc)
    if found is None or found.state in ("Z", "X"):
        raise InputError(
            f"there is no process {pid}" if found is None else f"process {pid} has ended",
            "`pgrep -af python` lists what runs here; in a container, use the number it has there.",
        )
    return found


def refuse_foreign(root: Process, processes: list[Process]) -> None:
    """An error where there is no Python at all to watch."""
    if not any(one.is_python for one in processes):
        raise InputError(
            f"process {root.pid} ({root.name}) is not Python, and has started none",
            "Name the process that trains, or its launcher: `pgrep -af python` lists them.",
        )


def tree(root: Process, known: Iterable[Process] = (), proc: Path = PROC) -> list[Process]:
    """The process and all that came from it, parents before children.

    `known`: who was seen before. What such a one has loaded is not asked again once it is all there: reading
    the map of a large process makes it wait for a moment.
    """
    settled = {one.pid: one for one in known if one.has_torch and (one.has_gpu or one.rank is not None)}
    children: dict[int, list[int]] = {}
    for pid in _numbers(proc):
        parent = _parent(pid, proc)
        if parent is not None:
            children.setdefault(parent, []).append(pid)
    found, asked = [], [root.pid]
    while asked:
        pid = asked.pop(0)
        if pid == os.getpid() and pid != root.pid:
            continue  # whoever watches the shell it was typed in does not watch itself
        before = settled.get(pid)
        one = before if before is not None and is_alive(before, proc) else look_at(pid, proc)
        if one is not None:
            found.append(one)
            asked += children.get(pid, [])
    return found or [root]


def look_at(pid: int, proc: Path = PROC) -> Process | None:
    """One process as it is now; None if there is none."""
    folder = proc / str(pid)
    try:
        stat = (folder / "stat").read_text(errors="replace")
        words = (folder / "cmdline").read_bytes()
    except OSError:
        return None
    name, _, rest = stat.partition("(")[2].rpartition(")")
    fields = rest.split()
    spoken = tuple(word.decode(errors="replace") for word in words.rstrip(b"\0").split(b"\0"))
    maps, numbers = _maps(folder), _rank_numbers(folder)
    return Process(
        pid=pid,
        parent=int(fields[1]),
        words=spoken if spoken != ("",) else (),
        name=name,
        is_python=_is_python(folder, name, spoken, maps),
        has_torch=None if maps is None else bool(_TORCH.search(maps)),
        has_gpu=_has_gpu(folder, maps),
        rank=_first_number(numbers, RANK_NAMES),
        local_rank=numbers.get(RANK_NAMES[-1]),
        state=fields[0],
        started=int(fields[19]),
    )


def is_alive(process: Process, proc: Path = PROC) -> bool:
    """Whether that very process still runs."""
    return state_of(process, proc) not in ("", "Z", "X")


def state_of(process: Process, proc: Path = PROC) -> str:
    """ "R", "S", "T" and so on; empty where there is no such process any more."""
    try:
        fields = (proc / str(process.pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return ""
    return fields[0] if int(fields[19]) == process.started else ""


def ranks_of(processes: list[Process]) -> list[Process]:
    """The processes that train, told by what is known before any stack is seen.

    A launcher hands RANK to the ranks, and they to their workers. Without it, whoever has torch and is no
    child of such a one; and children with a GPU of their own.
    """
    pythons = [one for one in processes if one.is_python and not one.holds_things]
    able = [one for one in pythons if one.has_torch is not False]
    if not able:
        return pythons[:1]  # torch may be loaded later, or never
    by_pid = {one.pid: one for one in able}
    placed = [one for one in able if one.local_rank is not None]
    named = _named(placed or [one for one in able if one.rank is not None])
    if named:
        return sorted(named, key=lambda one: (one.rank or 0, one.pid))
    on_gpu = [one for one in able if one.has_gpu]
    children = [one for one in on_gpu if one.parent in by_pid]
    if len(children) > 1 and not any(by_pid[one.parent].has_gpu for one in children):
        return children
    first = [one for one in able if one.parent not in by_pid]
    # A forked worker inherits its parent's open files, so of a family with GPUs the eldest trains.
    return [one for one in on_gpu if one.parent not in {other.pid for other in on_gpu}] or first


def helpers_of(rank: Process, processes: list[Process], ranks: list[Process]) -> list[Process]:
    """The Python processes below a rank that are no ranks: its loader workers most of all."""
    known = {one.pid for one in ranks}
    below, found = {rank.pid}, []
    for one in processes:  # parents come first
        if one.parent in below and one.pid not in known and one.is_python and not one.holds_things:
            below.add(one.pid)
            found.append(one)
    return found


def owner_of(pid: int, proc: Path = PROC) -> int | None:
    """The user whose process it is."""
    try:
        return (proc / str(pid)).stat().st_uid
    except OSError:
        return None


def _named(numbered: list[Process]) -> list[Process]:
    """Those that did not get their number from a parent that is a rank itself."""
    of_pid = {one.pid: one.rank for one in numbered}
    return [one for one in numbered if one.parent not in of_pid or of_pid[one.parent] != one.rank]


def _numbers(proc: Path) -> list[int]:
    return sorted(int(path.name) for path in proc.iterdir() if path.name.isdigit())


def _parent(pid: int, proc: Path) -> int | None:
    try:
        return int((proc / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return None


def _maps(folder: Path) -> str | None:
    try:
        return (folder / "maps").read_text(errors="replace")
    except OSError:
        return None


def _is_python(folder: Path, name: str, words: tuple[str, ...], maps: str | None) -> bool:
    """By its program, else by its name: a program that embeds Python has its library mapped."""
    try:
        program = str((folder / "exe").readlink())
    except OSError:
        program = words[0] if words else name
    if _PYTHON.match(Path(program.removesuffix(" (deleted)")).name):
        return True
    return maps is not None and bool(_PYTHON_LIBRARY.search(maps))


def _has_gpu(folder: Path, maps: str | None) -> bool | None:
    """By its open files, or by what of a device it has in its memory."""
    if maps is not None and _GPU_MAPPED.search(maps):
        return True
    try:
        files = list((folder / "fd").iterdir())
    except OSError:
        return None
    for file in files:
        try:
            if _GPU_NODE.search(str(file.readlink())):
                return True
        except OSError:
            continue
    return False


def _rank_numbers(folder: Path) -> dict[bytes, int]:
    """What a launcher told the process: of its environment these names and nothing else."""
    try:
        entries = (folder / "environ").read_bytes().split(b"\0")
    except OSError:
        return {}
    found: dict[bytes, int] = {}
    for entry in entries:
        name, _, value = entry.partition(b"=")
        if name in RANK_NAMES and value.isdigit() and len(value) <= _DIGITS:
            found.setdefault(name, int(value))
    return found


def _first_number(numbers: dict[bytes, int], names: tuple[bytes, ...]) -> int | None:
    return next((numbers[name] for name in names if name in numbers), None)
