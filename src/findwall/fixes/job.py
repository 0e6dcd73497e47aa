"""What a fix asks of a job: number formats, optimizers, compilation, graphs, copies, the loader."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from findwall.attribute.budget import CAUSES
from findwall.attribute.facts import Facts
from findwall.model.catalogue import KERNEL_CLASSES, MATRIX_CLASSES
from findwall.model.events import Bool, Kind
from findwall.model.intervals import F64, I64
from findwall.model.machine import MATH_TYPES
from findwall.structure.copies import DOWNLOAD, PAGEABLE, UPLOAD
from findwall.structure.links import nearest
from findwall.structure.steps import optimizers
from findwall.units import ms
from findwall.walls.collectives import collectives_a_step
from findwall.walls.evidence import cores_in_use
from findwall.walls.places import Wait, blocking_rows, in_window, waits

SIXTEEN_BITS = ("fp16", "bf16")
BULK = 1e6  # bytes a step copied to the host: more than a logged value, as a checkpoint is
_GENERATED = re.compile(r"^triton_(?:poi|red|per|for|tem|unk)_")
_COMPILED_RANGE = re.compile(r"CompiledFxGraph|Torch-Compiled Region|CompiledFunction")
_GRAPH_LAUNCH = re.compile(r"GraphLaunch")


# -- device time -----------------------------------------------------------------------------------


def gains(facts: Facts, atoms: I64) -> float:
    """What some atoms could give back, in ms a step; where no floor is known, nothing."""
    own = facts.own[atoms]
    window = facts.atoms.own[atoms]
    floor = np.divide(facts.atoms.floor[atoms] * own, window, out=np.full(len(own), np.nan), where=window > 0)
    return ms(float(np.nansum(np.maximum(own - floor, 0.0))))


def time_of(facts: Facts, atoms: I64) -> float:
    """In ms a step."""
    return ms(float(facts.own[atoms].sum()))


def of_class(facts: Facts, *names: str) -> Bool:
    """Which atoms are of these kernel classes."""
    wanted = [KERNEL_CLASSES.index(name) for name in names]
    mask: Bool = np.isin(facts.kernels.class_index[facts.atoms.index], wanted)
    return mask


def math_times(facts: Facts, *classes: str) -> dict[str, float]:
    """Time of kernels that multiply, by number format, longest first, in ms a step."""
    mine = np.flatnonzero(of_class(facts, *(classes or MATRIX_CLASSES)))
    formats = facts.kernels.math_index[facts.atoms.index[mine]]
    known = formats >= 0
    total = np.bincount(formats[known], facts.own[mine][known], minlength=len(MATH_TYPES))
    found = {name: ms(float(total[at])) for at, name in enumerate(MATH_TYPES) if total[at] > 0}
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def small_kernels(facts: Facts) -> float:
    """Device rows a step."""
    return len(facts.atoms.index) / max(facts.steps.count, 1)


def busy_share(facts: Facts) -> float:
    return facts.reading.likely.busy / facts.step if facts.step > 0 else 0.0


def rows_of(facts: Facts, atoms: I64) -> I64:
    """The device rows of some atoms."""
    return facts.kernels.row[facts.atoms.index[atoms]]


def matching(facts: Facts, rows: I64, pattern: re.Pattern[str]) -> Bool:
    """Which of these rows have such a name; each distinct name is looked at once."""
    distinct, inverse = np.unique(facts.timeline.events.name[rows], return_inverse=True)
    hits = np.array([bool(pattern.search(facts.timeline.names[at])) for at in distinct.tolist()], bool)
    mask: Bool = hits[inverse.reshape(-1)]
    return mask


# -- how the job is written ------------------------------------------------------------------------


def is_training(facts: Facts) -> bool:
    return bool(facts.links.backward.any()) or bool(optimizers(facts.timeline))


def range_names(facts: Facts) -> list[str]:
    """Names of the ranges that a person or a library put around host work."""
    rows = facts.timeline.rows(Kind.ANNOTATION)
    return [facts.timeline.names[at] for at in np.unique(facts.timeline.events.name[rows]).tolist()]


def compiled_share(facts: Facts) -> float:
    """Share of the device's time in kernels that torch.compile generated."""
    total = float(facts.own.sum())
    generated = matching(facts, facts.kernels.row[facts.atoms.index], _GENERATED)
    return float(facts.own[generated].sum()) / total if total > 0 else 0.0


def is_compiled(facts: Facts) -> bool:
    return compiled_share(facts) > 0 or any(_COMPILED_RANGE.search(name) for name in range_names(facts))


def graph_share(facts: Facts) -> float:
    """Share of the device's rows that a graph launch issued."""
    launch = facts.links.launch[facts.kernels.row[facts.atoms.index]]
    launch = launch[launch >= 0]
    if len(launch) == 0:
        return 0.0
    return float(matching(facts, launch, _GRAPH_LAUNCH).mean())


def has_shapes(facts: Facts) -> bool:
    return bool(facts.timeline.details.inputs)


