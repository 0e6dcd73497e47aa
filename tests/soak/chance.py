"""Who decides what is done to a case: hypothesis in the tests (it shrinks failures), a seed in the soak."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Protocol, TypeVar

from hypothesis import strategies as st

T = TypeVar("T")


class Chance(Protocol):
    def number(self, low: int, high: int) -> int:
        """A whole number from `low` to `high`, both included."""

    def one_of(self, choices: Sequence[T]) -> T: ...


class Drawn:
    """hypothesis decides."""

    def __init__(self, data: st.DataObject) -> None:
        self._data = data

    def number(self, low: int, high: int) -> int:
        return self._data.draw(st.integers(low, high))

    def one_of(self, choices: Sequence[T]) -> T:
        return self._data.draw(st.sampled_from(choices))


class Rolled:
    """A generator decides: the same case for the same seed."""

    def __init__(self, *seed: object) -> None:
        self._random = random.Random(":".join(map(str, seed)))

    def number(self, low: int, high: int) -> int:
        return self._random.randint(low, high)

    def one_of(self, choices: Sequence[T]) -> T:
        return self._random.choice(choices)

    def seconds(self, most: float) -> float:
        return self._random.uniform(0.0, most)
