"""The comparison of two sides: one small JSON document (`findwall-compare/1`), drawn as text and Markdown.

`before` is the first side a person names, `after` the second. Changes are after minus before: above zero is
slower. Unknown values are None (`null`), never 0.
"""

from __future__ import annotations

from typing import Literal

import msgspec

COMPARE_SCHEMA = "findwall-compare/1"

Outcome = Literal["faster", "slower", "no-difference", "unknown"]
# What an outcome rests on: the means of several runs a side, the steps of one run a side, or nothing.
RestsOn = Literal["runs", "steps", "nothing"]


class Side(msgspec.Struct):
    """One side: its runs, and those of them whose budget, kernels and wall are told."""

    paths: list[str]  # of all its runs
    steps_ms: list[float | None]  # the mean step of each
    step_ms: float | None  # their median
    source: str  # where the steps come from, as a Diagnosis says it; "mixed": not all from the same
    told: list[int]  # which of them are told of: those in the middle; kernels and wall are of the first
    wall: str | None
    cause: str | None
    device: str | None


class StepChange(msgspec.Struct):
    """How the step changed, and whether that is more than chance."""

    outcome: Outcome
    rests_on: RestsOn
    ms: float | None
    share: float | None  # of the step before
    low: float | None  # of that share: the ends of its interval
    high: float | None
    bar: float | None  # the share that a change must exceed to be called one
    why: str = ""  # why nothing can be said


class CauseChange(msgspec.Struct):
    """What one cause takes of the step on either side. The changes of all of them sum to the step's."""

    wall: str | None
    cause: str
    before_ms: float
    after_ms: float
    ms: float


class KernelChange(msgspec.Struct):
    """A kernel, in milliseconds and calls a step; all ops that launch it together."""

    name: str
    class_: str = msgspec.field(name="class")
    what: Literal["appeared", "vanished", "changed"]
    before_ms: float
    after_ms: float
    ms: float
    before_calls: float
    after_calls: float


class Differs(msgspec.Struct):
    """Something about the two machines or their software that is not the same."""

    what: str  # a package, "GPU", "ranks" or "finding"
    before: str | None  # None: not there
    after: str | None


class Compared(msgspec.Struct):
    schema: str
    before: Side
    after: Side
    step: StepChange
    budget: list[CauseChange]
    kernels: list[KernelChange]
    environment: list[Differs]
    notes: list[str]


def to_json(compared: Compared) -> bytes:
    """The document as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(compared), indent=1) + b"\n"
