"""The modules that a job calls itself, for fixes that change how a model runs.

A model's call calls those of its parts; only the outermost is the job's. They are seen in the job's first
calls; then torch is as it was, and what stays is what a fix did to the models themselves.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterable
from typing import Any

from findwall.apply.registry import REGISTRY, Call, Put

BY = "models called"
WAITS = "a fix or a trial waits for the first calls of models, and is gone after them"
SEEN_CALLS = 64  # outermost ones: a model that was not called by then is none of the step's. Chosen by hand.
MOST_CALLS = 4096  # that somebody who looks at each of them may see. Chosen by hand.

Found = Callable[[Any, tuple[Any, ...]], None]


class Roots:
    """Tells of each outermost module once, right before its first call, with what it is called with."""

    def __init__(self, torch: Any, before: Iterable[Any] = ()) -> None:
        self._module = torch.nn.Module
        self.before = weakref.WeakSet(before)  # models that the job has called, where this begins anew
        self._put: Put | None = None
        self._found: list[Found] = []
        self._outside: list[Found] = []
        self._known: weakref.WeakSet[Any] = weakref.WeakSet()
        self._inside = threading.local()
        self._left = SEEN_CALLS
        self._last: list[Callable[[], None]] = []
        self._after: list[Callable[[Any], None]] = []
        self._each: list[Callable[[Any], bool]] = []
        # By who asked: what goes around a function that is compiled for the layers that it calls.
        self.around_functions: dict[Any, Callable[[Call], Call]] = {}

    def tell(self, found: Found, outside: bool = False) -> None:
        """`outside`: after the others, for what stands around what they make of the module."""
        self._watch()
        (self._outside if outside else self._found).append(found)

    def after(self, gave: Callable[[Any], None]) -> None:
        """Call this with what each call that is seen gives."""
        self._watch()
        self._after.append(gave)

    def each(self, calls: Callable[[Any], bool]) -> None:
        """Call this with the model before each of its calls, until it has seen enough and returns False."""
        self._watch()
        self._each.append(calls)

    def at_last(self, call: Callable[[], None]) -> None:
        """Call this with the last call that is seen: by then the job has warmed up."""
        self._watch()
        self._last.append(call)

    @property
    def models(self) -> list[Any]:
        return [*self.before, *self._known]

    def stop(self) -> None:
        """Before all its calls were seen."""
        self._left = -MOST_CALLS
        if self._put is not None:
            self._put.undo()

    def _watch(self) -> None:
        if not (self._found or self._outside or self._last or self._after or self._each):
            self._put = REGISTRY.wrap(BY, self._module, "__call__", self._watched, past_end=WAITS)

    def _watched(self, original: Call) -> Call:
        def call(module: Any, *args: Any, **kwargs: Any) -> Any:
            if getattr(self._inside, "yes", False) or self._is_over:
                return original(module, *args, **kwargs)
            self._inside.yes = True
            try:
                self._outermost(module, args)
                result = original(module, *args, **kwargs)
                for gave in self._after:
                    with contextlib.suppress(Exception):  # a look: it may not break the job
                        gave(result)
                return result
            finally:
                self._inside.yes = False

        return call

    @property
    def _is_over(self) -> bool:
        return self._left <= (SEEN_CALLS - MOST_CALLS if self._each else 0)

    def _outermost(self, module: Any, args: tuple[Any, ...]) -> None:
        self._left -= 1
        if self._left == 0:
            for call in self._last:
                call()
        # A loss is a module as well: only what has parameters is a model.
        if next(module.parameters(), None) is not None:
            self._model(module, args)
        if self._is_over and self._put is not None:
            self._put.undo()

    def _model(self, module: Any, args: tuple[Any, ...]) -> None:
        self._each = [calls for calls in self._each if _wants_more(calls, module)]
        if module not in self._known and self._left >= 0:
            self._known.add(module)
            for found in (*self._found, *self._outside):
                with contextlib.suppress(Exception):  # a fix that fails here is one that nothing shows of
                    found(module, args)


def _wants_more(calls: Callable[[Any], bool], module: Any) -> bool:
    try:
        return calls(module)
    except Exception:  # noqa: BLE001 - a look: it may not break the job, and one that fails is over
        return False


_of_torch: dict[int, Roots] = {}


def roots(torch: Any) -> Roots:
    """One for all fixes of a process."""
    return _of_torch.setdefault(id(torch), Roots(torch))


def roots_anew(torch: Any) -> Roots:
    """For a fix that is made in a job that runs: its models are told again, as they are called next."""
    last = roots(torch)
    last.stop()
    _of_torch[id(torch)] = Roots(torch, last.models)
    return _of_torch[id(torch)]
