"""The loaders that feed a job's steps, for fixes that change how they are fed.

A loader is changed when it is first gone through: then it is known whether it feeds training. What a job goes
through without gradients, while it has an optimizer, is its evaluation, and left alone.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

Found = Callable[[Any], None]


class Loaders:
    """Tells of each loader that feeds the steps once, right before its first pass."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._found: list[Found] = []
        self._known: set[int] = set()
        self._trains = False

    def tell(self, found: Found) -> None:
        if not self._found:
            loader = self._torch.utils.data.DataLoader
            loader.__iter__ = self._watched(loader.__iter__)
            optimizer = self._torch.optim.Optimizer
            optimizer.__init__ = self._noted(optimizer.__init__)
        self._found.append(found)

    def _watched(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        @functools.wraps(original)
        def iterate(loader: Any) -> Any:
            if id(loader) not in self._known and self._feeds_steps():
                self._known.add(id(loader))
                for found in self._found:
                    found(loader)
            return original(loader)

        return iterate

    def _noted(self, original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def make(optimizer: Any, *args: Any, **kwargs: Any) -> None:
            self._trains = True
            original(optimizer, *args, **kwargs)

        return make

    def _feeds_steps(self) -> bool:
        return bool(self._torch.is_grad_enabled()) or not self._trains


_of_torch: dict[int, Loaders] = {}


def loaders(torch: Any) -> Loaders:
    """One for all fixes of a process."""
    return _of_torch.setdefault(id(torch), Loaders(torch))


def set_on(loader: Any, **values: Any) -> None:
    """Attributes of a loader that forbids to set them once it is made."""
    loader.__dict__.update(values)
