"""One op, its recorded inputs, its work: the families in order of how often they are asked for."""

from __future__ import annotations

from collections.abc import Callable

from findwall.attribute.workmodel import matmul, movement, pointwise
from findwall.attribute.workmodel.arguments import Arguments
from findwall.attribute.workmodel.work import Work
from findwall.model.events import Inputs

Model = Callable[[str, Arguments], "Work | None"]

_FAMILIES: tuple[tuple[frozenset[str], Model], ...] = (
    (matmul.OPS, matmul.matmul_work),
    (pointwise.OPS, pointwise.pointwise_work),
    (movement.OPS, movement.movement_work),
)
_MODELS: dict[str, Model] = {op: model for ops, model in reversed(_FAMILIES) for op in ops}


def op_work(op_name: str, inputs: Inputs | None) -> Work | None:
    """The work of an op, or None where there is no model or its inputs were not recorded."""
    if inputs is None:
        return None
    name = op_name.rsplit("::", 1)[-1]
    model = _MODELS.get(name)
    if model is None:
        return None
    return model(name, Arguments(inputs))
