"""The words of every claim: the only place where sentences are made.

Each module here has its `WORDS`: an id, and a template or a function. A template is filled with the
claim's figures and names: `{waits_ms:ms}`, `{busy_share:share}`, `{op}`, `{places[0]}`, and `{parts[0]}`
for the words of a claim inside it.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from functools import cache
from string import Formatter
from typing import Any

from findwall.model.claims import Claim
from findwall.units import LEAST_SHOWN_MS, format_ms, format_share

Words = str | Callable[[Claim], str]


def spoken(claim: Claim | None) -> str:
    """The claim in words; nothing where there is none."""
    if claim is None:
        return ""
    words = vocabulary()[claim.id]
    return words(claim) if callable(words) else fill(words, claim)


@cache
def vocabulary() -> dict[str, Words]:
    """The words of all claims, by id. Two modules with the same id are a mistake."""
    found: dict[str, Words] = {}
    for info in pkgutil.iter_modules(__path__):
        words: dict[str, Words] = importlib.import_module(f"{__name__}.{info.name}").WORDS
        assert found.keys().isdisjoint(words), found.keys() & words.keys()
        found |= words
    return found


def fill(template: str, claim: Claim, **more: Any) -> str:
    """A template with the claim's figures, names, places and parts in it."""
    parts = [spoken(part) for part in claim.parts]
    known = {**claim.figures, **claim.names, "places": claim.places, "parts": parts, **more}
    return _FORMATTER.vformat(template, (), known)


def per_step(value_ms: float) -> str:
    """ "3.20 ms per step"; nothing measurable is "0.0 ms per step"."""
    return f"{format_ms(value_ms)} per step" if value_ms >= LEAST_SHOWN_MS else "0.0 ms per step"


class _Figures(Formatter):
    """Formats by unit: `ms`, `per_step`, `share`; anything else as Python does."""

    def format_field(self, value: Any, format_spec: str) -> str:
        unit = _UNITS.get(format_spec)
        return unit(value) if unit else str(super().format_field(value, format_spec))


_UNITS: dict[str, Callable[[float], str]] = {"ms": format_ms, "per_step": per_step, "share": format_share}
_FORMATTER = _Figures()
