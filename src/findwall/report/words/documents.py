"""A document with its claims in words: what `report/` shows, and what other programs read."""

from __future__ import annotations

from findwall.model.claims import Claim
from findwall.model.diagnosis import Diagnosis
from findwall.report.words import Words, spoken

WORDS: dict[str, Words] = {}


def worded(document: Diagnosis) -> Diagnosis:
    """The same document, its texts filled in where they are empty: one that has them keeps them."""
    wall = document.wall
    wall.sentence = wall.sentence or spoken(wall.claim)
    for question in document.questions:
        question.sentence = question.sentence or spoken(question.claim)
    for row in document.budget:
        for shown in row.evidence:
            shown.text = shown.text or spoken(shown.claim)
    for kind in document.kinds:
        kind.what = kind.what or spoken(kind.claim)
    for one in document.counted:
        one.sentence, one.helps = one.sentence or spoken(one.claim), one.helps or spoken(one.action)
    oom = document.memory.oom
    for rung in [*document.memory.ladder, *([oom.rung] if oom is not None and oom.rung is not None else [])]:
        rung.how = rung.how or spoken(rung.claim)
    for missing in document.memory.not_predicted:
        missing.why = missing.why or spoken(missing.claim)
    _word_advice(document)
    for seen in document.watch.ranks if document.watch is not None else []:
        seen.odd = seen.odd or spoken(seen.claim)
    if document.sweep is not None:
        document.sweep.says = document.sweep.says or list(map(spoken, document.sweep.claims))
    for point in document.sweep.points if document.sweep is not None else []:
        point.why = point.why or spoken(point.claim)
    if not document.notes:
        said: dict[str, Claim] = {}
        for remark in document.remarks:  # each once
            said.setdefault(spoken(remark), remark)
        document.notes, document.remarks = list(said), list(said.values())
    return document


def _word_advice(document: Diagnosis) -> None:
    for given in document.prescriptions:
        given.how = given.how or spoken(given.claim)
    for refused in document.not_worth_it:
        refused.why = refused.why or spoken(refused.claim)
    asked = document.what_if
    if asked is not None:
        asked.notes = asked.notes or [spoken(claim) for claim in asked.claims]
