"""What a job trains that ran out of memory, and how far its forward pass had come: its step, as it may be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from typing import Any

from findwall.agent.allocations.live_tensors import MOST_TENSORS, is_plain, stepped_by
from findwall.agent.allocations.own_variables import variables
from findwall.model.answers.memory_answer import FailedModel
from findwall.model.memory_history import HOST

FEWEST_ALIKE = 3  # children of one class: fewer are no stack of layers
CALLS = "torch/nn/modules/module.py", "_call_impl"


def failed_model(error: BaseException, torch: Any, device: int, optimizers: list[Any]) -> FailedModel:
    """`optimizers`: all that are alive."""
    weights: Counter[int] = Counter()
    state, passing, seen = 0.0, 0, set()
    for optimizer in optimizers:
        mine = [one for one in stepped_by(optimizer)[:MOST_TENSORS] if _is_trained(torch, one, device)]
        mine = [one for one in mine if id(one) not in seen]
        seen |= {id(one) for one in mine}
        sizes = [int(one.nbytes) for one in mine]
        weights.update(sizes)
        state += _state_times(optimizer.defaults) * sum(sizes)
        passing += _passing(optimizer.defaults, sizes, device)
    total = sum(size * count for size, count in weights.items())
    share = None
    with suppress(Exception):  # modules of the job's own may be anything
        share = forward_share(error, torch)
    return FailedModel(sorted(weights.items()), state / total if total else 0.0, passing, share)


def _is_trained(torch: Any, one: Any, device: int) -> bool:
    here = is_plain(torch, one) and (HOST if one.device.type == "cpu" else one.device.index) == device
    return here and bool(one.requires_grad)


def _state_times(defaults: dict[str, Any]) -> float:
    """Bytes of state for each byte of a weight, by the settings that torch's optimizers have for it."""
    moments = len(defaults.get("betas") or ())
    return moments + sum(bool(defaults.get(name)) for name in ("amsgrad", "momentum", "alpha"))


def _passing(defaults: dict[str, Any], sizes: list[int], device: int) -> int:
    """What one update makes and gives back: for all weights together, or for one after the other."""
    if not sizes or defaults.get("fused") or not defaults.get("betas"):
        return 0
    for_all = defaults.get("foreach")
    return sum(sizes) if for_all or (for_all is None and device != HOST) else 2 * max(sizes)


def forward_share(error: BaseException, torch: Any) -> tuple[float, float] | None:
    """The least and the most of the forward pass that was done: by the place, among those that are alike, of
    the outermost such module that was being called."""
    for parent, child in pairwise(_called(error, torch)):
        for among in (parent, *parent._modules.values()):
            alike = [one for one in getattr(among, "_modules", {}).values() if type(one) is type(child)]
            place = next((at for at, one in enumerate(alike) if one is child), None)
            if place is not None and len(alike) >= FEWEST_ALIKE:
                return place / len(alike), (place + 1) / len(alike)
    return None


def _called(error: BaseException, torch: Any) -> Iterator[Any]:
    """Modules on the way to the exception, the outermost first."""
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if code.co_name == CALLS[1] and code.co_filename.replace("\\", "/").endswith(CALLS[0]):
            one = next((value for name, value in variables(trace.tb_frame) if name == "self"), None)
            if issubclass(type(one), torch.nn.Module):
                yield one
        trace = trace.tb_next
