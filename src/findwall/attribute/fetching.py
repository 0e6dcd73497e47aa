"""Rows fetched and added up by number: what of their traffic is left where one kernel does both.

What is fetched goes straight to the kernel behind it, and what is added up comes straight from the one in
front of it.
"""

from __future__ import annotations

import re

import numpy as np

from findwall.attribute.fusion import is_fusable
from findwall.attribute.kernels import KernelTable
from findwall.attribute.workmodel.arguments import Arguments
from findwall.attribute.workmodel.owners import op_work
from findwall.model.catalogue import KERNEL_CLASSES
from findwall.model.events import Bool, Timeline
from findwall.model.intervals import F64, I64

FETCH = re.compile(r"::(?:gather|index_select|embedding|take_along_dim)$")
ADD_UP = re.compile(r"::(?:index_add|scatter_add)_?$")
ADDED = 3  # the argument of either that holds what is added


def fetches(timeline: Timeline, kernels: KernelTable, index: I64, step: I64) -> tuple[I64, F64]:
    """Places in `index`, kernels in device order, of those that fetch rows or add them up; and the bytes that
    each must still move in one kernel with its neighbour."""
    at = np.flatnonzero(kernels.class_index[index] == KERNEL_CLASSES.index("gather"))
    joins = is_fusable(timeline, kernels, index)
    joins[at] = True
    places, kept = [], []
    for here in at.tolist():
        op = int(kernels.op[index[here]])
        name = timeline.name_of(op) if op >= 0 else ""
        if FETCH.search(name):
            spared = _written(timeline, op) if _joined(joins, step, here, here + 1) else 0.0
        elif ADD_UP.search(name):
            spared = _added(timeline, op) if _joined(joins, step, here, here - 1) else 0.0
        else:
            continue
        places.append(here)
        kept.append(max(float(kernels.bytes[index[here]]) - spared, 0.0))
    return np.array(places, np.int64), np.array(kept)


def _joined(joins: Bool, step: I64, one: int, other: int) -> bool:
    return 0 <= other < len(joins) and bool(joins[other]) and bool(step[one] == step[other])


def _written(timeline: Timeline, op: int) -> float:
    work = op_work(timeline.name_of(op), timeline.inputs_of(op))
    return work.write_bytes if work is not None else 0.0


def _added(timeline: Timeline, op: int) -> float:
    inputs = timeline.inputs_of(op)
    source = Arguments(inputs).tensor(ADDED) if inputs is not None else None
    return float(source.nbytes) if source is not None else 0.0
