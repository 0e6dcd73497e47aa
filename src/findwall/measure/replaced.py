"""Functions of torch that a fix replaces for a while, and puts back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Make = Callable[[Callable[..., Any]], Callable[..., Any]]  # from the original


class Replaced:
    """What was replaced, to be undone in the opposite order."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def put(self, home: Any, name: str, make: Make) -> None:
        own, original = vars(home).get(name), getattr(home, name)
        setattr(home, name, make(original))
        # What a class only inherits is not its own afterwards either.
        self.undo_by((lambda: delattr(home, name)) if own is None else (lambda: setattr(home, name, own)))

    def undo_by(self, call: Callable[[], None]) -> None:
        self._undo.append(call)

    def remove(self) -> None:
        while self._undo:
            self._undo.pop()()


def is_compiling_of(torch: Any) -> Callable[[], bool]:
    """What the compiler takes for true while it traces: code of the job's that it reads there stays as it
    is."""
    found: Callable[[], bool] = getattr(getattr(torch, "compiler", None), "is_compiling", lambda: False)
    return found
