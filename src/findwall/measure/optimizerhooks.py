"""The two hooks a compiler may trace: `optimizer.step()` inside a compiled function calls them too.

They stand alone in this file because every other module of the measurement is hidden from the compiler, while
these must be traceable: to a tracer the first line is a constant, and nothing of findwall enters the graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Hook = Callable[[Any, Any, Any], None]


def make_hooks(
    compiling: Callable[[], bool], began: Callable[[Any], None], ended: Callable[[Any], None]
) -> tuple[Hook, Hook]:
    def before(optimizer: Any, args: Any, kwargs: Any) -> None:
        if compiling():
            return
        began(optimizer)

    def after(optimizer: Any, args: Any, kwargs: Any) -> None:
        if compiling():
            return
        ended(optimizer)

    return before, after
