"""What proves autocast: number formats of products in a first call, or of what compiled code gave."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from findwall.apply.applying import Effect
from findwall.apply.model_calls import Model, each_model
from findwall.apply.registry import REGISTRY, Call
from findwall.apply.seenops import PRODUCTS, seen_ops

OWN = "the job uses autocast itself"
# Calls of a model that the job compiled, until something of it is seen. Chosen by hand.
LOOKS_AT_COMPILED = 8
BESIDE = ", beside those in the job's own autocast"
SIXTEEN_BIT_NAMES = ("bfloat16", "float16")  # as torch has them


@contextmanager
def products_seen(torch: Any, effect: Effect, told: str) -> Iterator[None]:
    formats: list[str] = []
    with _own_autocast(torch) as own, seen_ops(torch, _note(formats, lambda: not own.inside)):
        yield
    narrow = formats.count(told)
    if narrow:
        effect.saw(_products(narrow, told) + (BESIDE if own.seen else ""))
    elif own.seen:
        effect.cannot(OWN)


def _products(many: int, told: str) -> str:
    return f"{many:,} {'product' if many == 1 else 'products'} ran in {told} in the first call"


def is_narrow(dtype: Any) -> bool:
    return str(dtype).removeprefix("torch.") in SIXTEEN_BIT_NAMES


def _note(formats: list[str], counts: Callable[[], bool] = lambda: True) -> Callable[[str, str], None]:
    def note(name: str, number_format: str) -> None:
        if PRODUCTS.search(name) and counts():
            formats.append(number_format)

    return note


def narrow_seen(torch: Any, effect: Effect) -> None:
    """In which numbers the products of the job's models run, whoever asked for that."""
    formats = (torch.bfloat16, torch.float16)

    def look(model: Model) -> str:
        if model.can_look:
            model.look_at_first_call(_narrow_products(torch, effect))
        else:
            for dtype in formats:
                model.around(functools.partial(kept_seen, torch, effect, dtype=dtype))
        return "no product of the model was seen to run in 16 bits"

    each_model(torch, effect, look)


@contextmanager
def _narrow_products(torch: Any, effect: Effect) -> Iterator[None]:
    formats: list[str] = []
    with seen_ops(torch, _note(formats)):
        yield
    for told in SIXTEEN_BIT_NAMES:
        if narrow := formats.count(told):
            effect.saw(_products(narrow, told))


class _Own:
    """Autocast in 16 bits that a model turns on inside, around a part of it."""

    def __init__(self) -> None:
        self.inside: list[Any] = []
        self.seen = False

    def entering(self, original: Call) -> Call:
        def enter(one: Any) -> Any:
            if one._enabled and is_narrow(one.fast_dtype):
                self.seen = True
                self.inside.append(one)
            return original(one)

        return enter

    def leaving(self, original: Call) -> Call:
        def leave(one: Any, *args: Any) -> Any:
            self.inside = [other for other in self.inside if other is not one]
            return original(one, *args)

        return leave


@contextmanager
def _own_autocast(torch: Any) -> Iterator[_Own]:
    own, autocast = _Own(), torch.autocast
    with (
        REGISTRY.wrapped("autocast seen", autocast, "__enter__", own.entering),
        REGISTRY.wrapped("autocast seen", autocast, "__exit__", own.leaving),
    ):
        yield own


def kept_seen(torch: Any, effect: Effect, call: Call, dtype: Any) -> Call:
    """What a compiled model or function gives, or keeps for its backward pass."""
    left = LOOKS_AT_COMPILED

    def looked_at(*args: Any, **kwargs: Any) -> Any:
        nonlocal left
        result = call(*args, **kwargs)
        if left > 0 and not effect.seen:
            left -= 1
            kept = _kept(torch, result, dtype)
            if kept:
                told, many = str(dtype).removeprefix("torch."), "tensors" if kept > 1 else "tensor"
                effect.saw(f"{kept} {many} that the compiled code gives or keeps: in {told}")
        return result

    return looked_at


def _kept(torch: Any, result: Any, dtype: Any) -> int:
    values = result.values() if isinstance(result, dict) else result
    given = list(values) if isinstance(result, (dict, tuple, list)) else [result]
    try:
        nodes = {one.grad_fn for one in given if isinstance(one, torch.Tensor) and one.grad_fn is not None}
        kept = [one for node in nodes for one in getattr(node, "saved_tensors", ())]
    except RuntimeError:  # they are gone, or were changed since
        kept = []
    return sum(isinstance(one, torch.Tensor) and one.dtype == dtype for one in (*given, *kept))
