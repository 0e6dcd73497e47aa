"""Fixes that were made in a job's process, what proves that they took effect, and where in the job's code."""

from __future__ import annotations

import msgspec

APPLIED_FILE = "applied.json"
APPLIED_SCHEMA = "findwall-applied/1"


class AppliedFix(msgspec.Struct, frozen=True):
    """One of them."""

    seen: str = ""  # what shows that it took effect; empty: nothing did
    trouble: str = ""  # why it could not be made

    @property
    def took_effect(self) -> bool:
        return bool(self.seen) and not self.trouble


class Spot(msgspec.Struct, frozen=True):
    """An expression in the job's own code that was running. Columns are in bytes; -1: unknown."""

    file: str
    line: int
    end_line: int = -1
    end_column: int = -1
    function: str = ""


class Place(msgspec.Struct, frozen=True):
    """Where the job did what a fix changed: the lines that an edit concerns."""

    kind: str  # what it did there: "loader", "optimizer", "call", …
    spots: tuple[Spot, ...]  # that led to it, innermost first
    library: str = ""  # whose code was called there and did it; empty: the job itself, or torch
    takes: tuple[str, ...] = ()  # the parameters of what was called, in their order
    given: tuple[str, ...] = ()  # those that the job passed
    value: str = ""  # what the fix set there, where it is not always the same
    until: tuple[Spot, ...] = ()  # where it ended, of what lasts


class Applied(msgspec.Struct, frozen=True):
    """`rank<k>/applied.json`."""

    fixes: dict[str, AppliedFix] = {}
    schema: str = APPLIED_SCHEMA
    places: dict[str, list[Place]] = {}  # by fix
