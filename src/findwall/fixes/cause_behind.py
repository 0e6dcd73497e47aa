"""Which cause stands behind a change: what could give back most of what is left once it is made."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from findwall.facts.facts import Facts, of_class
from findwall.model.catalogue import MAJORITY_SHARE, MATRIX_CLASSES, ROOFS, WORTH_IT
from findwall.model.causes import CAUSES, UNKNOWN, ByCause, cause_index
from findwall.model.intervals import F64
from findwall.replay.blame import blame
from findwall.replay.graph import Graph
from findwall.work.work_facts import BOUNDS, WorkFacts


def cause_after(facts: Facts, graph: Graph, moved: Iterable[str], step: float) -> str | None:
    """The cause that could give back most of what is left, once the graph is this one; a roof where none
    could give back enough. None: more is unknown than that. `moved`: causes whose kernels are others now."""
    own = _device_time(facts, graph)
    mended = np.isin(facts.atoms.cause, [cause_index(cause) for cause in moved])
    left = np.where(np.isnan(facts.atoms.floor) | mended, 0.0, np.maximum(own - facts.atoms.floor, 0.0))
    found = ByCause.summed(facts.atoms.cause, left) * (1.0 / facts.steps.count)
    idle = blame(graph, facts.reading.likely.calibration)
    found = found + idle.idle
    found["launch-bound"] -= idle.turnaround
    unknown = found[UNKNOWN]
    for roof in (*ROOFS, UNKNOWN):
        found[roof] = 0.0
    best = CAUSES[int(np.argmax(found.values))]
    if unknown > max(found[best], WORTH_IT * step):
        return None
    return best if found[best] >= WORTH_IT * step else _roof(facts, own)


def _device_time(facts: Facts, graph: Graph) -> F64:
    """Device time of every atom under a changed graph, over the whole window."""
    before, now = np.zeros(len(facts.timeline.events)), np.zeros(len(facts.timeline.events))
    before[facts.graph.row[facts.graph.rows]] = facts.graph.own[facts.graph.rows]
    now[graph.row[graph.rows]] = graph.own[graph.rows]
    factor = np.divide(now, before, out=np.ones(len(before)), where=before > 0)
    return facts.atoms.own * factor[facts.kernels.row[facts.atoms.index]]


def _roof(facts: WorkFacts, own: F64) -> str | None:
    """The roof of what takes most of the time that is left: products, also those that are others now, or
    passes over memory; None where that is of unknown cause."""
    known = facts.atoms.cause != cause_index(UNKNOWN)
    if float(own[known].sum()) < MAJORITY_SHARE * float(own.sum()):
        return None
    arithmetic = facts.kernels.bound[facts.atoms.index] != BOUNDS.index("bandwidth")
    multiplies = known & arithmetic & of_class(facts, *MATRIX_CLASSES)
    most = float(own[multiplies].sum()) >= MAJORITY_SHARE * float(own[known].sum())
    return "at-the-roof" if most else "memory-roof"
