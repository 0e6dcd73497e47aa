"""Fixes made in the job's own process, without an edit: put in place when torch is imported, gone with it.

Each must prove that it took effect, not that it was asked for: what it saw in the job goes into
`rank<k>/applied.json`. One that saw nothing did nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from findwall.apply.job_lines import place_now
from findwall.model.applied import Applied, AppliedFix, Place

# A job does what a fix concerns in few places, which its first steps come by. Both chosen by hand.
MOST_PLACES, PLACES_LOOKED_FOR = 32, 256

STAND_IN = "a stand-in for the edit"  # begins what shows that one took effect


class Effect:
    """What one fix does in this process, as it tells it itself."""

    def __init__(self, number: int | None = None, kept: dict[Any, Any] | None = None) -> None:
        self.number = number  # that a person gave, as in loader-workers=4
        self.kept = {} if kept is None else kept  # of a fix that is made again: what it makes once
        self.seen = self.trouble = self._missed = ""
        self._checks: list[Callable[[], str]] = []
        self.places: list[Place] = []
        self._looks_left = PLACES_LOOKED_FOR

    @property
    def looks(self) -> bool:
        """Whether places are still looked for."""
        return self._looks_left > 0

    def at(self, kind: str, of: Any = None, **more: Any) -> Place | None:
        """The job's own lines that led here are what an edit would change."""
        if not self.looks:
            return None
        self._looks_left -= 1
        with contextlib.suppress(Exception):  # fail open: a fix without its lines is one without a patch
            place = place_now(kind, of, **more)
            self.keep(place)
            return place
        return None

    def keep(self, place: Place | None) -> None:
        if place is not None and place not in self.places and len(self.places) < MOST_PLACES:
            self.places.append(place)

    def keep_value(self, place: Place | None, value: str) -> None:
        """One that was noted before, with what the fix set there."""
        self.keep(replace(place, value=value) if place is not None else None)

    def saw(self, what: str) -> None:
        """It took effect: the first sight of it stands."""
        self.seen = self.seen or what

    def cannot(self, why: str) -> None:
        """It cannot be made in this job, or no longer is."""
        self.trouble = self.trouble or why

    def missed(self, why: str) -> None:
        """It passed something by (one loader of several): counts where nothing else took effect."""
        self._missed = why

    def safely(self, call: Callable[..., None]) -> Callable[..., None]:
        """The same call, which raises nothing into the job: what breaks cannot be made."""

        def called(*args: Any) -> None:
            try:
                call(*args)
            except Exception as error:  # noqa: BLE001 - fail open: the job runs on without this fix
                self.cannot(f"{type(error).__name__}: {error}")

        return called

    def at_end(self, check: Callable[[], str]) -> None:
        """Look once more when the job ends: what it sees then, or nothing."""
        self._checks.append(check)

    def told(self) -> AppliedFix:
        """As of now: it is asked for when all is measured, and again when the job ends."""
        seen = self.seen
        for check in self._checks:
            with contextlib.suppress(Exception):  # a check is a look: one that fails has seen nothing
                found = check()  # also where it was seen before: the job may have undone it
                seen = seen or found
        return AppliedFix(seen, self.trouble or ("" if seen else self._missed))


Apply = Callable[[Any, Effect], None]


class Effects:
    """All fixes that are made in this process."""

    def __init__(
        self,
        wanted: Mapping[str, Apply],
        numbers: Mapping[str, int | None] | None = None,
        live: Mapping[str, Apply] | None = None,
    ) -> None:
        """`live`: those that are switched on and off while the job runs, by whoever measures it."""
        self._wanted, self.live, self.numbers = dict(wanted), dict(live or {}), dict(numbers or {})
        self._effects = {name: Effect(self.numbers.get(name)) for name in wanted}

    def install(self, torch: Any) -> None:
        """Make them, in their order. One that cannot be made leaves the others and the job alone."""
        for name, apply in self._wanted.items():
            try:
                apply(torch, self._effects[name])
            except Exception as error:  # noqa: BLE001 - fail open: the job runs on without this fix
                self._effects[name].cannot(f"{type(error).__name__}: {error}")

    @property
    def names(self) -> list[str]:
        return list(self._wanted)

    def told(self) -> Applied:
        return Applied(
            {name: effect.told() for name, effect in self._effects.items()},
            places={name: list(effect.places) for name, effect in self._effects.items() if effect.places},
            cannot=[name for name, effect in self._effects.items() if effect.trouble],
        )


def is_compiling_of(torch: Any) -> Callable[[], bool]:
    """What the compiler takes for true while it traces: code of the job's that it reads there stays as it
    is."""
    found: Callable[[], bool] = getattr(getattr(torch, "compiler", None), "is_compiling", lambda: False)
    return found
