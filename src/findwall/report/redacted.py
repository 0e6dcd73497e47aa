"""A Diagnosis and its series without what is the job's own, for a page that is shared.

Field by field: numbers and findwall's own words stay, and so do names of ops, kernels, calls and devices that
anybody may see (`report/public.py`). Every other name gets another one, the same wherever it comes up
(`module 2`). Sentences are made again, from claims that were treated so; a text that is not data goes.
"""

from __future__ import annotations

import builtins
import re
import sys
import typing
from array import array
from collections.abc import Callable, Collection, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from findwall.model.claims import TEXT, Claim, Evidence
from findwall.model.diagnosis import Diagnosis
from findwall.model.kinds import SELDOM, USUAL
from findwall.model.series import Series, StepTimeline, Track
from findwall.report import public
from findwall.report.words import spoken, vocabulary
from findwall.report.words.ncu_words import STALLS

_OWN_TRACK = re.compile(
    r"device idle|thread \d+(?: \(python[\d.]*\))?|(?:GPU \d+, )?(?:the cores|stream -?\d+)"
)
_ENDED = re.compile(r"(?:exit code|signal) -?\d+")
_DATE = re.compile(r"[\d\-:T+.Z ]*")
_VERSION = re.compile(r"\d+(?:\.\d+)*(?:(?:a|b|rc|\.post|\.dev)\d+)*(?:\+(?:cpu|cu\d+|rocm[\d.]+))?")
# Names in claims that are not looked up, and what they are called then.
CALLED = {
    "function": "function",
    "holder": "variable",
    "thread": "thread",
    "asked": "what was asked",
    "device": "device",
    "error": "error",
}


def redacted(
    diagnosis: Diagnosis, series: Series | None, fixes: Collection[str] = ()
) -> tuple[Diagnosis, Series]:
    """Both, fit to be shown to anybody. `fixes`: the ids of all that findwall has."""
    series = series or Series()
    pen = _Pen(frozenset(fixes))
    return pen.document(diagnosis), _series(series, pen)


class _Pen:
    """Gives names their other names, field by field."""

    def __init__(self, fixes: frozenset[str]) -> None:
        self._fixes = fixes
        self._names: dict[tuple[str, str], str] = {}
        self._counts: dict[str, int] = {}

    def document(self, found: Diagnosis) -> Diagnosis:
        """A job that was watched shows lines, functions and its own command: all of that goes."""
        found = self.struct(replace(found, watch=None))
        return replace(found, notes=[text for text in found.notes if text], environment=[], remarks=[])

    def renamed(self, name: str, kind: str, between: str = " ") -> str:
        """The same name for the same thing."""
        if (kind, name) not in self._names:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self._names[kind, name] = f"{kind}{between}{self._counts[kind]}"
        return self._names[kind, name]

    # -- the document, by the types of its fields ---------------------------------------------------------

    def struct(self, value: Any) -> Any:
        told = {
            field: self.field(type(value).__name__, field, getattr(value, field), value)
            for field in value.__struct_fields__
        }
        return replace(value, **told)

    def field(self, kind: str, name: str, value: Any, whole: Any) -> Any:
        if isinstance(value, str) and (kind, name) in SENTENCES:
            return SENTENCES[kind, name](self, whole)
        if (kind, name) in LISTED:
            return LISTED[kind, name](self, whole)
        if isinstance(value, Claim) or name in ("remarks", "claims"):
            return [] if isinstance(value, list) else None  # said in the sentence beside it
        if isinstance(value, str) and name in _literals(type(whole)):
            return value
        return self.value(name, value)

    def value(self, name: str, value: Any) -> Any:
        if isinstance(value, msgspec.Struct):
            return self.struct(value)
        if isinstance(value, str):
            return FIELDS[name](self, value) if name in FIELDS and value else ""
        if isinstance(value, list | tuple):
            return type(value)(self.value(name, one) for one in value)
        if isinstance(value, dict):
            return {
                key: self.value(str(key), one)
                for key, one in value.items()
                if not isinstance(key, str) or key in public.KEYS
            }
        return value

    # -- names --------------------------------------------------------------------------------------------

    def op(self, name: str) -> str:
        return name if public.is_public_op(name) else self.renamed(name, "range")

    def kernel(self, name: str) -> str:
        return name if public.is_public_kernel(name) else self.renamed(name, "kernel")

    def device(self, name: str) -> str:
        return name if public.is_public_device(name) else self.renamed(name, "device")

    def line(self, place: str) -> str:
        return self.renamed(place, "line")

    def fix(self, name: str) -> str:
        """A fix, or several that were made together, with their numbers."""
        parts = [self._fix(part) for part in name.split(" + ")]
        return " + ".join(parts)

    def _fix(self, name: str) -> str:
        bare, _, number = name.partition("=")
        known = bare if bare in self._fixes else self.renamed(bare, "fix")
        return f"{known}={number}" if number.isdigit() else known

    def own(self, word: str) -> str:
        return word if word in public.OWN or word in self._fixes else ""

    def step_kind(self, name: str) -> str:
        return name if name in (USUAL, SELDOM) or name in public.OWN else self.renamed(name, "kind")

    # -- claims -------------------------------------------------------------------------------------------

    def said(self, claim: Claim | None) -> str:
        """A claim in words, without what is the job's own; nothing where it does not hold together."""
        treated = self.claim(claim) if claim is not None else None
        try:
            return spoken(treated)
        except (LookupError, ValueError, TypeError):
            return ""

    def claim(self, claim: Claim) -> Claim | None:
        """None: it is a text, or no claim of findwall's."""
        if claim.id == TEXT or claim.id not in vocabulary():
            return None
        if any(isinstance(value, str) and not self.own(value) for value in claim.figures.values()):
            return None
        # A text inside stays away: words that hold one do without it.
        parts = [self.claim(part) or Claim(TEXT, names={TEXT: ""}) for part in claim.parts]
        names = {key: self.name(key, name) for key, name in claim.names.items()}
        return Claim(claim.id, claim.figures, names, [self.line(place) for place in claim.places], parts)

    def name(self, key: str, name: str) -> str:
        stem = key.rstrip("0123456789")
        if stem in ("shapes", "shape"):
            return name if public.is_shape(name) else ""
        if stem.endswith("_type"):
            return name if public.is_format(name) else self.renamed(name, "type")
        if stem == "stall":
            return name if name in STALLS else "unknown"
        if stem == "optimizer":
            return name if public.is_public_optimizer(name) else self.renamed(name, "optimizer")
        if stem == "device":
            return self.device(name)
        if stem in CALLED:
            return self.renamed(name, CALLED[stem])
        return self.kernel(name) if stem.endswith("kernel") else self.op(name)


