"""What findwall says, as data: `report/words` alone makes sentences of it.

Checks compare these fields, redaction drops or renames them, `try` and gates take their numbers. No part of
the program reads a sentence.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

Figure = float | int | bool | str | None
Figures = Mapping[str, Figure]
TEXT = "text"  # the id of a claim that is still a sentence: redaction drops it
EVIDENCE_ROWS = 3  # of a cause at the most: what a person reads before going on
ADVISE = "advise/"  # how the ids of actions begin: "advise/torch-compile/casts" speaks of that fix


class Claim(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that is said. Its id says what, and `report/words` has its words under that id."""

    id: str  # "loader-workers/none-yet": the subject, then what is said of it
    # What the words are made with. A number's name ends in its unit (`waits_ms`, `busy_share`); a text is one
    # of findwall's own words (an id, a number format), never a name that somebody else gave.
    figures: Figures = {}
    names: dict[str, str] = {}  # given by others: ops, kernels, modules, devices, files
    places: list[str] = []  # lines of the job's own code, "train.py:88"
    parts: list[Claim] = []  # claims that its words contain, in their order

    def with_parts(self, *parts: Claim) -> Claim:
        return msgspec.structs.replace(self, parts=[*self.parts, *parts])

    def all(self) -> Iterator[Claim]:
        """Itself and every claim inside it."""
        yield self
        for part in self.parts:
            yield from part.all()


def plain(text: str) -> Claim:
    """A sentence that is not data yet."""
    return Claim(TEXT, names={TEXT: text})


def known(**names: str | None) -> dict[str, str]:
    """The names that are known."""
    return {key: name for key, name in names.items() if name}


def numbered(key: str, names: Iterable[str]) -> dict[str, str]:
    """Several names of one kind: op1, op2."""
    return {f"{key}{at}": name for at, name in enumerate(names, 1)}


def lines(*places: str | None) -> list[str]:
    """The lines of code that are known."""
    return [place for place in places if place]


def advises(claim: Claim) -> list[str]:
    """The fixes that its words speak of."""
    found = [one.id.split("/")[1] for one in claim.all() if one.id.startswith(ADVISE)]
    return list(dict.fromkeys(found))


def promised_ms(claim: Claim) -> float | None:
    """What its words say can be saved at the most; None where they promise nothing."""
    found = [one.figures["saves_ms"] for one in claim.all() if "saves_ms" in one.figures]
    return float(found[0]) if found and found[0] is not None else None


def listed(words: Iterable[str]) -> str:
    found = list(words)
    return " and ".join([", ".join(found[:-1]), found[-1]] if len(found) > 1 else found)


class Range(msgspec.Struct):
    low: float | None = None
    mid: float | None = None
    high: float | None = None


class Evidence(msgspec.Struct):
    text: str = ""
    kernel: str | None = None
    op: str | None = None
    line: str | None = None
    ms: float | None = None
    claim: Claim | None = None  # what `text` says, as data