def calls_around(facts: Facts, atoms: I64, names: frozenset[str]) -> I64:
    """For each atom the row of the op of such a name it lies in, or its forward op does; -1 where none is."""
    events, links = facts.timeline.events, facts.links
    named = np.array([name in names for name in facts.timeline.names], bool)
    calls = events.is_kind(Kind.OP) & named[events.name]
    ops = facts.kernels.op[facts.atoms.index[atoms]]
    if not calls.any():
        return np.full(len(ops), -1, np.int64)
    around = nearest(facts.timeline, links.parent, calls)
    forward = _forward_ops(facts, ops)
    own = np.where(ops >= 0, around[np.maximum(ops, 0)], -1)
    found: I64 = np.where((own < 0) & (forward >= 0), around[np.maximum(forward, 0)], own)
    return found


def _forward_ops(facts: Facts, ops: I64) -> I64:
    """For ops under the autograd engine the forward op with the same sequence number; -1 elsewhere."""
    events, links = facts.timeline.events, facts.links
    numbered = events.is_kind(Kind.OP) & (events.sequence >= 0)
    node = nearest(facts.timeline, links.parent, numbered & links.backward)
    node = np.where(ops >= 0, node[np.maximum(ops, 0)], -1)
    forward = np.flatnonzero(numbered & ~links.backward)
    # Several ops may have seen a number; the last of them used it up.
    forward = forward[np.lexsort((events.start[forward], events.sequence[forward]))]
    numbers = events.sequence[forward]
    wanted = events.sequence[np.maximum(node, 0)]
    at = np.searchsorted(numbers, wanted, side="right") - 1
    hit = (node >= 0) & (at >= 0)
    hit[hit] = numbers[at[hit]] == wanted[hit]
    found: I64 = np.full(len(ops), -1, np.int64)
    found[hit] = forward[at[hit]]
    return found


# -- copies, waits ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Copies:
    """Copies of one direction in the window, a step."""

    ms: float
    nbytes: float
    pageable_ms: float

    @property
    def pageable(self) -> bool:
        return self.pageable_ms > 0.5 * self.ms


def uploads(facts: Facts) -> Copies:
    return _copies(facts, UPLOAD)


def downloads(facts: Facts) -> Copies:
    return _copies(facts, DOWNLOAD)


def _copies(facts: Facts, direction: re.Pattern[str]) -> Copies:
    events = facts.timeline.events
    talk = facts.kernels.row[facts.kernels.communication]
    rows = facts.queue.row[~np.isin(facts.queue.row, talk)]  # a collective's own copies are no batch's
    rows = rows[events.kind[rows] == Kind.MEMCPY]
    rows = rows[matching(facts, rows, direction)]
    pageable = matching(facts, rows, PAGEABLE)
    count = max(facts.steps.count, 1)
    length = events.duration[rows]
    moved = float(np.maximum(events.nbytes[rows], 0).sum())
    return Copies(ms(float(length.sum())) / count, moved / count, ms(float(length[pageable].sum())) / count)


def sync_rows(facts: Facts) -> I64:
    """Calls in the window with which the host waits for the device, copies to it left out."""
    return in_window(facts, blocking_rows(facts, "host-sync"))


def outermost(facts: Facts, rows: I64) -> I64:
    """For each call the op it lies in that no other op contains; the call itself where there is none."""
    found: I64 = rows.copy()
    at = rows.copy()
    while (at >= 0).any():
        above = np.maximum(at, 0)
        is_op = (at >= 0) & (facts.timeline.events.kind[above] == Kind.OP)
        found[is_op] = at[is_op]
        at = np.where(at >= 0, facts.links.parent[above], -1)
    return found


def common_sync(facts: Facts) -> str | None:
    """What most of those calls lie in."""
    names, counts = np.unique(
        facts.timeline.events.name[outermost(facts, sync_rows(facts))], return_counts=True
    )
    return facts.timeline.names[int(names[np.argmax(counts)])] if len(names) else None


def syncs(facts: Facts) -> list[Wait]:
    """The same, merged and named, the costliest first."""
    return waits(facts, "host-sync", sync_rows(facts))


def launch_idle(facts: Facts) -> float:
    """Idle time that waits for launches, in ms a step: what the host alone takes of `launch-bound`."""
    scenario = facts.reading.likely
    return ms(max(float(scenario.idle[CAUSES.index("launch-bound")]) - scenario.turnaround, 0.0))


def idle_before(facts: Facts, cause: str, class_name: str) -> float:
    """Idle time of one cause in front of kernels of one class, in ms a step."""
    positions, amounts = facts.idle_rows(cause)
    rows = facts.queue.row[positions]
    at = np.searchsorted(facts.kernels.row, rows)
    mine: F64 = amounts[facts.kernels.class_index[at] == KERNEL_CLASSES.index(class_name)]
    return ms(float(mine.sum()))


def idle_cores_ms(facts: Facts) -> float:
    """What matmuls and convolutions of a CPU job would save on the cores that stand idle, in ms a step."""
    found = cores_in_use(facts)
    if found is None or found.idle <= 0:
        return 0.0
    slow = time_of(facts, facts.atoms_of("slow-kernels"))
    saved = slow * found.idle / (found.used + found.idle)
    return min(saved, facts.recoverable_ms("slow-kernels") or 0.0)


def optimizer_launches(facts: Facts) -> float:
    """Waiting for the optimizer's own launches, in ms a step: nothing done to the model changes it."""
    return min(idle_before(facts, "launch-bound", "optimizer"), facts.recoverable_ms("launch-bound") or 0.0)


def collectives(facts: Facts) -> float:
    """Collectives a step."""
    return collectives_a_step(facts)
