"""Fixes that are made in a job while it runs, and taken back: what a screening switches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from findwall.apply.applying import Apply, Effect
from findwall.apply.registry import APPLIED, REGISTRY, UNDONE, Put
from findwall.apply.roots import Roots, roots_anew
from findwall.model.applied import AppliedFix


class LiveFixes:
    """Those that a process screens, with the numbers a person gave."""

    def __init__(
        self, wanted: Mapping[str, Apply] | None = None, numbers: Mapping[str, int | None] | None = None
    ) -> None:
        self._wanted, self._numbers = dict(wanted or {}), numbers or {}

    @property
    def names(self) -> list[str]:
        return list(self._wanted)

    def made_in(self, torch: Any) -> Iterator[tuple[str, LiveFix]]:
        for name, make in self._wanted.items():
            yield name, LiveFix(torch, make, self._numbers.get(name))


class LiveFix:
    """One of them. Each time it is made as at a job's start, in what the job calls from then on; the registry
    takes back all that it put."""

    def __init__(self, torch: Any, make: Apply, number: int | None = None) -> None:
        self._torch, self._make, self._number = torch, make, number
        self._kept: dict[Any, Any] = {}  # what is made once, however often the fix is
        self._before: list[Put] = []
        self._effect: Effect | None = None
        self._roots: Roots | None = None
        self.told = AppliedFix()  # of the first time

    @property
    def is_on(self) -> bool:
        return self._effect is not None

    def switch_on(self) -> None:
        self._before = REGISTRY.puts
        self._effect = effect = Effect(self._number, self._kept)
        self._roots = roots_anew(self._torch)
        effect.safely(self._make)(self._torch, effect)

    def end_looks(self) -> None:
        """The first calls with it are over: who watched them for what proves it no longer costs anything."""
        if self._roots is not None:
            self._roots.stop()

    def switch_off(self) -> bool:
        """Whether all is as it was."""
        self.end_looks()
        if self._effect is not None and not self.told.seen:
            self.told = self._effect.told()
        self._effect = self._roots = None
        there = {id(one) for one in self._before}
        mine = [one for one in REGISTRY.puts if id(one) not in there and one.past_end == APPLIED]
        for one in reversed(mine):
            one.undo()
        return all(one.state == UNDONE for one in mine)
