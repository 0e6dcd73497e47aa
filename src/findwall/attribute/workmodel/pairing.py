"""Traces that record no scalars: a convolution's result is read off its gradient in the backward pass."""

from __future__ import annotations

import numpy as np

from findwall.attribute.workmodel.convolution import FORWARD, WHOLE_BACKWARD
from findwall.model.events import Inputs, Kind, Timeline


def without_namespace(name: str) -> str:
    return name.rsplit("::", 1)[-1]


class Results:
    """Shapes (x, weight) to the one result they give anywhere in the trace."""

    def __init__(self, timeline: Timeline) -> None:
        self._found: dict[tuple[tuple[int, ...], tuple[int, ...]], tuple[int, ...] | None] = {}
        wanted = [at for at, name in enumerate(timeline.names) if without_namespace(name) in WHOLE_BACKWARD]
        if not wanted:
            return
        rows = timeline.rows(Kind.OP)
        rows = rows[np.isin(timeline.events.name[rows], wanted)]
        for index in np.unique(timeline.events.inputs[rows]).tolist():
            self._learn(timeline.details.inputs_of(index))

    def _learn(self, inputs: Inputs | None) -> None:
        if inputs is None or len(inputs.dims) < 3:
            return
        x, gradient, weight = (_shape(inputs, index) for index in range(3))
        known = self._found.setdefault((x, weight), gradient)
        if known != gradient:  # the same shapes at two strides: it cannot be told which
            self._found[(x, weight)] = None

    def completed(self, op_name: str, inputs: Inputs | None) -> Inputs | None:
        """A forward convolution's inputs with its result after them, where that is known."""
        if inputs is None or inputs.concrete or without_namespace(op_name) not in FORWARD:
            return None
        if len(inputs.dims) < 2 or len(inputs.types) < 2:
            return None
        result = self._found.get((_shape(inputs, 0), _shape(inputs, 1)))
        if result is None:
            return None
        return Inputs(dims=[*inputs.dims[:2], list(result)], types=[*inputs.types[:2], inputs.types[0]])


def _shape(inputs: Inputs, index: int) -> tuple[int, ...]:
    return tuple(extent for extent in inputs.dims[index] if isinstance(extent, int))
