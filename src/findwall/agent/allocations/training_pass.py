"""Whether a request for memory that failed was of a training step, by what the exception still reaches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from findwall.agent.allocations.failed_model import CALLS
from findwall.agent.allocations.own_variables import variables
from findwall.model.answers.memory_answer import MemoryPhase

WITHOUT_GRADIENTS = "torch/utils/_contextlib.py"  # decorators such as `torch.no_grad()`
FUNCTIONS = "torch/nn/functional.py"


def is_of_training(error: BaseException, torch: Any, phase: MemoryPhase) -> bool:
    """In backward and in the optimizer's step it is. Else where a forward pass is under way whose tensors
    lead back to weights, or, in its first layer, that of a model that is told to train."""
    if phase in ("backward", "optimizer"):
        return True
    given: list[Any] = []  # to modules and functions inside of the outermost module
    outer: Any = None
    first: list[Any] = []  # given to that
    for path, function, values in _frames(error):
        if path.endswith(WITHOUT_GRADIENTS):
            return False
        if path.endswith(FUNCTIONS):
            given += _tensors(torch, values.values())
        elif path.endswith(CALLS[0]) and function == CALLS[1]:
            mine = _tensors(torch, values.get("args") or ())
            if outer is None:
                outer, first = values.get("self"), mine
            given += mine
    if any(one.grad_fn is not None for one in given):
        return True
    beyond = [one for one in given if all(one is not other for other in first)]
    return bool(getattr(outer, "training", False)) and not beyond


def _frames(error: BaseException) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """File, function and variables, the outermost first; variables of torch's own alone."""
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        path = code.co_filename.replace("\\", "/")
        is_torchs = path.endswith((CALLS[0], FUNCTIONS))
        yield path, code.co_name, dict(variables(trace.tb_frame)) if is_torchs else {}
        trace = trace.tb_next


def _tensors(torch: Any, values: Any) -> list[Any]:
    """Of numbers that may have a gradient, weights left out."""
    found = [one for one in values if type(one) is torch.Tensor]
    return [one for one in found if one.is_floating_point() or one.is_complex()]