Text = Callable[[_Pen, Any], str]


def _wall(pen: _Pen, wall: Any) -> str:
    if said := pen.said(wall.claim):
        return said
    cause = pen.own(wall.cause or "")
    return f"The wall is {cause}: `findwall explain {cause}` tells of it." if cause else "It is not told why."


def _evidence(pen: _Pen, shown: Evidence) -> str:
    what = pen.op(shown.op) if shown.op else pen.kernel(shown.kernel) if shown.kernel else ""
    return pen.said(shown.claim) or what or (pen.line(shown.line) if shown.line else "")


def _action(pen: _Pen, given: Any) -> str:
    return pen.said(given.claim) or f"`findwall explain {pen.fix(given.fixes[0])}` tells how."


def _refusal(pen: _Pen, given: Any) -> str:
    return pen.said(given.claim) or "it would not help here"


SENTENCES: dict[tuple[str, str], Text] = {
    ("Wall", "sentence"): _wall,
    ("Question", "sentence"): lambda pen, one: pen.said(one.claim) or one.answer,
    ("Evidence", "text"): _evidence,
    ("KindRow", "what"): lambda pen, one: pen.said(one.claim),
    ("Prescription", "how"): _action,
    ("NotWorthIt", "why"): _refusal,
    ("CountedKernel", "sentence"): lambda pen, one: pen.said(one.claim),
    ("CountedKernel", "helps"): lambda pen, one: pen.said(one.action),
    ("CountedKernel", "name"): lambda pen, one: pen.kernel(one.name),
    ("MemoryRung", "how"): lambda pen, one: pen.said(one.claim),
    ("SweepPoint", "why"): lambda pen, one: pen.said(one.claim),
    ("KernelRow", "name"): lambda pen, one: pen.kernel(one.name),
    ("Source", "kind"): lambda pen, one: one.kind if one.kind in public.SOURCES else "torch-trace",
    ("WhatIf", "asked"): lambda pen, one: " and ".join(pen.fix(fix) for fix in one.fixes) or "what was asked",
}
LISTED: dict[tuple[str, str], Callable[[_Pen, Any], Any]] = {
    ("Diagnosis", "notes"): lambda pen, one: list(dict.fromkeys(pen.said(claim) for claim in one.remarks)),
    ("Sweep", "says"): lambda pen, one: [said for claim in one.claims if (said := pen.said(claim))],
    ("WhatIf", "notes"): lambda pen, one: [said for claim in one.claims if (said := pen.said(claim))],
    ("Quality", "ignored"): lambda pen, one: _phases(one.ignored),
    ("Quality", "checks_failed"): lambda pen, one: _numbered(one.checks_failed, "check"),
    ("Wall", "why_not"): lambda pen, one: one.why_not if f"undecided/{one.why_not}" in vocabulary() else "",
}
# What holds a name or a word, by the field's own name; a text in any other field goes.
FIELDS: dict[str, Callable[[_Pen, str], str]] = {
    "schema": lambda pen, value: value if re.fullmatch(r"findwall/\d+", value) else "",
    "paths": lambda pen, value: pen.renamed(value, "input", "-"),
    "crash": lambda pen, value: value if _is_ending(value) else "the job failed",
    "found_by": lambda pen, value: value if value in public.STEP_MARKS else "",
    "doubt": lambda pen, value: "the machine was busy",
    "unit": lambda pen, value: value if value in public.UNITS else "units/s",
    "module": lambda pen, value: pen.renamed(value, "module"),
    "line": _Pen.line,
    "places": _Pen.line,
    "op": _Pen.op,
    "kernel": _Pen.kernel,
    "device": _Pen.device,
    "fix": _Pen.fix,
    "fixes": _Pen.fix,
    "base": _Pen.fix,
    "advises": _Pen.fix,
    "kind": _Pen.step_kind,
    "kinds": _Pen.step_kind,
    "names": _Pen.op,
    "stall": lambda pen, value: value if value in STALLS else "unknown",
    **dict.fromkeys(
        ("wall", "cause", "causes", "moves", "between", "class_", "limited_by", "source"), _Pen.own
    ),
}


