"""The words of every claim: the only place where sentences are made.

Each module here has its `WORDS`: an id, and a template or a function. A template is filled with the
claim's figures and names: `{waits_ms:ms}`, `{busy_share:share}`, `{op}`, `{places[0]}`, and `{parts[0]}`
for the words of a claim inside it. `[[ at {places[0]}]]` is left out where something in it is not known, and
`[[{name}||it]]` says the other then; `{own:if}` and `{own:unless}` ask whether a figure is true, or is not.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Callable
from functools import cache
from string import Formatter
from typing import Any

from findwall.model.claims import Claim, listed
from findwall.model.short_kernel_names import bare, short_kernel
from findwall.units import LEAST_SHOWN_MS, format_bytes, format_calls, format_gib, format_ms, format_share

Words = str | Callable[[Claim], str]

# Counts per step, printed as whole numbers.
RARELY = 0.5  # rounds to none
MORE_THAN_ONCE = 1.5  # rounds to two
_OPTIONAL = re.compile(r"\[\[|\]\]")  # where what may be left out begins and ends


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
    known = _Known(claim, {"places": claim.places, "parts": parts, **more})
    pieces = _OPTIONAL.split(template)
    return "".join(
        _optional(piece, known) if at % 2 else _filled(piece, known) for at, piece in enumerate(pieces)
    )


class _Known(dict[str, Any]):
    """What a template may name; what follows from a claim's figures is worked out where it is asked for."""

    def __init__(self, claim: Claim, more: dict[str, Any]) -> None:
        super().__init__({**claim.figures, **claim.names, **more})
        self._claim = claim

    def __missing__(self, key: str) -> Any:
        return _DERIVED[key](self._claim)


def _filled(template: str, known: _Known) -> str:
    return _FORMATTER.vformat(template, (), known)


def _optional(piece: str, known: _Known) -> str:
    wanted, _, otherwise = piece.partition("||")
    try:
        return _REQUIRED.vformat(wanted, (), known)
    except LookupError:
        return otherwise


class _Figures(Formatter):
    """Formats by unit: `ms`, `per_step`, `share`; anything else as Python does."""

    def format_field(self, value: Any, format_spec: str) -> str:
        unit = _UNITS.get(format_spec)
        return unit(value) if unit else str(super().format_field(value, format_spec))


class _Required(_Figures):
    """The same, where what is not known is missing."""

    def format_field(self, value: Any, format_spec: str) -> str:
        if format_spec in ("if", "unless"):
            if bool(value) is (format_spec == "unless"):
                raise LookupError
            return ""
        if value is None or value == "":
            raise LookupError
        return super().format_field(value, format_spec)


# -- phrases that many claims share ------------------------------------------------------------------------


def per_step(value_ms: float) -> str:
    """ "3.20 ms per step"; nothing measurable is "0.0 ms per step"."""
    return f"{format_ms(value_ms)} per step" if value_ms >= LEAST_SHOWN_MS else "0.0 ms per step"


def opening(claim: Claim) -> str:
    """ "15.5 ms of the 41.3 ms step (37 %)"."""
    spent, step = number(claim, "spent_ms"), format_ms(number(claim, "step_ms"))
    if spent <= 0:
        return f"Nothing of the {step} step"
    return f"{format_ms(spent)} of the {step} step ({format_share(number(claim, 'spent_share'))})"


def waiting(claim: Claim) -> str:
    """ "For 112 ms of the 300 ms step (37 %) the device waits"; on a CPU the cores do."""
    return f"For {opening(claim)} the {'cores wait' if claim.figures.get('on_cores') else 'device waits'}"


def gpu(claim: Claim) -> str:
    return "CPU" if claim.figures.get("on_cores") else "GPU"


def pieces(claim: Claim) -> str:
    """What the device's work comes in."""
    return "ops" if claim.figures.get("on_cores") else "kernels"


def times_text(times: float) -> str:
    if times < RARELY:
        return "less than once"
    return "once" if times < MORE_THAN_ONCE else f"{times:,.0f} times"


def ops_named(claim: Claim) -> str:
    """ "mul, add and tanh": the ops, or where none is known the kernels."""
    found = {key: name for key, name in claim.names.items() if key.rstrip("0123456789") in ("op", "kernel")}
    return listed(
        [bare(short_kernel(name) if key.startswith("kernel") else name) for key, name in found.items()]
    )


def number(claim: Claim, key: str) -> float:
    """A figure of the claim; nothing where it has none."""
    value = claim.figures.get(key)
    return float(value) if isinstance(value, int | float) else 0.0


def capital(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"


_DERIVED: dict[str, Callable[[Claim], str]] = {
    "opening": opening,
    "waiting": waiting,
    "gpu": gpu,
    "pieces": pieces,
    "piece": lambda claim: pieces(claim).removesuffix("s"),
    "ops": ops_named,
}
_UNITS: dict[str, Callable[[Any], str]] = {
    "ms": format_ms,
    "per_step": per_step,
    "share": format_share,
    "bytes": format_bytes,
    "gib": format_gib,
    "calls": format_calls,
    "times": times_text,
    "kernel": short_kernel,
}
_FORMATTER, _REQUIRED = _Figures(), _Required()
