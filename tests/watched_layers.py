"""Layers whose calls are looked at. In a file of their own: frames of the test's file are the job's there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from findwall.apply.layer_calls import Instead, LayerCalls

Layer = Callable[[], None]


class Watched:
    """As `roots` has them looked at, with functions in place of those that were found that do the same."""

    def __init__(self) -> None:
        self.calls = LayerCalls()
        self.names: list[str] = []  # of what was found

    def layer(self) -> Layer:
        def call() -> None:
            self._look(call)

        return call

    def _look(self, module: Any) -> None:
        code = self.calls.saw(module)
        if code is not None:
            self.names.append(code.co_name)
            self.calls.instead[code] = Instead(code, lambda same: same)
