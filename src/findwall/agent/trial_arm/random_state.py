"""Where the random numbers stand that a dataset may draw from: those of the process, and its own.

Only looked at: no number is drawn, and nothing is put back.
"""

from __future__ import annotations

import contextlib
import ctypes
import random
import sys
from collections.abc import Iterator
from itertools import islice
from typing import Any

# How far a dataset is searched for generators of its own: attributes of attributes, objects in all, and parts
# of one container. Transforms that hold one lie three deep. All chosen by hand.
DEEPEST, MOST, PARTS = 5, 512, 32


class Drawing:
    """Of one dataset, in one process."""

    def __init__(self, torch: Any, dataset: Any) -> None:
        self._torch = torch
        self._own: list[Any] = []
        with contextlib.suppress(Exception):  # a look: it may not break the job
            self._own = list(_generators(torch, dataset))

    def stands(self) -> dict[str, Any]:
        """Two of these differ, in what both have, where numbers were drawn between them."""
        with contextlib.suppress(Exception):  # a look: generators of the job's own classes may have no state
            found = {"torch": _bytes(self._torch.get_rng_state()), "python": random.getstate()}
            if "numpy.random" in sys.modules:
                found["numpy"] = _as_bytes(sys.modules["numpy.random"].get_state())
            return found | {f"own {at}": _stand(self._torch, one) for at, one in enumerate(self._own)}
        return {}

    def drew_since(self, before: dict[str, Any]) -> bool:
        now = self.stands()
        return any(before[name] != now[name] for name in before.keys() & now.keys())


def _generators(torch: Any, dataset: Any) -> Iterator[Any]:
    """What the dataset and its parts hold themselves: drawn from in a worker, it is a copy of it."""
    numpy = sys.modules.get("numpy.random")
    kinds = (random.Random, torch.Generator, *((numpy.Generator, numpy.RandomState) if numpy else ()))
    seen: set[int] = set()
    layer = [dataset]
    for _ in range(DEEPEST):
        below: list[Any] = []
        for one in layer:
            if id(one) in seen or len(seen) >= MOST:
                continue
            seen.add(id(one))
            if issubclass(type(one), kinds):
                yield one
            else:
                below += _parts(one)
        layer = below


def _parts(one: Any) -> list[Any]:
    """What it holds, without running any code of its own."""
    if type(one) in (list, tuple):
        return list(islice(one, PARTS))
    if type(one) is dict:
        return list(islice(one.values(), PARTS))
    if isinstance(one, type) or type(one).__module__ == "builtins":
        return []
    with contextlib.suppress(AttributeError, TypeError):
        return list(islice(object.__getattribute__(one, "__dict__").values(), PARTS))
    return []


def _stand(torch: Any, generator: Any) -> Any:
    if isinstance(generator, torch.Generator):
        return _bytes(generator.get_state())
    if isinstance(generator, random.Random):
        return generator.getstate()
    if hasattr(generator, "bit_generator"):
        return repr(generator.bit_generator.state)
    return _as_bytes(generator.get_state())


def _bytes(state: Any) -> bytes:
    """Of a tensor on the host, without an op that somebody may watch."""
    return ctypes.string_at(state.data_ptr(), state.numel())


def _as_bytes(state: tuple[Any, ...]) -> list[Any]:
    return [one.tobytes() if hasattr(one, "tobytes") else one for one in state]
