"""Numbers of Python's that meet a tensor, in a range of ours right before the op: `x * 2` and `x * 3` look
alike to torch's observer, which sees a tensor without a value in the number's place.

Of other ops' numbers it writes the values down. While it is in use the functions that hand such numbers to
tensors are wrapped; where no number is among what they are given they do nothing else.
"""

from __future__ import annotations

import contextlib
import functools
from typing import Any

from findwall.agent.tracing.observer import BY, OBSERVER
from findwall.agent.tracing.value_counts import tell
from findwall.apply.registry import REGISTRY, Call, Put
from findwall.model.dataflow import NUMBERS

_ARITHMETIC = ("add", "sub", "mul", "truediv", "floordiv", "mod")
OPERATORS = tuple(f"__{before}{name}__" for name in _ARITHMETIC for before in ("", "r", "i"))
CALLS = ("add", "sub", "subtract", "mul", "multiply", "div", "divide", "true_divide", "where")
NUMBER_TYPES = (bool, int, float, complex)


def watch_numbers(torch: Any) -> list[Put]:
    """From now on, until all that is handed back is undone."""
    methods = [*OPERATORS, *CALLS, *(f"{name}_" for name in CALLS)]
    spots = [(torch.Tensor, name) for name in methods] + [(torch, name) for name in CALLS]
    return [_watch(torch, home, name) for home, name in spots if hasattr(home, name)]


def _watch(torch: Any, home: Any, name: str) -> Put:
    def make(original: Call) -> Call:
        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            if OBSERVER.is_busy and (numbers := [one for one in args if type(one) in NUMBER_TYPES]):
                with contextlib.suppress(Exception):  # inside the job's own call: it is not told, then
                    tell(torch, f"{NUMBERS}{' '.join(map(repr, numbers))}", [])
            return original(*args, **kwargs)

        return call

    return REGISTRY.wrap(BY, home, name, make)
