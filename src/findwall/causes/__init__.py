"""What a cause is, and all of them: one file each, in the folder of its wall, found by its `CAUSE`."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from functools import cache
from types import ModuleType

import msgspec
from msgspec.structs import replace

from findwall.facts.cause_kernels import carriers, carrying, kernel_evidence
from findwall.facts.facts import Facts
from findwall.facts.figures import amounts, told
from findwall.facts.waits import Wait, wait_evidence, waits
from findwall.model.catalogue import WALL_OF
from findwall.model.claims import EVIDENCE_ROWS, Claim, Evidence, Figure, Figures, advises, known, lines
from findwall.model.kinds import StepKind

# What the file of a cause is written with.
__all__ = [
    "EVIDENCE_ROWS",
    "Cause",
    "Claim",
    "Evidence",
    "Facts",
    "Figure",
    "Figures",
    "Told",
    "Wait",
    "carriers",
    "carrying",
    "known",
    "lines",
    "wait_evidence",
    "waits",
]


class Told(msgspec.Struct, frozen=True):
    """What a verdict says of its cause."""

    fact: Claim  # what fills the step: what it takes of it is added to the figures
    action: Claim  # what to do about it
    saves: Claim | None = None  # what just that gives, where it is not all that the cause could give back
    named: StepKind | None = None  # the steps that the fact names already


class Cause(msgspec.Struct, frozen=True):
    """One cause, declared at the end of its file."""

    name: str
    says: Callable[[Facts], Told | Claim]  # a claim alone: a roof's, or that nothing is known
    shows: Callable[[Facts], list[Evidence]] | None = None  # what is seen of it, apart from its kernels
    kernels: bool = True  # its kernels are shown too, as far as there is room
    reached: str = ""  # what their rate is a share of; empty: it is not told

    def claim(self, facts: Facts) -> Claim:
        """The verdict where it is this cause."""
        said = self.says(facts)
        if isinstance(said, Claim):
            return said
        fact = replace(said.fact, figures={**amounts(facts, self.name), **said.fact.figures})
        return told(facts, self.name, fact, _worth(facts, said.action), said.saves, said.named)

    def evidence(self, facts: Facts) -> list[Evidence]:
        found = self.shows(facts) if self.shows is not None else []
        if self.kernels:
            found += kernel_evidence(facts, self.name, self.reached)
        return found[:EVIDENCE_ROWS]


def _worth(facts: Facts, action: Claim) -> Claim:
    """An action without the fixes that are of no use here: no verdict names one of those."""
    if not facts.refused.isdisjoint(advises(replace(action, parts=[]))):
        return Claim("action/another-way")
    kept = [part for part in action.parts if facts.refused.isdisjoint(advises(part))]
    return replace(action, parts=kept) if len(kept) < len(action.parts) else action


@cache
def all_causes() -> dict[str, Cause]:
    """By their ids, in the catalogue's order."""
    return {cause: _module(cause).CAUSE for cause in WALL_OF}


def page(cause: str) -> str:
    """The page of a cause: its file's docstring. KeyError where there is no such cause."""
    if cause not in WALL_OF:
        raise KeyError(cause)
    return inspect.getdoc(_module(cause)) or ""


def _module(cause: str) -> ModuleType:
    return importlib.import_module(f"{__name__}.{WALL_OF[cause]}.{cause.replace('-', '_')}")
