"""Figures as Nsight Compute prints them: thousands in groups, units that change from row to row."""

from __future__ import annotations

import math
import re

# `130,316`, `0.197345`, `1.5e+06`; a comma that groups no thousands is no figure anybody can be sure of.
_FIGURE = re.compile(r"-?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:[eE][+-]?\d+)?")
_SIDE = r"(\d[\d,]{0,14}?)"
_TRIPLE = re.compile(rf"\(?\s*{_SIDE}\s*,\s+{_SIDE}\s*,\s+{_SIDE}\s*\)?|\((\d+),(\d+),(\d+)\)")
LONGEST_FIGURE = 40  # characters: more is none
NOTHING = frozenset({"", "n/a", "no data", "nan", "(!) nan", "(!) n/a", "inf", "-"})

_PREFIXES = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_SECONDS = {
    "ns": 1.0,
    "nsecond": 1.0,
    "us": 1e3,
    "usecond": 1e3,
    "ms": 1e6,
    "msecond": 1e6,
    "s": 1e9,
    "second": 1e9,
    "sec": 1e9,
}
_BYTES = re.compile(r"([KMGTP]?)bytes?(/s|/second|/sec)?", re.IGNORECASE)


class FigureError(ValueError):
    """A cell that holds neither a figure nor one of the words for none."""


def figure(text: str) -> float | None:
    """None where the tool says that there is none."""
    text = text.strip()
    if text.lower() in NOTHING:
        return None
    if len(text) > LONGEST_FIGURE or _FIGURE.fullmatch(text) is None:
        raise FigureError(text[:LONGEST_FIGURE])
    value = float(text.replace(",", ""))
    if not math.isfinite(value):
        raise FigureError(text)
    return value


def scale(unit: str, wanted: str) -> float | None:
    """What a figure in this unit is to be multiplied with: None where it is of another kind.

    `wanted`: "ns", "byte", "byte/s", "share" (of one) or "" (a count or ratio, whatever it is called).
    """
    unit = unit.strip()
    if wanted == "ns":
        return _SECONDS.get(unit)
    if wanted == "share":
        return 0.01 if unit in ("%", "pct") else None
    if wanted in ("byte", "byte/s"):
        found = _BYTES.fullmatch(unit)
        if found is None or bool(found[2]) != (wanted == "byte/s"):
            return None
        return _PREFIXES[found[1].upper()]
    return None if unit in ("%", "pct") else 1.0


def triple(text: str) -> tuple[int, int, int] | None:
    """`(65536, 1, 1)`; None where it is no such thing."""
    found = _TRIPLE.fullmatch(text.strip()) if len(text) <= 2 * LONGEST_FIGURE else None
    if found is None:
        return None
    one, two, three = (int(part.replace(",", "")) for part in found.groups() if part is not None)
    return (one, two, three)
