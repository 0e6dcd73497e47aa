"""The calls of a job's models, for fixes that change what they are called with or what runs around them.

A fix stands around each call of an outermost module: outside the compiler, so that it and a compiled model do
not meet. What proves it is looked for in the first call alone, which runs uncompiled for that.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any

from findwall.apply.applying import Effect
from findwall.apply.registry import APPLIED, REGISTRY
from findwall.apply.roots import BY, roots

Call = Callable[..., Any]
Around = Callable[[Call], Call]  # a call as it was; as it is with the fix
Look = AbstractContextManager[Any]  # around the first call
TAKEN_OUT = "the job compiles its model in place after its first call, which takes this out again"
_PLACE = "_compiled_call_impl"  # torch calls what is here in place of a module, for `module.compile()`


class InPlace:
    """What stands in the place of a module's calls. Copies and files of the module have none of it: torch's
    own leave the place out, and those that a job's classes make find nothing here to copy."""

    def __deepcopy__(self, _memo: Any) -> None:
        return None

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return type(None), ()


class Model(InPlace):
    """One outermost module, and what fixes do around its calls. No other module's calls pay for it."""

    def __init__(self, module: Any) -> None:
        self.module = module
        self._before: Call | None = module.__dict__.get(_PLACE)
        self._inside: Call = self._before or module._call_impl
        self._looks: list[Look] = []
        self._call: Call = self._innermost
        place(module, self, self._before)

    @classmethod
    def of(cls, module: Any) -> Model:
        """One for all fixes of a module."""
        placed = module.__dict__.get(_PLACE)
        return placed if isinstance(placed, Model) else cls(module)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(*args, **kwargs)

    @property
    def can_look(self) -> bool:
        """What the job compiled with `torch.compile(model)` itself has no call without the compiler."""
        return not hasattr(self.module, "_orig_mod")

    def around(self, make: Around) -> None:
        """For good."""
        self._call = make(self._call)

    def look_at_first_call(self, look: Look) -> None:
        self._looks.append(look)

    def _innermost(self, *args: Any, **kwargs: Any) -> Any:
        if not self._looks:
            return self._inside(*args, **kwargs)
        # The compiler gives up for good on what it first meets under a mode or hook of ours: it comes later.
        looks, self._looks = self._looks, []
        with ExitStack() as stack:
            for look in looks:
                stack.enter_context(look)
            return self.module._call_impl(*args, **kwargs)


def place(module: Any, call: Call, before: Call | None) -> None:
    """Put this in the place of a module's calls; the registry can take it back, and keeps no module alive."""
    module.__dict__[_PLACE] = call
    there, placed = weakref.ref(module), weakref.ref(call)

    def take_back() -> bool:
        held = there()
        if held is None or held.__dict__.get(_PLACE) is not placed():
            return held is None
        if before is None:
            del held.__dict__[_PLACE]
        else:
            held.__dict__[_PLACE] = before
        return True

    REGISTRY.hold(BY, f"{type(module).__qualname__}().{_PLACE}", take_back, past_end=APPLIED)


def is_layer(module: Any) -> bool:
    """One of torch's own that has no parts: a job that calls it itself has its model in its own code."""
    return type(module).__module__.startswith("torch.nn.") and next(module.children(), None) is None


def was_taken_out(module: weakref.ref[Any], model: weakref.ref[Model]) -> bool:
    there = module()
    placed: Any = None if there is None else there.__dict__.get(_PLACE)
    while hasattr(placed, "__wrapped__"):  # the steps may be watched from around it
        placed = placed.__wrapped__
    return there is not None and (placed is None or placed is not model())


Make = Callable[[Model], str]  # makes the fix in one model, or says why it cannot


def each_model(torch: Any, effect: Effect, make: Make) -> None:
    """Make a fix in each model right before its first call. A job may have other models, that it is not for:
    why it cannot be made counts only if it was made in none."""
    reasons: list[str] = []
    made: list[tuple[weakref.ref[Any], weakref.ref[Model]]] = []

    def found(module: Any, _args: tuple[Any, ...]) -> None:
        try:
            model = Model.of(module)
            why = make(model)
            made.append((weakref.ref(module), weakref.ref(model)))
        except Exception as error:  # noqa: BLE001 - fail open: the job runs on without this fix
            why = f"{type(error).__name__}: {error}"
        if why:
            reasons.append(why)

    def why_none() -> str:
        if made and all(was_taken_out(*one) for one in made):
            effect.cannot(TAKEN_OUT)
        if reasons and not effect.seen:
            effect.cannot(reasons[0])
        return ""

    roots(torch).tell(found, outside=True)
    effect.at_end(why_none)
