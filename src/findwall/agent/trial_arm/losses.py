"""The losses of a job's first steps, found at the root of `backward()`: what two runs of it are compared by.

A loss is kept as it is on its device, and read only when all is measured: reading it would make the host
wait.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable
from typing import Any

from findwall.apply.registry import COMPARES, REGISTRY

BROKEN = 1e300  # stands for NaN or infinity
KEPT = 64  # of them: the first steps tell whether two runs do the same


class Losses:
    """Notes the root of each backward pass until there are enough."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._kept: list[Any] = []
        # `Tensor.backward` calls the other one by its module, so this is where both pass.
        REGISTRY.wrap("trial losses", torch.autograd, "backward", self._watched, past_trace=COMPARES)

    def _watched(self, original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def backward(tensors: Any, *args: Any, **kwargs: Any) -> None:
            if len(self._kept) < KEPT:
                if not isinstance(tensors, self._torch.Tensor):
                    tensors = tuple(tensors)  # they may come from a generator, which gives them once
                with contextlib.suppress(Exception):  # a look: it may not break the job
                    self._note(tensors)
            original(tensors, *args, **kwargs)

        return backward

    def _note(self, tensors: Any) -> None:
        root = tensors if isinstance(tensors, self._torch.Tensor) else next(iter(tensors), None)
        if isinstance(root, self._torch.Tensor) and root.numel() == 1:
            self._kept.append(root.detach().clone())

    def read(self) -> list[float]:
        return read_kept(self._kept)


def read_kept(kept: list[Any]) -> list[float]:
    """NaN and infinity are no JSON: a loss that broke is told as a number that no other loss is near."""
    found = (float(one) for one in kept)
    return [one if math.isfinite(one) else BROKEN for one in found]
