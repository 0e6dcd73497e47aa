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

from findwall.model.machine import CONTENDED, CpuUse, Finding
from findwall.units import format_share

SHORTEST_WATCH_S = 0.2  # the totals count hundredths of a second
CONTENDED_SHARE = 0.5  # of the cores; chosen by hand
WATCHED_S = 0.5
IN_LINE_SHARE = 0.01  # of the time: less is how any thread runs


@dataclass(frozen=True, slots=True)
class Look:
    """CPU seconds since some beginning, at one moment."""

    at: float
    cores: int  # that this process may use
    busy: float  # spent on them by anyone
    own: float  # spent by this process and its children
    children: float  # by its children, those that have ended as well, or in line for a core
    thread: int  # the calling one
    in_line: float | None  # it could have run and had no core


def look(root: Path = Path("/")) -> Look | None:
    """The totals now; None where this system does not tell them."""
    thread = threading.get_native_id()
    try:
        cores, busy = _totals((root / "proc/stat").read_text(), _usable())
        alone, ended = _seconds((root / "proc/self/stat").read_text())
        there = [root / "proc" / name for name in _children(root)]
        children = ended + sum(_spent(path / "stat") for path in there)
    except (OSError, ValueError, IndexError):
        return None
    if not cores:
        return None
    waited = _in_line(root / f"proc/self/task/{thread}/schedstat")
    wanted = children + sum(_in_line(path / "schedstat") or 0.0 for path in there)
    return Look(monotonic(), cores, busy, alone + children, wanted, thread, waited)


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
        children_wanted=max(last.children - first.children, 0.0) / seconds,
        in_line_share=waited,
        seconds=seconds,
    )


def contention(cpu: CpuUse | None, when: str = "while the steps were timed") -> list[Finding]:
    """A finding where others had most of the cores. It warns; what they cost the job is not known."""
    if cpu is None or cpu.cores is None or (cpu.others_busy or 0.0) <= CONTENDED_SHARE * cpu.cores:
        return []
    sentence = f"Other processes kept {cpu.others_busy:.1f} of {cpu.cores} cores busy {when}"
    waited = cpu.in_line_share or 0.0
    if waited >= IN_LINE_SHARE:
        sentence += f", and the job's thread waited for one {format_share(waited)} of the time"
    return [
        Finding(CONTENDED, "warning", f"{sentence}.", "run the job alone, or on cores of its own (taskset)")
    ]


def watch(seconds: float = WATCHED_S) -> CpuUse | None:
    """The same over a moment in which this process does nothing."""
    first = look()
    sleep(seconds)
    return between(first, look())


def _usable() -> frozenset[int] | None:
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


def _seconds(stat: str) -> tuple[float, float]:
    """CPU seconds of a process, and of those of its children that have ended."""
    fields = [int(field) / _ticks_per_s() for field in stat.rpartition(")")[2].split()[11:15]]
    return sum(fields[:2]), sum(fields[2:])


def _spent(path: Path) -> float:
    try:
        return sum(_seconds(path.read_text()))
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


def _in_line(path: Path) -> float | None:
    try:
        return int(path.read_text().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return None
