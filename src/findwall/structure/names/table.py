"""A table that reads something off a name: a row per pattern, with an example and where it was seen.

The rows are in order of rank: the first that matches decides. Order matters between rows that tell
different things; rows that follow each other and tell the same are searched for at once.
"""

from __future__ import annotations

import itertools
import re
from functools import cache
from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")


class NameRow(msgspec.Struct, Generic[T], frozen=True):
    pattern: str  # searched for in the lower-case name
    tells: T
    example: str  # a name this row decides, as the library writes it
    source: str  # library and version, or the trace the example is from


class NameTable(Generic[T]):
    def __init__(self, *rows: NameRow[T]) -> None:
        self.rows = rows
        self._searches: list[tuple[T, str]] = [
            (told, "|".join(f"(?:{row.pattern})" for row in group))
            for told, group in itertools.groupby(rows, key=lambda row: row.tells)
        ]

    def read(self, lower_case_name: str) -> T | None:
        """What the highest-ranked row that matches tells; None where none does."""
        for told, pattern in self._searches:
            if _compiled(pattern).search(lower_case_name):
                return told
        return None


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """A pattern when it is first needed: most traces never get to most of them."""
    return re.compile(pattern)
