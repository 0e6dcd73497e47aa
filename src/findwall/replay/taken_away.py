"""The Change that takes a cause away: its device time at its floor, its waits and host work gone.

What comes back without a cause is asked in one way, for device and idle time alike: play the step again
without it. The verdict, the budget and the fixes use the same Change.
"""

from __future__ import annotations

import numpy as np

from findwall.model.catalogue import UNNEEDED, WALLS
from findwall.model.intervals import F64, I64
from findwall.replay.change import Change, Drop, HostWork, Launch, Ready, Scale, without
from findwall.replay.graph import CHECKPOINTING, Graph
from findwall.replay.step_reading import Scenario
from findwall.units import NOT_ZERO_NS
from findwall.work.work_facts import DeviceAtoms, KernelTable

# Causes whose waiting on the host shows as the host's part in collectives.
COLLECTIVE = tuple(cause for cause in WALLS["comms"] if cause != "pipeline-bubble")

# Causes whose kernels are merged into others, or are not there any more, once they are mended: nobody
# launches what is not there.
MERGED = ("unfused-pointwise", "unfused-attention", "unfused-optimizer", "dtype-casts", "layout-copies")


def taken_away(
    cause: str, atoms: DeviceAtoms, kernels: KernelTable, graph: Graph, scenario: Scenario
) -> Change:
    """The step without a cause, in one reading of it."""
    if cause == CHECKPOINTING:  # nothing runs again, and the host is not held up around what stays
        late = graph.checkpointing
        change = dropped(atoms, kernels, atoms.of(cause))
        return change + Change((Launch(late, 0.0),)) if late is not None else change
    mine = atoms.of(cause)
    if cause == UNNEEDED:  # where rows are too many, those that are needed stay
        stays = atoms.floor[mine] > 0
        return left_out(atoms, kernels, mine[~stays]) + to_floor(atoms, kernels, mine[stays])
    change = to_floor(atoms, kernels, mine) + _idle_gone(cause, graph, scenario)
    if cause in MERGED and len(mine):
        change += Change((Launch(np.unique(kernels.row[atoms.index[mine]]), 0.0),))
    return change


def _idle_gone(cause: str, graph: Graph, scenario: Scenario) -> Change:
    idle = scenario.idle
    if idle[cause] <= 0:
        return Change()
    if cause == "pipeline-bubble":
        return Change((Ready(graph.row[graph.rows]),))
    if cause in COLLECTIVE:
        share = idle[cause] / sum(idle[one] for one in COLLECTIVE)
        return Change((HostWork("exposed-collective", 1.0 - share),))
    return without(cause)


def to_floor(atoms: DeviceAtoms, kernels: KernelTable, which: I64, floor: F64 | None = None) -> Change:
    """Device time of some atoms at its floor, or at one that is given (ns of the trace's own time of each).

    Where no floor is known nothing changes.
    """
    least = atoms.floor[which] if floor is None else floor
    gain = np.nan_to_num(np.maximum(atoms.own[which] - least, 0.0))
    total = np.bincount(atoms.index, atoms.own, minlength=len(kernels.row))
    less = np.bincount(atoms.index[which], gain, minlength=len(total))
    moved = np.flatnonzero(less > 0)
    factor = 1.0 - less[moved] / np.maximum(total[moved], NOT_ZERO_NS)
    return Change((Scale(kernels.row[moved], np.maximum(factor, 0.0)),)) if len(moved) else Change()


def left_out(atoms: DeviceAtoms, kernels: KernelTable, which: I64) -> Change:
    """Kernels that are not there any more; of those that do something else as well, their part of these."""
    mine = np.zeros(len(atoms.index), bool)
    mine[which] = True
    whole = ~np.isin(atoms.index[which], atoms.index[~mine])
    rest = which[~whole]
    return dropped(atoms, kernels, which[whole]) + to_floor(atoms, kernels, rest, np.zeros(len(rest)))


def dropped(atoms: DeviceAtoms, kernels: KernelTable, which: I64) -> Change:
    """Kernels that are not there any more, nor their launches."""
    return Change((Drop(np.unique(kernels.row[atoms.index[which]])),)) if len(which) else Change()
