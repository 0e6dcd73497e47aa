"""What Nsight Compute counts: running it, reading it, and finding each kernel of a trace in its list.

Several jobs share one `ncu` process, since starting one takes longer than most jobs. Each job's kernels
follow a marker, a kernel that only spins, so that the list can be cut.
"""

from __future__ import annotations

import csv
import difflib
import os
import re
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

METRIC = "dram__bytes.sum"
MARKER = "spin_kernel"  # torch.cuda._sleep
_UNITS = {"byte": 1.0, "kbyte": 1e3, "mbyte": 1e6, "gbyte": 1e9, "tbyte": 1e12}

Extents = tuple[int, ...]


@dataclass(frozen=True)
class Shape:
    """What both tools tell of a kernel."""

    name: str
    grid: Extents | None = None
    block: Extents | None = None

    @property
    def bare(self) -> str:
        return bare_name(self.name)


@dataclass(frozen=True)
class Count:
    shape: Shape
    nbytes: float | None  # None: not counted


@dataclass
class Listing:
    """One `ncu` process: its kernels in launch order, and what it said."""

    counts: list[Count] = field(default_factory=list)
    said: str = ""

    def by_job(self, jobs: Sequence[str]) -> dict[str, list[Count]]:
        """Cut at the markers; empty where there are not as many as jobs."""
        pieces: list[list[Count]] = []
        for count in self.counts:
            if MARKER in count.shape.name:
                pieces.append([])
            elif pieces:
                pieces[-1].append(count)
        # A process that ended early has the first jobs' markers alone; its last piece may be cut short.
        return dict(zip(jobs, pieces, strict=False)) if len(pieces) <= len(jobs) else {}


def bare_name(name: str) -> str:
    """Without return type, namespaces, template and call arguments: the tools demangle these differently."""
    for noise in ("(anonymous namespace)::", "<unnamed>::", "(anonymous class)::", "void "):
        name = name.replace(noise, "")
    return re.split(r"[<(]", name.strip(), maxsplit=1)[0].rsplit("::", 1)[-1].strip()


def run_ncu(target: Sequence[str], log: Path, replay: str, timeout: float) -> Listing:
    """Count what `target` launches between the profiler's start and stop."""
    command = ["ncu", "--profile-from-start", "off", "--cache-control", "all", "--clock-control", "none"]
    command += ["--replay-mode", replay, "--metrics", METRIC, "--csv"]
    command += ["--page", "raw", "--print-units", "base", "--log-file", str(log), *target]
    code, said = _run(command, timeout)
    text = log.read_text(errors="replace") if log.exists() else ""
    remarks = [line for line in text.splitlines() if line.startswith("==") and "==PROF==" not in line]
    return Listing(read_counts(text), "\n".join([f"(exit code {code})", *remarks[-8:], said[-1000:]]))


def _run(command: list[str], timeout: float) -> tuple[int, str]:
    """Killed with all its children when its time is up: ncu's target outlives ncu otherwise."""
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as process:
        try:
            said, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            said, _ = process.communicate()
            return 124, said + f"\nkilled after {timeout:.0f} s"
    return process.returncode, said


def read_counts(text: str) -> list[Count]:
    """The raw page as CSV: a column a metric, the second row its units."""
    lines = [line for line in text.splitlines() if line.startswith('"')]
    if not lines:
        return []
    header, *rows = list(csv.reader(lines))
    units = rows[0] if rows and not rows[0][0] else [""] * len(header)
    rows = [row for row in rows if len(row) == len(header) and row[0]]
    column = {name: at for at, name in enumerate(header)}
    return [_count(row, units, column) for row in rows]


def _count(row: list[str], units: list[str], column: dict[str, int]) -> Count:
    def extents(name: str) -> Extents | None:
        found = re.findall(r"\d+", row[column[name]]) if name in column else []
        return tuple(map(int, found)) if len(found) == 3 else None

    shape = Shape(row[column["Kernel Name"]], extents("Grid Size"), extents("Block Size"))
    at = column.get(METRIC)
    return Count(shape, None if at is None else _number(row[at], units[at]))


def _number(text: str, unit: str) -> float | None:
    try:
        return float(text.replace(",", "")) * _UNITS.get(unit.lower(), 1.0)
    except ValueError:  # "n/a"
        return None


