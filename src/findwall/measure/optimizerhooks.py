"""The hooks a compiler may trace: `optimizer.step()` inside a compiled function calls them too.

They stand alone in this file because every other module of the measurement is hidden from the compiler, while
these must be traceable: to a tracer the first line is a constant, and nothing of findwall enters the graph.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

Hook = Callable[[Any, Any, Any], None]


def make_hooks(
    compiling: Callable[[], bool], began: Callable[[Any, bool], None], ended: Callable[[Any], None]
) -> tuple[Hook, Hook]:
    def before(optimizer: Any, args: Any, kwargs: Any) -> None:
        if compiling():
            return
        # Lightning hands forward and backward in as a closure: then step() is not the optimizer's time.
        began(optimizer, len(args) < 2 and not kwargs)

    def after(optimizer: Any, args: Any, kwargs: Any) -> None:
        if compiling():
            return
        ended(optimizer)

    return before, after


def tell_after(
    hook_step: Callable[..., Any], compiling: Callable[[], bool], left: Callable[[Any, bool], None]
) -> Callable[..., Any]:
    """torch puts its hooks around step() by `hook_step`: call `left(optimizer, failed)` outside of them."""

    def hook_and_tell(function: Callable[..., Any]) -> Callable[..., Any]:
        hooked = hook_step(function)

        @functools.wraps(hooked)
        def step(*args: Any, **kwargs: Any) -> Any:
            if compiling():
                return hooked(*args, **kwargs)
            try:
                result = hooked(*args, **kwargs)
            except BaseException:
                left(args[0], True)
                raise
            left(args[0], False)
            return result

        return step

    return hook_and_tell
