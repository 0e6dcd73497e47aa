"""One number for every cause, `unknown` among them: what is spent, idle or recoverable, indexed by name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
import numpy as np

from findwall.model.catalogue import WALL_OF
from findwall.model.intervals import F64, I64

UNKNOWN = "unknown"
CAUSES = (*WALL_OF, UNKNOWN)
_INDEX = {cause: at for at, cause in enumerate(CAUSES)}


def cause_index(cause: str) -> int:
    """A cause's place in a column of causes. KeyError where there is no such cause."""
    return _INDEX[cause]


class ByCause(msgspec.Struct):
    """A number a cause, NaN where it is not known. Read and written by the cause's name."""

    values: F64  # over CAUSES

    @classmethod
    def zeros(cls) -> ByCause:
        return cls(np.zeros(len(CAUSES)))

    @classmethod
    def summed(cls, cause: I64, amount: F64) -> ByCause:
        """Amounts added up by a column of causes."""
        return cls(np.bincount(cause, amount, minlength=len(CAUSES)).astype(np.float64))

    def __getitem__(self, cause: str) -> float:
        return float(self.values[_INDEX[cause]])

    def __setitem__(self, cause: str, value: float) -> None:
        self.values[_INDEX[cause]] = value

    def __add__(self, other: ByCause) -> ByCause:
        return ByCause(self.values + other.values)

    def __sub__(self, other: ByCause) -> ByCause:
        return ByCause(self.values - other.values)

    def __mul__(self, factor: float) -> ByCause:
        return ByCause(self.values * factor)

    def __truediv__(self, divisor: float) -> ByCause:
        return ByCause(self.values / divisor)

    def copy(self) -> ByCause:
        return ByCause(self.values.copy())

    def items(self) -> Iterator[tuple[str, float]]:
        return zip(CAUSES, self.values.tolist(), strict=True)

    def of(self, causes: Iterable[str]) -> float:
        """The sum over some causes; what is not known adds nothing."""
        return float(sum(np.nan_to_num(self[cause]) for cause in causes))

    def not_known(self) -> list[str]:
        """Causes whose number is not known."""
        return [cause for cause, value in self.items() if np.isnan(value)]

    @property
    def total(self) -> float:
        """The sum over all causes; what is not known adds nothing."""
        return float(np.nansum(self.values))

    def ranked(self) -> list[str]:
        """Causes with something to them, the most first."""
        order = np.argsort(-np.nan_to_num(self.values, nan=-1.0), kind="stable").tolist()
        return [CAUSES[at] for at in order if self.values[at] > 0]
