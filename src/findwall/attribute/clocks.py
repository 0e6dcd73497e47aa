"""Products that keep the tensor cores busy, and the clock that falls under them.

A GPU has only so much power: the larger the part of a step in which large products run, the slower they run.
So a fix that removes what lies between them gives back a little less than what it removes.
"""

from __future__ import annotations

import numpy as np

from findwall.attribute.facts import Facts
from findwall.attribute.likely import narrows
from findwall.model.catalogue import KERNEL_CLASSES, MAJORITY_SHARE, MATRIX_CLASSES, WAITED_FOR_SHARE
from findwall.model.events import Bool
from findwall.model.intervals import F64, I64
from findwall.model.machine import MATH_TYPES
from findwall.replay.change import Scale
from findwall.replay.graph import Graph
from findwall.replay.rewiring import nodes_of
from findwall.units import NOT_ZERO_NS, NS_PER_S

# Times as long where nothing but products runs, less one: on an H200 large bf16 products kept 0.84 of what a
# few of them reach, TF32 ones 0.88, and 0.93 in steps that do other work as well.
UNDER_LOAD = 1 / 0.84 - 1
ON_TENSOR_CORES = ("tf32", "bf16", "fp16", "fp8", "int8")


def slowed(facts: Facts, graph: Graph, made: frozenset[str], step: float) -> Scale | None:
    """What a changed step of so many ns does to its products; None: next to nothing. Those that no fix
    changed ran under today's load before; those that one did are as fast as a few of them alone."""
    table = facts.kernels
    at = np.flatnonzero(np.isin(table.class_index, [KERNEL_CLASSES.index(name) for name in MATRIX_CLASSES]))
    nodes, known = nodes_of(graph, table.row[at])
    at = at[known]
    was, _ = nodes_of(facts.graph, table.row[at])
    own, weight = graph.own[nodes], graph.weight[nodes] / facts.steps.count
    changed = ~np.isclose(own, facts.graph.own[was])
    then = _floor_ns(facts, at, made)
    heavy = np.where(changed, then > MAJORITY_SHARE * own, _near_roof(facts)[at])
    before = float((facts.graph.own[was] * weight)[_near_roof(facts)[at]].sum())
    load = _load(float((own * weight)[heavy].sum()) / max(step, NOT_ZERO_NS))
    times = np.where(changed, load, load / _load(before / facts.step))
    longer = float(((times - 1.0) * own * weight)[heavy].sum())
    if abs(longer) < WAITED_FOR_SHARE * step:
        return None
    return Scale(table.row[at[heavy]], times[heavy])


def _load(share: float) -> float:
    """How much longer products take where they run for such a share of the step."""
    return 1.0 + UNDER_LOAD * min(share, 1.0)


def _near_roof(facts: Facts) -> Bool:
    """Which kernels are products on the tensor cores, near their roof."""
    table = facts.kernels
    formats = [MATH_TYPES.index(name) for name in ON_TENSOR_CORES]
    found: Bool = np.isin(table.math_index, formats)
    return found & (np.nan_to_num(table.floor) > MAJORITY_SHARE * table.duration)


def _floor_ns(facts: Facts, at: I64, made: frozenset[str]) -> F64:
    """Floors of products once some fixes are made, by their arithmetic; none of what runs in fp32 then."""
    table = facts.kernels
    formats = table.math_index[at].copy()
    wide = np.isin(formats, [MATH_TYPES.index(name) for name in ("fp32", "tf32")])
    if narrows(made):
        formats[wide] = MATH_TYPES.index("bf16")
    elif "tf32" in made:
        formats[wide] = MATH_TYPES.index("tf32")
    rates = np.array([facts.ceilings.flops.get(name, np.inf) for name in MATH_TYPES])
    rates[[MATH_TYPES.index(name) for name in MATH_TYPES if name not in ON_TENSOR_CORES]] = np.inf
    found: F64 = np.nan_to_num(table.flops[at]) / rates[formats] * NS_PER_S
    return found
