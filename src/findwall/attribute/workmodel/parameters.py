"""How many elements a model's parameters have, from the rows that accumulate their gradients."""

from __future__ import annotations

import math

import numpy as np

from findwall.model.events import Kind, Timeline

_ACCUMULATE = "torch::autograd::AccumulateGrad"


def parameter_count(timeline: Timeline, steps: int | None = None) -> float | None:
    """None without recorded shapes. Every backward pass writes each gradient once.

    The rarest shape (an embedding, a head) occurs once a pass, so its count is the number of passes.
    """
    wanted = np.array([name.startswith(_ACCUMULATE) for name in timeline.names], bool)
    rows = timeline.rows(Kind.OP)
    rows = rows[wanted[timeline.events.name[rows]]] if len(rows) else rows
    rows = rows[timeline.events.inputs[rows] >= 0]
    if len(rows) == 0:
        return None
    distinct, counts = np.unique(timeline.events.inputs[rows], return_counts=True)
    seen: dict[tuple[int, ...], int] = {}
    for index, count in zip(distinct.tolist(), counts.tolist(), strict=True):
        shape = _shape(timeline, index)
        seen[shape] = seen.get(shape, 0) + count
    passes = max(min(seen.values()), steps or 0)
    total = sum(math.prod(shape) * count for shape, count in seen.items())
    return total / passes if total else None


def _shape(timeline: Timeline, index: int) -> tuple[int, ...]:
    inputs = timeline.details.inputs_of(index)
    if inputs is None or not inputs.dims:
        return (0,)
    return tuple(extent for extent in inputs.dims[0] if isinstance(extent, int))
