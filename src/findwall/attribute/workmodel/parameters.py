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
    sizes = [_elements(timeline, int(index)) for index in distinct]
    passes = int(counts.min())
    if steps is not None and steps > 0:
        passes = max(passes, steps)
    total = sum(size * int(count) for size, count in zip(sizes, counts, strict=True))
    return total / passes if total else None


def _elements(timeline: Timeline, index: int) -> int:
    inputs = timeline.details.inputs_of(index)
    if inputs is None or not inputs.dims:
        return 0
    return math.prod(extent for extent in inputs.dims[0] if isinstance(extent, int))
