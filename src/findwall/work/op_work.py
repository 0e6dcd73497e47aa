"""FLOPs and bytes of one op from its recorded inputs, by the family it belongs to."""

from __future__ import annotations

import math

from findwall.model.events import Inputs
from findwall.work.op_arguments import Arguments, Work
from findwall.work.op_families import TORCH_LIKE, all_families, models


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
    for family in all_families():
        if family.others is not None and family.others(namespace, name):
            return family.work(namespace, name, arguments) if family.work is not None else None
    model = models().get(name) if namespace in TORCH_LIKE else None
    return model(name, arguments) if model is not None else None


def _sane(work: Work | None) -> Work | None:
    """Figures that a real op can have, or nothing."""
    if work is None or not math.isfinite(work.flops + work.nbytes) or work.flops < 0 or work.nbytes < 0:
        return None
    return work