def _is_ending(text: str) -> bool:
    """An exception of Python's own, or a code."""
    kind = getattr(builtins, text, None)
    is_error = isinstance(kind, type) and issubclass(kind, BaseException)
    return is_error or _ENDED.fullmatch(text) is not None


def _phases(ignored: Mapping[str, int]) -> dict[str, int]:
    """Rows by the letter of their phase; what is no letter, nor one of torch's own categories, goes."""
    return {name: count for name, count in ignored.items() if len(name) == 1 or name == "X Trace"}


def _numbered(counts: Mapping[str, int], word: str) -> dict[str, int]:
    return {f"{word} {at}": count for at, count in enumerate(counts.values(), 1)}


def _literals(kind: type[msgspec.Struct]) -> frozenset[str]:
    """Fields that hold one of a few words, by their type: decoding lets no other in."""
    hints = typing.get_type_hints(kind)
    return frozenset(name for name, hint in hints.items() if _is_literal(hint))


def _is_literal(hint: Any) -> bool:
    if typing.get_origin(hint) is typing.Literal:
        return True
    inside = [one for one in typing.get_args(hint) if one is not type(None)]
    return bool(inside) and all(_is_literal(one) for one in inside) and typing.get_origin(hint) is not list


# -- beside the document -----------------------------------------------------------------------------------


def _names_of(step: StepTimeline) -> set[str]:
    """The names that the host's threads bear."""
    column = array("I", step.name)
    if sys.byteorder == "big":
        column.byteswap()
    on_host: set[str] = set()
    at = 0
    for lane in step.lanes:
        if step.tracks[lane.track].side == "host":
            on_host.update(step.names[index] for index in set(column[at : at + lane.count]))
        at += lane.count
    return on_host


def _series(series: Series, pen: _Pen) -> Series:
    """What is drawn beside the document."""
    step, plain = series.timeline, Series()
    command = ["SCRIPT", *(["ARGUMENTS"] if len(series.command) > 1 else [])] if series.command else []
    return Series(
        timeline=None if step is None else _timeline(step, pen),
        why_no_timeline=plain.why_no_timeline if series.why_no_timeline else "",
        steps=None if series.steps is None else pen.struct(series.steps),
        why_no_steps=plain.why_no_steps if series.why_no_steps else "",
        command=command,
        started=series.started if _DATE.fullmatch(series.started) else "",
        versions=_versions(series.versions),
        rank=series.rank,
    )


def _timeline(step: StepTimeline, pen: _Pen) -> StepTimeline:
    on_host = _names_of(step)
    tracks = [
        track if _OWN_TRACK.fullmatch(track.label) else Track(pen.renamed(track.label, "thread"), track.side)
        for track in step.tracks
    ]
    names = [pen.op(name) if name in on_host else pen.kernel(name) for name in step.names]
    causes = [cause if cause in public.OWN else "" for cause in step.causes]
    kind = pen.step_kind(step.kind) if step.kind else ""
    return replace(step, tracks=tracks, names=names, causes=causes, kind=kind)


def _versions(versions: Mapping[str, str]) -> dict[str, str]:
    """Of packages that anybody knows, where a version is one."""
    found = {name: _VERSION.match(versions[name]) for name in public.PACKAGES if name in versions}
    return {name: match[0] for name, match in found.items() if match is not None}
