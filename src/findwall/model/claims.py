"""What findwall says, as data: `report/words` alone makes sentences of it.

Checks compare these fields, redaction drops or renames them, `try` and gates take their numbers. No part of
the program reads a sentence.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

Figure = float | int | bool | str | None
Figures = Mapping[str, Figure]
TEXT = "text"  # the id of a claim that is still a sentence: redaction drops it


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


def plain(text: str) -> Claim:
    """A sentence that is not data yet."""
    return Claim(TEXT, names={TEXT: text})
