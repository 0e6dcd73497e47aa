"""One op, its recorded inputs, its work."""

from __future__ import annotations

import math
from collections.abc import Callable

from findwall.attribute.workmodel import (
    attention,
    convolution,
    creation,
    indexing,
    matmul,
    movement,
    normalization,
    pointwise,
    recurrence,
    reduction,
)
from findwall.attribute.workmodel.arguments import Arguments
from findwall.attribute.workmodel.compiled import compiled_work, is_compiled
from findwall.attribute.workmodel.optimizer import is_list_op, optimizer_work
from findwall.attribute.workmodel.serving import is_serving, serving_work
from findwall.attribute.workmodel.work import Work
from findwall.model.events import Inputs

Model = Callable[[str, Arguments], "Work | None"]

_FAMILIES: tuple[tuple[frozenset[str], Model], ...] = (
    (matmul.OPS, matmul.matmul_work),
    (convolution.OPS, convolution.convolution_work),
    (attention.OPS, attention.attention_work),
    (pointwise.OPS, pointwise.pointwise_work),
    (movement.OPS, movement.movement_work),
    (normalization.OPS, normalization.norm_work),
    (reduction.OPS, reduction.reduction_work),
    (indexing.OPS, indexing.indexing_work),
    (creation.OPS, creation.creation_work),
    (recurrence.OPS, recurrence.recurrent_work),
)
_MODELS: dict[str, Model] = {op: model for ops, model in reversed(_FAMILIES) for op in ops}
# Whose short names mean what torch's mean.
_NAMESPACES = (
    "aten",
    "prims",
    "flash_attn",
    "flash_attn_2_cuda",
    "flash_attn_3",
    "xformers",
    "torch_attn",
    "aiter",
)


def op_work(op_name: str, inputs: Inputs | None) -> Work | None:
    """The work of an op, or None where there is no model or its inputs were not recorded."""
    if inputs is None:
        return None
    try:
        return _sane(_work(op_name, inputs))
    except (ArithmeticError, IndexError, TypeError, ValueError):
        # A file can record any shapes under an op's name; what does not fit the op has no model.
        return None


def _work(op_name: str, inputs: Inputs) -> Work | None:
    namespace, _, name = op_name.rpartition("::")
    arguments = Arguments(inputs)
    if not namespace:
        return compiled_work(name, arguments) if is_compiled(name) else None
    if is_serving(namespace, name):
        return serving_work(namespace, name, arguments)
    if namespace not in _NAMESPACES:
        return None
    if is_list_op(name):
        return optimizer_work(name, arguments)
    model = _MODELS.get(name)
    return model(name, arguments) if model is not None else None


def _sane(work: Work | None) -> Work | None:
    """Figures that a real op can have, or nothing."""
    if work is None or not math.isfinite(work.flops + work.nbytes) or work.flops < 0 or work.nbytes < 0:
        return None
    return work
