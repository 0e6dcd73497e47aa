"""States of optimizers, laid in memory as the weights that they belong to.

A checkpoint has them as the weights lay when it was saved. torch's fused steps on the CPU pair a weight with
its states by their place in memory, whatever the strides say: in another layout they train something else.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary

from findwall.apply.applying import is_compiling_of
from findwall.apply.registry import APPLIED, REGISTRY, STEP_PRE_HOOK


class LaidStates:
    """Looked at before the first step of each optimizer, and before the first after it loaded others."""

    def __init__(self, torch: Any, laid: Callable[[], object]) -> None:
        """`laid`: told when some were in another layout."""
        self._torch, self._laid = torch, laid
        self._known: WeakKeyDictionary[Any, int] = WeakKeyDictionary()  # the states that were looked at
        self._compiling, self._is_hooked = is_compiling_of(torch), False

    def follow(self) -> None:
        """Weights have just been laid anew."""
        self._known.clear()
        if not self._is_hooked:
            self._is_hooked = True
            with suppress(AttributeError):  # an old torch has no such hook
                optimizers = importlib.import_module("torch.optim.optimizer")  # torch.optim hides it
                hook = optimizers.register_optimizer_step_pre_hook(self._before_step)
                REGISTRY.hold("laid states", STEP_PRE_HOOK, hook.remove, past_end=APPLIED)

    def _before_step(self, optimizer: Any, *_: Any) -> None:
        if self._compiling():
            return
        with suppress(Exception):  # fail open: it steps with the states that it has
            now = id(optimizer.state)  # loading puts another in its place
            if self._known.get(optimizer) != now:
                self._known[optimizer] = now
                self._lay(optimizer)

    def _lay(self, optimizer: Any) -> None:
        torch, found = self._torch, False
        for group in optimizer.param_groups:
            for weight in group["params"]:
                states = optimizer.state.get(weight, {})
                for name, state in states.items():
                    if _lies_otherwise(torch, state, weight):
                        with torch.no_grad():
                            kept = torch.empty_like(weight, dtype=state.dtype, device=state.device)
                            states[name] = kept.copy_(state)
                        found = True
        if found:
            self._laid()


def _lies_otherwise(torch: Any, state: Any, weight: Any) -> bool:
    return (
        isinstance(state, torch.Tensor)
        and state.shape == weight.shape
        and state.layout == weight.layout == torch.strided
        and state.stride() != weight.stride()
    )
