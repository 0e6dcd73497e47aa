"""Fixes that were made in a job: what proves that they took effect, where in its code, and what they gave."""

from __future__ import annotations

from typing import Literal

import msgspec

from findwall.model.claims import Range

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
    cannot: list[str] = []  # those that cannot be made in this job, whatever else is made in it


class ScreenedTrial(msgspec.Struct):
    """A fix that was switched on and off while the job ran: what that says of its time alone."""

    fix: str
    says: Literal["gain", "no-gain", "open"]  # open: only processes of its own can show it
    speedup: Range = msgspec.field(default_factory=Range)  # over the job without it, in the same process
    could_see: float | None = None  # the smallest gain that would have been seen, as a share
    took_effect: bool = False
    base: str = ""  # the fixes that were made in the job meanwhile
    why: str = ""  # what was seen to have taken effect, or why nothing is known
    seconds: float = 0.0


class Trial(msgspec.Struct):
    """Fixes that were really made, in processes of their own beside the plain job."""

    fix: str  # several made together are joined by " + "
    predicted: Range  # the step in ms
    measured: Range  # likewise; the ends are those of the speed-up's interval
    verdict: Literal["faster", "slower", "no-difference", "incorrect", "failed"]
    speedup: Range = msgspec.field(default_factory=Range)  # over the plain job
    base: str = ""  # the fixes that the verdict compares it with; none: the plain job
    speedup_over_base: Range = msgspec.field(default_factory=Range)
    losses: Literal["same", "differs", "not-checked"] = "not-checked"
    compared: Literal["losses", "outputs"] = (
        "losses"  # what `losses` tells of: without any, the models' outputs
    )
    apart: float | None = None  # how far the losses of the first steps lie apart, as a share of them
    allowed: float | None = None  # how far they may
    peak_memory: int | None = None  # bytes on the device
    break_even_steps: int | None = None  # after which a longer start is made up for; null: it starts as fast
    seconds: float = 0.0  # that its processes took
    why: str = ""  # what was seen to have taken effect, or why it failed
    kept: bool = False
    switches: dict[str, str] = {}  # those of the job's own that made a fix: what is typed for it