# Ways to know a kernel again, best first.
Key = Callable[[Shape], object]
WAYS: tuple[tuple[str, Key], ...] = (
    ("name and launch", lambda shape: (shape.bare, shape.grid, shape.block)),
    ("name", lambda shape: shape.bare),
    ("launch and place", lambda shape: (shape.grid, shape.block)),
)


def align(left: Sequence[Shape], right: Sequence[Shape]) -> tuple[list[tuple[int, int]], Counter[str]]:
    """Pairs of positions in two lists that hold the same kernels in the same order, and how each was known.

    Both come in launch order, so whatever lies between two kernels known for sure corresponds too: there a
    poorer key is enough. By the launch alone only where as many lie between on either side.
    """
    pairs: list[tuple[int, int]] = []
    ways: Counter[str] = Counter()
    _align(list(left), list(right), 0, 0, 0, pairs, ways)
    return sorted(pairs), ways


def _align(
    left: list[Shape],
    right: list[Shape],
    left_at: int,
    right_at: int,
    level: int,
    pairs: list[tuple[int, int]],
    ways: Counter[str],
) -> None:
    if not left or not right or level == len(WAYS):
        return
    if level == len(WAYS) - 1 and len(left) != len(right):
        return
    way, key = WAYS[level]
    a, b = [key(shape) for shape in left], [key(shape) for shape in right]
    matcher = difflib.SequenceMatcher(None, a, b, autojunk=False)
    from_left = from_right = 0
    for at, other, size in matcher.get_matching_blocks():  # the last one is empty, at the ends
        between = (left[from_left:at], right[from_right:other])
        _align(*between, left_at + from_left, right_at + from_right, level + 1, pairs, ways)
        pairs += [(left_at + at + offset, right_at + other + offset) for offset in range(size)]
        ways[way] += size
        from_left, from_right = at + size, other + size


@dataclass
class Kernel:
    """One kernel of the profiled step."""

    job: str
    name: str
    op: str
    inputs: str
    kernel_class: str
    us: float
    modelled: float | None
    counted: float | None = None
    shape: Shape = field(default_factory=lambda: Shape(""), repr=False)

    @property
    def error(self) -> float:
        assert self.modelled is not None and self.counted
        return abs(self.modelled / self.counted - 1.0)

    def row(self) -> dict[str, object]:
        told = asdict(self)
        del told["shape"]
        return {**told, "grid": self.shape.grid, "block": self.shape.block}


@dataclass
class Job:
    """One job's kernels and how many of them were found among the counted ones."""

    name: str
    kernels: list[Kernel]
    counted: int = 0
    matched: int = 0
    ways: dict[str, int] = field(default_factory=dict)
    ncu_said: str = ""

    @property
    def share(self) -> float:
        return self.matched / max(len(self.kernels), 1)

    @property
    def share_of_time(self) -> float:
        total = sum(kernel.us for kernel in self.kernels)
        return sum(kernel.us for kernel in self.kernels if kernel.counted) / max(total, 1e-9)

    def take(self, counts: list[Count], said: str) -> None:
        """Give each kernel its count, unless an earlier try found more."""
        pairs, ways = align([kernel.shape for kernel in self.kernels], [count.shape for count in counts])
        pairs = [(a, b) for a, b in pairs if counts[b].nbytes is not None]
        if len(pairs) < max(self.matched, 1):
            self.ncu_said = self.ncu_said or said
            return
        self.counted, self.matched, self.ways, self.ncu_said = len(counts), len(pairs), dict(ways), said
        for kernel in self.kernels:
            kernel.counted = None
        for a, b in pairs:
            self.kernels[a].counted = counts[b].nbytes

    def row(self) -> dict[str, object]:
        return {
            "kernels": len(self.kernels),
            "counted": self.counted,
            "matched": self.matched,
            "matched_share": self.share,
            "matched_share_of_time": self.share_of_time,
            "known_by": self.ways,
            "ncu_said": self.ncu_said,
        }

    def missing(self) -> dict[str, int]:
        """Names of kernels that found no count."""
        names: dict[str, int] = {}
        for kernel in self.kernels:
            if kernel.counted is None:
                names[kernel.shape.bare] = names.get(kernel.shape.bare, 0) + 1
        return names
