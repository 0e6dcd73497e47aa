"""Foreach and fused optimizers, from their tensor lists.

Long lists are recorded without sizes. Then the figures are those of one parameter, and the count comes from
the gradients of the backward pass.
"""

from __future__ import annotations

import math
import re
from collections import Counter

import numpy as np

from findwall.model.events import Kind, Timeline
from findwall.work.op_arguments import Arguments, Work
from findwall.work.op_families import TORCH_LIKE, Family

_FP32_BYTES = 4.0  # assumed of every element; the kernel's own name corrects it
# op -> (lists read, lists written) an element, and vector operations
_FUSED: dict[str, tuple[int, int, float]] = {
    "_fused_adam_": (4, 3, 60.0),
    "_fused_adamw_": (4, 3, 60.0),
    "_fused_adagrad_": (3, 2, 45.0),
}
_OVERWRITES = ("_foreach_zero_", "_foreach_fill_")


def is_list_op(namespace: str, op: str) -> bool:
    return namespace in TORCH_LIKE and (
        op.startswith("_foreach_")
        or op in _FUSED
        or op == "_fused_sgd_"
        or op == "_amp_foreach_non_finite_check_and_unscale_"
    )


def optimizer_work(op: str, arguments: Arguments) -> Work | None:
    reads, writes, operations = _traffic(op, arguments)
    sizes = [tensor.elements for tensor in arguments.tensor_list(0)]
    elements = float(sum(sizes)) if sizes else 1.0
    return Work(
        flops=operations * elements,
        read_bytes=reads * elements * _FP32_BYTES,
        write_bytes=writes * elements * _FP32_BYTES,
        math="fp32",
        per_parameter=not sizes,
        type_from_kernel=True,
    )


def _traffic(op: str, arguments: Arguments) -> tuple[float, float, float]:
    """Lists read and written. An op in place reads its first list too, unless it only overwrites it."""
    if op in _FUSED:
        return _FUSED[op]
    lists = sum(arguments.is_list(index) for index in range(len(arguments)))
    if op == "_fused_sgd_":
        momentum = (arguments.number(4) or 0.0) != 0.0
        return (3.0, 2.0, 6.0) if momentum else (2.0, 1.0, 4.0)
    if op in ("_foreach_norm", "_foreach_max"):
        return 1.0, 0.0, 2.0
    if op in _OVERWRITES:
        return 0.0, 1.0, 0.0
    if op == "_foreach_copy_":
        return 1.0, 1.0, 0.0
    if op.startswith("_foreach_addcmul"):  # of the gradients with themselves: they are read once
        lists = 2
    return float(max(lists, 1)), 1.0, 20.0 if ("sqrt" in op or "div" in op) else 4.0


# -- how many elements the parameters have, by the rows that accumulate their gradients -------------------


_ACCUMULATE = re.compile("^torch::autograd::AccumulateGrad")


def parameter_count(timeline: Timeline, steps: int | None = None) -> float | None:
    """None without recorded shapes. Every backward pass writes each gradient once.

    The rarest shape (an embedding, a head) occurs once a pass, so its count is the number of passes.
    """
    rows = timeline.rows_named(_ACCUMULATE, Kind.OP)
    seen: Counter[tuple[int, ...]] = Counter()
    for index, count in zip(*np.unique(timeline.events.inputs[rows], return_counts=True), strict=True):
        inputs = timeline.details.inputs_of(int(index))
        if inputs is not None and inputs.dims:
            seen[inputs.shape(0)] += int(count)
    total = sum(math.prod(shape) * count for shape, count in seen.items())
    return total / max(min(seen.values()), steps or 0) if total else None


FAMILY = Family(others=is_list_op, work=lambda _, name, arguments: optimizer_work(name, arguments))
