"""What proves autocast: number formats of products in a first call, or of what compiled code gave."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from findwall.apply.applying import Effect
from findwall.apply.registry import REGISTRY, Call
from findwall.apply.seenops import PRODUCTS, seen_ops

OWN = "the job uses autocast itself"
# Calls of a model that the job compiled, until something of it is seen. Chosen by hand.
LOOKS_AT_COMPILED = 8


@contextmanager
def products_seen(torch: Any, effect: Effect, told: str) -> Iterator[None]:
    formats: list[str] = []
    with _own_autocast(torch) as own, seen_ops(torch, _note(formats)):
        yield
    narrow = formats.count(told)
    if own:
        effect.cannot(OWN)
    elif narrow:
        products = "product" if narrow == 1 else "products"
        effect.saw(f"{narrow:,} {products} ran in {told} in the first call")


def _note(formats: list[str]) -> Callable[[str, str], None]:
    def note(name: str, number_format: str) -> None:
        if PRODUCTS.search(name):
            formats.append(number_format)

    return note


@contextmanager
def _own_autocast(torch: Any) -> Iterator[list[Any]]:
    """Autocast that a model turns on inside."""
    seen: list[Any] = []

    def noted(original: Call) -> Call:
        def enter(one: Any) -> Any:
            if getattr(one, "_enabled", False):
                seen.append(one)
            return original(one)

        return enter

    with REGISTRY.wrapped("autocast seen", torch.autocast, "__enter__", noted):
        yield seen


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
