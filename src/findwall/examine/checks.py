"""The net below a document: no sentence contradicts a figure.

Every figure, verdict, fix and refusal of a document passes here before anybody sees it. What fails is not
shown: a note says why, and `quality.checks_failed` counts it. A check that fails on a real job is a fault
elsewhere, to be mended there; this is the net below it.
"""

from __future__ import annotations

from collections import Counter

import msgspec

from findwall.examine.circumstances import Circumstances
from findwall.examine.claim_checks import FIX, REFUSAL, VERDICT, WATCHED, Check, Said
from findwall.examine.figure_checks import BESIDE, FIGURES, FigureCheck
from findwall.model.catalogue import WORTH_IT
from findwall.model.causes import UNKNOWN
from findwall.model.claims import Claim, Figure, plain
from findwall.model.diagnosis import NO_GAIN, Diagnosis, Wall

HOST_WORK, LOADER = "host-work", "loader-starved"


def checked(document: Diagnosis, job: Circumstances) -> Diagnosis:
    """The document with what contradicts its figures taken out, noted and counted."""
    failed: list[str] = []
    notes: list[Claim] = []
    sound = True
    for figure, withdraw in {**FIGURES, **BESIDE}.items():
        complaint = figure(document)
        if complaint:
            document, sound = withdraw(document), sound and figure in BESIDE
            failed.append(_name(figure))
            notes.append(Claim("check/left-out", parts=[plain(complaint)]))
    document = msgspec.structs.replace(
        document,
        prescriptions=[
            one
            for one in document.prescriptions
            if _passes(Said(one.claim, document, job, prescription=one), FIX, one.fixes, failed, notes)
        ],
    )
    document = msgspec.structs.replace(
        document,
        not_worth_it=[
            one
            for one in document.not_worth_it
            if _passes(Said(one.claim, document, job, refusal=one), REFUSAL, one.fixes, failed, notes)
        ],
    )
    document = _check_verdict(document, job, sound, failed, notes)
    if not failed:
        return document
    counted = dict(sorted(Counter(failed).items()))
    quality = msgspec.structs.replace(document.quality, checks_failed=counted)
    return msgspec.structs.replace(document, quality=quality, remarks=[*document.remarks, *notes])


def _passes(
    said: Said, checks: tuple[Check, ...], fixes: list[str], failed: list[str], notes: list[Claim]
) -> bool:
    for check in checks:
        complaint = check(said)
        if complaint:
            failed.append(_name(check))
            names: dict[str, Figure] = {f"fix{at}": fix for at, fix in enumerate(fixes, 1)}
            notes.append(Claim("check/not-shown", names, parts=[plain(complaint)]))
            return False
    return True


def _check_verdict(
    document: Diagnosis, job: Circumstances, sound: bool, failed: list[str], notes: list[Claim]
) -> Diagnosis:
    if document.wall.cause is None:
        return _without_trifles(document)
    said = Said(document.wall.claim, document, job)
    complaints = {check: check(said) for check in (VERDICT if document.watch is None else WATCHED)}
    wrong = [check for check, complaint in complaints.items() if complaint]
    if sound and not wrong:
        return document
    failed += [_name(check) for check in wrong]
    why = "; ".join(complaints[check] for check in wrong) or "its figures cannot be right"
    notes.append(Claim("check/no-wall", parts=[plain(why)]))
    undecided = Claim("undecided/contradiction", parts=[plain(why)])
    return msgspec.structs.replace(
        document,
        wall=Wall(None, None, between=[], claim=undecided, why_not="contradiction"),
        prescriptions=[],
        not_worth_it=[one for one in document.not_worth_it if one.at_most_speedup == NO_GAIN],
    )


def _without_trifles(document: Diagnosis) -> Diagnosis:
    """A verdict lies between causes that could be it: none that takes less than a wall in every reading."""
    step, wall = document.step.ms, document.wall
    if not wall.between or not step or not document.budget or document.timeline.span_ms is None:
        return document
    if document.machine.ceilings.get("source") == UNKNOWN:  # then what is slow hides among what is not
        return document
    most = {row.cause: max(row.ms, row.high_ms or 0.0) for row in document.budget}
    if HOST_WORK in most:  # a loader that nothing shows counts as host work
        most.setdefault(LOADER, most[HOST_WORK])
    least = WORTH_IT * min(step, document.step.low_ms or step)
    kept = [pair for pair in wall.between if most.get(pair[-1], 0.0) >= least]
    return msgspec.structs.replace(document, wall=msgspec.structs.replace(wall, between=kept))


def _name(check: Check | FigureCheck) -> str:
    return check.__name__.replace("_", "-")
