"""Other people's work on the CPUs: how many cores it kept busy between two looks.

The system's own totals less those of this process and its children: two small reads, where a scan of all
processes would cost milliseconds. Where the system does not tell, nothing is claimed.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep

from findwall.model.catalogue import MAJORITY_SHARE, MENTION_SHARE
from findwall.model.machine import CONTENDED, CpuUse, Finding
from findwall.units import format_share

SHORTEST_WATCH_S = 0.2  # the totals count hundredths of a second
WATCHED_S = 0.5


@dataclass(frozen=True, slots=True)
class Look:
    """CPU seconds since some beginning, at one moment."""

    at: float
    cores: int  # that this process may use
    busy: float  # spent on them by anyone
    own: float  # spent by this process and its children
    children: dict[str, float | None]  # by each child, or in line for a core; None: that nobody counts here
    thread: int  # the calling one
    in_line: float | None  # it could have run and had no core
    system: float = 0.0  # of this process's own seconds, those in the system's code
    faults: int = 0  # pages that this process was given without reading a disk


def look(root: Path = Path("/")) -> Look | None:
    """The totals now; None where this system does not tell them."""
    thread = threading.get_native_id()
    try:
        cores, busy = _totals((root / "proc/stat").read_text(), usable())
        spent = {name: _spent(root / "proc" / name / "stat") for name in _children(root)}
        told = (root / "proc/self/stat").read_text()
        own = _seconds(told) + sum(spent.values())
    except (OSError, ValueError, IndexError):
        return None
    if not cores:
        return None
    waited = in_line_s(root / f"proc/self/task/{thread}/schedstat")
    in_line = {name: in_line_s(root / "proc" / name / "schedstat") for name in spent}
    children = {name: None if (late := in_line[name]) is None else spent[name] + late for name in spent}
    faults, system = (int(_fields(told)[at]) for at in (7, 12))
    return Look(monotonic(), cores, busy, own, children, thread, waited, system / _ticks_per_s(), faults)


def between(first: Look | None, last: Look | None) -> CpuUse | None:
    """Cores kept busy by others and by this job, on average; None if it cannot be told."""
    if first is None or last is None or first.cores != last.cores or last.at - first.at < SHORTEST_WATCH_S:
        return None
    seconds = last.at - first.at
    own = max(last.own - first.own, 0.0) / seconds
    others = (last.busy - first.busy) / seconds - own
    waited = None
    if first.in_line is not None and last.in_line is not None and first.thread == last.thread:
        waited = min(max(last.in_line - first.in_line, 0.0) / seconds, 1.0)
    return CpuUse(
        cores=last.cores,
        others_busy=min(max(others, 0.0), float(last.cores)),
        own_busy=own,
        children_wanted=_wanted(first.children, last.children, seconds),
        in_line_share=waited,
        seconds=seconds,
        system_busy=max(last.system - first.system, 0.0) / seconds,
        faults=max(last.faults - first.faults, 0) / seconds,
    )


def _wanted(first: dict[str, float | None], last: dict[str, float | None], seconds: float) -> float | None:
    """Cores that children kept busy or waited for; None where one has ended, and its time in line with it."""
    spent = [(one, first.get(name, 0.0)) for name, one in last.items()]
    known = [now - before for now, before in spent if now is not None and before is not None]
    if not first.keys() <= last.keys() or len(known) < len(spent):
        return None
    return max(sum(known), 0.0) / seconds


def contention(cpu: CpuUse | None, when: str = "while the steps were timed") -> list[Finding]:
    """A finding where others had most of the cores. It warns; what they cost the job is not known."""
    if cpu is None or cpu.cores is None or (cpu.others_busy or 0.0) <= MAJORITY_SHARE * cpu.cores:
        return []
    sentence = f"Other processes kept {cpu.others_busy:.1f} of {cpu.cores} cores busy {when}"
    waited = cpu.in_line_share or 0.0
    if waited >= MENTION_SHARE:
        sentence += f", and the job's thread waited for one {format_share(waited)} of the time"
    return [
        Finding(CONTENDED, "warning", f"{sentence}.", "run the job alone, or on cores of its own (taskset)")
    ]


def watch() -> CpuUse | None:
    """The same over a moment in which this process does nothing."""
    first = look()
    sleep(WATCHED_S)
    return between(first, look())


def usable() -> frozenset[int] | None:
    return frozenset(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None


def _totals(text: str, usable: frozenset[int] | None) -> tuple[int, float]:
    """How many of the usable cores the system lists, and the seconds they were not idle."""
    cores, ticks = 0, 0
    for line in text.splitlines():
        name, *fields = line.split()
        if not name.startswith("cpu"):
            break
        number = name[3:]
        if number and (usable is None or int(number) in usable):
            # user nice system idle iowait irq softirq steal; guest time is part of user's
            user, nice, system, _, _, *rest = (int(field) for field in fields[:8])
            cores, ticks = cores + 1, ticks + user + nice + system + sum(rest)
    return cores, ticks / _ticks_per_s()


def _ticks_per_s() -> int:
    return os.sysconf("SC_CLK_TCK")


def _seconds(stat: str) -> float:
    """CPU seconds of a process and of those of its children that have ended."""
    return sum(int(field) for field in _fields(stat)[11:15]) / _ticks_per_s()


def _fields(stat: str) -> list[str]:
    """Behind the process's name, which may hold anything."""
    return stat.rpartition(")")[2].split()


def _spent(path: Path) -> float:
    try:
        return _seconds(path.read_text())
    except (FileNotFoundError, ProcessLookupError):  # it has ended: its parent has its time now
        return 0.0


def _children(root: Path) -> list[str]:
    """Children of the main and of the calling thread, and theirs: loader workers, most of all."""
    threads = dict.fromkeys((os.getpid(), threading.get_native_id()))
    found: list[str] = []
    asked = [root / f"proc/self/task/{thread}/children" for thread in threads]
    while asked:
        path = asked.pop()
        try:
            names = path.read_text().split()
        except (FileNotFoundError, ProcessLookupError):
            if "self" in path.parts:
                raise  # a kernel without this file: the job's workers would pass for other people's
            continue
        found += names
        asked += [root / f"proc/{name}/task/{name}/children" for name in names]
    return found


def own_in_line_s() -> float | None:
    """How long the calling thread could have run so far and had no core; None where nobody counts that."""
    return in_line_s(Path(f"/proc/self/task/{threading.get_native_id()}/schedstat"))


def in_line_s(path: Path) -> float | None:
    try:
        return int(path.read_text().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return None
