"""A document with its claims in words: what `report/` shows, and what other programs read."""

from __future__ import annotations

from findwall.model.diagnosis import Diagnosis
from findwall.report.words import Words, spoken

WORDS: dict[str, Words] = {}


def worded(document: Diagnosis) -> Diagnosis:
    """The same document, its texts filled in where they are empty: one that has them keeps them."""
    for given in document.prescriptions:
        given.how = given.how or spoken(given.claim)
    for refused in document.not_worth_it:
        refused.why = refused.why or spoken(refused.claim)
    asked = document.what_if
    if asked is not None:
        asked.notes = asked.notes or [spoken(claim) for claim in asked.claims]
    return document
