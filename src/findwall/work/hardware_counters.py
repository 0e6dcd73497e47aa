"""Kernels that Nsight Compute counted, found in a trace by name, grid and order.

The tool writes names shorter than a trace does: namespaces and parameters are left out, and template
arguments are numbered. So its words must stand in the trace's name, in the same order. What matches more than
one kernel matches none.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from findwall.model.catalogue import SMALL_PART
from findwall.model.events import Kind, Timeline
from findwall.model.intervals import F64, I64
from findwall.model.ncu_kernel import Dims, NcuKernel, NcuReport
from findwall.work.work_facts import Matched

# Of its time: what the best products keep each unit busy, by NVML's GPM on an H200. bf16 matmuls: 87 % SM,
# 84 % tensor, 15 % DRAM; fp32 matmuls: 97 % SM, 76 % fp32 pipe, 11 % DRAM.
TENSOR_CEILING, FP32_CEILING = 0.84, 0.76

_WORD = re.compile(r"[A-Za-z_]\w*|\d+[uUlL]*")
_PLACEHOLDER = re.compile(r"T\d+")
_NOISE = frozenset({"void", "const", "unnamed", "anonymous", "namespace", "instance"})

Group = tuple[int, Dims]  # an interned name and a grid


def match(timeline: Timeline, rows: I64, report: NcuReport, steps: int | None) -> Matched:
    """`rows`: device rows of the timeline; `steps`: how many steps they are of, where that is known."""
    found = np.full(len(rows), np.nan)
    groups = _groups(timeline, rows)
    partners = _partners(timeline, groups, report)
    matched = 0
    for group, launches in partners.items():
        places = groups[group]
        counted = _in_order(launches, len(places), steps)
        if counted is not None:
            found[places] = counted
            matched += len(launches)
    kernels = int((timeline.events.kind[rows] == Kind.KERNEL).sum())
    used = int((~np.isnan(found)).sum())
    return Matched(found, len(report.kernels), len(report.kernels) - matched, used, kernels)


def _groups(timeline: Timeline, rows: I64) -> dict[Group, I64]:
    """Places in `rows` of the kernels of one name and grid, in the order they began."""
    events = timeline.events
    kernels = np.flatnonzero(events.kind[rows] == Kind.KERNEL)
    kernels = kernels[np.argsort(events.start[rows[kernels]], kind="stable")]
    found: dict[Group, list[int]] = {}
    for place in kernels.tolist():
        row = int(rows[place])
        launch = timeline.launch_of(row)
        if launch is not None and launch.grid is not None and all(side > 0 for side in launch.grid):
            found.setdefault((int(events.name[row]), launch.grid), []).append(place)
    return {group: np.array(places, np.int64) for group, places in found.items()}


def _partners(
    timeline: Timeline, groups: dict[Group, I64], report: NcuReport
) -> dict[Group, list[NcuKernel]]:
    """The profiled launches of each kernel, where it is one to one."""
    words = {name: name_words(timeline.names[name]) for name, _ in groups}
    profiled: dict[tuple[str, Dims], list[NcuKernel]] = {}
    for one in report.kernels:
        if one.grid is not None:
            profiled.setdefault((one.name, one.grid), []).append(one)
    found: dict[Group, list[list[NcuKernel]]] = {}
    for (name, grid), launches in profiled.items():
        wanted = name_words(name)
        candidates = [group for group in groups if group[1] == grid and _is_within(wanted, words[group[0]])]
        if len(candidates) == 1:
            found.setdefault(candidates[0], []).append(launches)
    return {group: several[0] for group, several in found.items() if len(several) == 1}


def name_words(name: str) -> tuple[str, ...]:
    """Words and numbers of a kernel's name, without what each tool writes its own way."""
    words = (word for word in _WORD.findall(name) if word not in _NOISE and not _PLACEHOLDER.fullmatch(word))
    return tuple(word.rstrip("uUlL") if word[0].isdigit() else word for word in words)


def _is_within(wanted: Sequence[str], words: Sequence[str]) -> bool:
    """Whether all words stand in the other name, in this order."""
    rest = iter(words)
    return bool(wanted) and all(word in rest for word in wanted)


def _in_order(launches: list[NcuKernel], count: int, steps: int | None) -> F64 | None:
    """Bytes of each of `count` rows; None where it is unknown which launch is which."""
    if any(one.dram_bytes is None for one in launches):
        return None
    counted = np.array([one.dram_bytes for one in launches], np.float64)
    # Launches that are about alike stand for all others of that name and grid.
    if counted.max() - counted.min() <= SMALL_PART * counted.max():
        return np.full(count, float(counted.mean()))
    if len(counted) == count:
        return counted
    if not steps or count % steps:
        return None
    per_step = count // steps
    if len(counted) % per_step:
        return None
    one_step = counted.reshape(-1, per_step).mean(axis=0)
    return np.tile(one_step, steps)
