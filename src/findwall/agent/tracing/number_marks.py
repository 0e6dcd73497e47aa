"""Numbers of Python's that meet a tensor, in a range of ours right before the op: `x * 2` and `x * 3` look
alike to torch's observer, which sees a tensor without a value in the number's place. And lists of numbers
that a tensor is made of, in a range right behind it: where they are the same in every step, so is what is
worked out of them.

Of other ops' numbers it writes the values down. While it is in use the functions that hand such numbers to
tensors are wrapped; where no number is among what they are given they do nothing else.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
from typing import Any

from findwall.agent.tracing.observer import BY, OBSERVER
from findwall.agent.tracing.value_counts import DIGITS, FEWEST_TOKENS, tell
from findwall.apply.registry import REGISTRY, Call, Put
from findwall.model.dataflow import NUMBERS, WRITTEN

_ARITHMETIC = ("add", "sub", "mul", "truediv", "floordiv", "mod")
OPERATORS = tuple(f"__{before}{name}__" for name in _ARITHMETIC for before in ("", "r", "i"))
SET = "__setitem__"  # the number goes into a tensor of its own first
CALLS = ("add", "sub", "subtract", "mul", "multiply", "div", "divide", "true_divide", "where")
MAKERS = ("tensor", "as_tensor")
NUMBER_TYPES = (bool, int, float, complex)
MOST_NUMBERS = 1 << 14  # of a list: a millisecond. Chosen by hand.


def watch_numbers(torch: Any) -> list[Put]:
    """From now on, until all that is handed back is undone."""
    methods = [*OPERATORS, SET, *CALLS, *(f"{name}_" for name in CALLS)]
    spots = [(torch.Tensor, name) for name in methods] + [(torch, name) for name in CALLS]
    before = [_watch(torch, home, name) for home, name in spots if hasattr(home, name)]
    return before + [_watch_maker(torch, torch, name) for name in MAKERS]


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


def _watch_maker(torch: Any, home: Any, name: str) -> Put:
    def make(original: Call) -> Call:
        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            made = original(*args, **kwargs)
            if OBSERVER.is_busy:
                with contextlib.suppress(Exception):  # inside the job's own call: it is not told, then
                    if digest := _digest(args[0] if args else kwargs["data"]):
                        tell(torch, f"{WRITTEN}{digest}", [made])
            return made

        return call

    return REGISTRY.wrap(BY, home, name, make)


def _digest(data: Any) -> str:
    """Of numbers, or of lists of them. Few whole ones may be the same by chance, as labels are: none then."""
    numbers: list[Any] = []
    left, shape = [data], []
    while left and len(numbers) + len(left) <= MOST_NUMBERS:
        one = left.pop()
        if type(one) in (list, tuple):
            shape.append(len(one))
            left.extend(one)
        elif type(one) in NUMBER_TYPES:
            numbers.append(one)
        else:
            return ""
    whole = not any(type(one) in (float, complex) for one in numbers)
    if left or (whole and len(numbers) < FEWEST_TOKENS):
        return ""
    return hashlib.sha256(repr((shape, numbers)).encode()).hexdigest()[:DIGITS]
