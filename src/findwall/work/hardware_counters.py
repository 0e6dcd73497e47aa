"""What counters say of kernels: of all while steps were timed, of each under Nsight Compute.

Counters decide what shapes cannot: the regime of kernels whose work is not known. While steps were timed, the
device counted how much of its memory's bandwidth and of its tensor cores' time was used (GPM). What the
kernels of known work explain is taken off; the rest is by the kernels of unknown work. Near the memory's
ceiling they stand at the memory roof, near the tensor cores' they are at the roof, clearly below both they
are slow or too small. In between nothing is said.

What is known of the rest is an interval. At least: as if everything else had moved all the bytes its model
says, from memory and never from cache. At most: as if nothing else had used the device at all.

Kernels that Nsight Compute counted are found by name, grid and order. The tool writes names shorter than a
trace does: namespaces and parameters are left out, and template arguments are numbered. So its words must
stand in the trace's name, in the same order. What matches more than one kernel matches none.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from findwall.model.catalogue import MAJORITY_SHARE, NEAR, SMALL_PART, WORTH_IT
from findwall.model.causes import UNKNOWN, cause_index
from findwall.model.events import Bool, Kind, Timeline
from findwall.model.intervals import F64, I64
from findwall.model.machine import MATH_TYPES, Ceilings, Telemetry
from findwall.model.measured_run import Rank
from findwall.model.ncu_kernel import Dims, NcuKernel, NcuReport
from findwall.units import NS_PER_S
from findwall.work.floors import MATRIX_INDEX
from findwall.work.work_facts import BOUNDS, TOO_SMALL_NS, Counted, DeviceAtoms, KernelTable, Matched

FEWEST_SAMPLES = 4  # of the counters, half a second each; the first is of no use
# Of its time: what the best products keep each unit busy, by NVML's GPM on an H200. bf16 matmuls: 87 % SM,
# 84 % tensor, 15 % DRAM; fp32 matmuls: 97 % SM, 76 % fp32 pipe, 11 % DRAM.
TENSOR_CEILING, FP32_CEILING = 0.84, 0.76
_BOUND_OF = {
    "memory-roof": "bandwidth",
    "at-the-roof": "compute",
    "slow-kernels": "compute",
    "launch-bound": "latency",
}
_TENSOR_FORMATS = ("tf32", "fp16", "bf16", "fp8", "int8", "fp4")


def settle(
    atoms: DeviceAtoms, kernels: KernelTable, rank: Rank, ceilings: Ceilings, steps: int
) -> tuple[DeviceAtoms, KernelTable, Counted | None]:
    """Atoms and kernels with the regime that the counters tell, where they tell one."""
    blind = (atoms.cause == cause_index(UNKNOWN)) & ~kernels.modelled[atoms.index]
    counted = _judge(atoms, kernels, blind, rank, ceilings, steps)
    if counted is None:
        return atoms, kernels, None
    cause = np.where(blind, cause_index(counted.cause), atoms.cause)
    floor = atoms.floor.copy()
    bound = kernels.bound.copy()
    bound[atoms.index[blind]] = BOUNDS.index(_BOUND_OF[counted.cause])
    floor[blind] = atoms.own[blind] * counted.remains
    return replace(atoms, cause=cause, floor=floor), replace(kernels, bound=bound), counted


def _judge(
    atoms: DeviceAtoms, kernels: KernelTable, blind: Bool, rank: Rank, ceilings: Ceilings, steps: int
) -> Counted | None:
    gpm, timed = rank.telemetry.gpm, rank.step_times
    total, own = float(atoms.own.sum()), float(atoms.own[blind].sum())
    if gpm is None or gpm.dram is None or gpm.tensor is None or timed is None or timed.source != "measured":
        return None
    if rank.telemetry.samples < FEWEST_SAMPLES or rank.telemetry.other_processes or steps < 1:
        return None
    if own < WORTH_IT * total or not ceilings.bandwidth or not ceilings.spec_bandwidth:
        return None
    step = timed.mean * NS_PER_S
    theirs = own / steps
    known = kernels.modelled[atoms.index]
    others = float(atoms.own[~blind & ~known].sum()) / steps
    reach = ceilings.bandwidth / ceilings.spec_bandwidth
    memory = _interval(
        gpm.dram / 100.0 * step / reach,
        float(np.nansum(kernels.bytes[atoms.index[known]])) / steps / ceilings.bandwidth * NS_PER_S + others,
        theirs,
    )
    pipe = gpm.tensor / 100.0 * step / TENSOR_CEILING
    busy = _tensor_time(kernels, atoms, ceilings)
    busy = busy * _slower_clock(rank.telemetry) if busy else 0.0
    tensor = _interval(pipe, busy / steps / TENSOR_CEILING + others, theirs)
    vector = [value / 100.0 * step / theirs for value in (gpm.fp16, gpm.fp32, gpm.fp64) if value is not None]
    cause = _cause(
        memory, tensor, max(vector, default=1.0), float(kernels.duration[atoms.index[blind]].max())
    )
    return None if cause is None else Counted(cause, own / total, memory, tensor)


def _interval(counted: float, elsewhere: float, own: float) -> tuple[float, float]:
    """Time at a ceiling, all in all and of other kernels, as a share of the kernels' own time.

    Nothing uses more than all, but for the counters' own error: where it seems so, other kernels did more
    than their model says.
    """
    least = max(counted - elsewhere, 0.0) / own
    return 0.0 if least > 1 + SMALL_PART else min(least, 1.0), min(counted / own, 1.0)


def _tensor_time(kernels: KernelTable, atoms: DeviceAtoms, ceilings: Ceilings) -> float:
    """For how long the kernels of known work keep the tensor cores busy at their peak, in ns."""
    rows = atoms.index[kernels.modelled[atoms.index]]
    rows = rows[np.isin(kernels.class_index[rows], MATRIX_INDEX)]
    peak = np.array(
        [ceilings.spec_flops.get(name, np.inf) if name in _TENSOR_FORMATS else np.inf for name in MATH_TYPES]
        + [np.inf]
    )
    return float(np.nansum(kernels.flops[rows] / peak[kernels.math_index[rows]])) * NS_PER_S


def _slower_clock(telemetry: Telemetry) -> float:
    """How much longer arithmetic keeps a pipe busy at the clock it ran at than at the specification's; where
    nobody read the clock, any time."""
    clock, most = telemetry.sm_clock_mhz, telemetry.max_sm_clock_mhz
    return max(most / clock.mean, 1.0) if clock is not None and most and clock.mean > 0 else np.inf


def _cause(
    memory: tuple[float, float], tensor: tuple[float, float], vector: float, longest_ns: float
) -> str | None:
    """`vector`: at most so much of the busiest vector pipe's time; products in fp32 run there."""
    if memory[0] >= NEAR and memory[0] >= tensor[0]:
        return "memory-roof"
    if tensor[0] >= NEAR:
        return "at-the-roof"
    if max(memory[1], tensor[1], vector) < MAJORITY_SHARE:
        return "launch-bound" if longest_ns <= TOO_SMALL_NS else "slow-kernels"
    return None


# -- Nsight Compute ------------------------------------------------------------------------------------

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
