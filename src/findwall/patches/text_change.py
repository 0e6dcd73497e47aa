"""One change of a text."""

from __future__ import annotations

import msgspec


class Change(msgspec.Struct, frozen=True):
    """The characters from `start` to `end` become `text`."""

    start: int
    end: int
    text: str
    order: int = 0  # among changes that begin at the same character
    lines: bool = False  # whole lines are put in
