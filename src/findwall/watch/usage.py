"""What processes take of the machine, from /proc: cores, storage, and waiting for a core."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from time import monotonic

import msgspec

from findwall.machine.neighbours import in_line_s
from findwall.model.watched import ProcessUse
from findwall.units import MIB
from findwall.watch.job_processes import PROC

SHORTEST_S = 0.4  # CPU time is counted in hundredths of a second


class Totals(msgspec.Struct, frozen=True):
    """Counted since a process began, at one moment. None: this user may not see it."""

    at: float
    cpu: dict[int, float]  # by process, in seconds: one that ends takes its count along
    threads: int | None
    in_line: float | None  # seconds in which the main thread could have run and had no core
    read: dict[int, int] | None  # bytes from storage, by process
    written: dict[int, int] | None


def totals(pid: int, helpers: Iterable[int], proc: Path = PROC) -> Totals:
    """Of a process and its helpers."""
    every = [pid, *helpers]
    cpu = {one: spent for one in every if (spent := _cpu(proc / str(one) / "stat")) is not None}
    moved = {one: both for one in every if (both := _moved(proc / str(one) / "io")) is not None}
    readable = pid in moved
    return Totals(
        at=monotonic(),
        cpu=cpu,
        threads=_threads(proc / str(pid) / "task"),
        in_line=in_line_s(proc / f"{pid}/task/{pid}/schedstat"),
        read={one: both[0] for one, both in moved.items()} if readable else None,
        written={one: both[1] for one, both in moved.items()} if readable else None,
    )


def between(first: Totals, last: Totals) -> ProcessUse | None:
    """Rates between two moments; None where they lie too close."""
    seconds = last.at - first.at
    if seconds < SHORTEST_S:
        return None

    def rate(before: float | None, after: float | None) -> float | None:
        return None if before is None or after is None else max(after - before, 0.0) / seconds

    waited = rate(first.in_line, last.in_line)
    return ProcessUse(
        cores=_grown(first.cpu, last.cpu) / seconds if last.cpu else None,
        threads=last.threads,
        read_mib_s=_moved_rate(first.read, last.read, seconds),
        write_mib_s=_moved_rate(first.written, last.written, seconds),
        in_line_share=None if waited is None else min(waited, 1.0),
        seconds=seconds,
    )


def mean(parts: list[ProcessUse]) -> ProcessUse:
    """Of stretches of different length, each by its length."""
    total = sum(part.seconds for part in parts)
    if not total:
        return ProcessUse()

    def weighed(name: str) -> float | None:
        known = [(getattr(part, name), part.seconds) for part in parts if getattr(part, name) is not None]
        seconds = sum(length for _, length in known)
        return sum(value * length for value, length in known) / seconds if seconds else None

    return ProcessUse(
        cores=weighed("cores"),
        threads=parts[-1].threads,
        read_mib_s=weighed("read_mib_s"),
        write_mib_s=weighed("write_mib_s"),
        in_line_share=weighed("in_line_share"),
        seconds=total,
    )


def _grown(before: dict[int, float], after: dict[int, float]) -> float:
    """Seconds that processes which were there at both ends added."""
    return sum(max(spent - before[one], 0.0) for one, spent in after.items() if one in before)


def _moved_rate(before: dict[int, int] | None, after: dict[int, int] | None, seconds: float) -> float | None:
    if before is None or after is None:
        return None
    return sum(max(moved - before[one], 0) for one, moved in after.items() if one in before) / MIB / seconds


def _cpu(path: Path) -> float | None:
    try:
        fields = path.read_text(errors="replace").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None


def _moved(path: Path) -> tuple[int, int] | None:
    try:
        rows = dict(line.split(": ") for line in path.read_text().splitlines())
        return int(rows["read_bytes"]), int(rows["write_bytes"])
    except (OSError, ValueError, KeyError):
        return None


def _threads(path: Path) -> int | None:
    try:
        return sum(1 for _ in path.iterdir())
    except OSError:
        return None
