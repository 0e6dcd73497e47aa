"""Which fixes move this wall, what they could be worth at best, and why the popular others cannot
help."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from findwall.attribute.facts import Facts
from findwall.attribute.figures import step_ms
from findwall.fixes import fix_modules
from findwall.model.advice import Advice
from findwall.model.catalogue import ROOFS, WORTH_IT
from findwall.model.diagnosis import NotWorthIt, Prescription, Range
from findwall.units import format_ms, ms

MOST_REFUSED = 6
MENTIONED = 0.01  # of the step: causes that give back less are not named among what a fix moves
SAFETIES = ("safe", "changes-numerics", "needs-review")
# What people try first, in the order they try it.
POPULARITY = (
    "torch-compile",
    "bf16-autocast",
    "loader-workers",
    "sdpa",
    "fused-optimizer",
    "cuda-graphs",
    "pin-memory",
    "tf32",
    "channels-last",
    "remove-sync",
)


class Fix(Protocol):
    """A file of `fixes/`, as the rest of the program sees it."""

    MOVES: tuple[str, ...]
    SAFETY: str

    def advise(self, facts: Facts) -> Advice: ...


@dataclass(frozen=True)
class _Ledger:
    """The step and what each cause could give back, in ms; unknown is absent."""

    step: float
    gain: dict[str, float]

    def of(self, causes: tuple[str, ...]) -> float:
        return sum(self.gain.get(cause, 0.0) for cause in causes)


@dataclass(frozen=True)
class _Candidate:
    name: str
    fix: Fix
    advice: Advice
    moves: tuple[str, ...]  # in this job
    at_most: float  # ms off the step; never more than its causes could give back
    at_most_of_all: float  # the same with what it may win besides, for "not worth it"


def prescribe(facts: Facts, cause: str | None) -> tuple[list[Prescription], list[NotWorthIt]]:
    """Fixes of the verdict's cause first, then of what else is worth it; and the popular ones left out.

    `cause` None: there is no verdict, and nothing is prescribed.
    """
    ledger = _ledger(facts)
    candidates = [_candidate(name, fix, facts, ledger) for name, fix in _fixes().items()]
    chosen = _choose(candidates, _targets(cause, ledger), ledger) if cause is not None else []
    prescriptions = [_prescription(candidate, moved, ledger) for candidate, moved in chosen]
    taken = {candidate.name for candidate, _ in chosen}
    decided = [one for one in candidates if not one.advice.undecided]
    left = [one for one in decided if one.name in POPULARITY and one.name not in taken]
    if cause is None:
        # Without a verdict nobody knows what is worth it; what cannot help at all is known all the same.
        left = [one for one in left if not one.advice.applies]
    left.sort(key=lambda one: (_popularity(one.name), one.name))
    return prescriptions, [_refusal(one, ledger) for one in left[:MOST_REFUSED]]


def _fixes() -> dict[str, Fix]:
    return dict(fix_modules())


def _ledger(facts: Facts) -> _Ledger:
    gain = {cause: ms(value) for cause, value in facts.recoverable().items() if value > 0}
    return _Ledger(step_ms(facts), gain)


def _candidate(name: str, fix: Fix, facts: Facts, ledger: _Ledger) -> _Candidate:
    """What a fix says of this job, and the bound of its gain."""
    advice = fix.advise(facts)
    moves = advice.moves or fix.MOVES
    bound = ledger.of(moves)
    said = bound if advice.at_most_ms is None else max(advice.at_most_ms, 0.0)
    return _Candidate(name, fix, advice, moves, min(bound, said), said)


def _targets(cause: str, ledger: _Ledger) -> list[str]:
    """Causes worth a fix: the verdict's, then whatever else gives back enough, the most first."""
    worth = sorted(ledger.gain, key=lambda one: -ledger.gain[one])
    others = [one for one in worth if ledger.gain[one] >= WORTH_IT * ledger.step]
    return list(dict.fromkeys([cause, *others]))


def _choose(
    candidates: list[_Candidate], targets: list[str], ledger: _Ledger
) -> list[tuple[_Candidate, str]]:
    chosen: dict[str, tuple[_Candidate, str]] = {}
    for cause in targets:
        if cause not in ROOFS and ledger.gain.get(cause, 0.0) <= 0:
            continue
        least = MENTIONED if cause == targets[0] else WORTH_IT
        fitting = [
            one for one in candidates if cause in one.moves and _helps(one, cause, least * ledger.step)
        ]
        for one in sorted(fitting, key=lambda one: _rank(one, cause)):
            chosen.setdefault(one.name, (one, cause))
    # Several small causes can add up to what is worth a fix that moves them all.
    rest = [one for one in candidates if one.advice.applies and one.at_most >= WORTH_IT * ledger.step]
    for one in sorted(rest, key=lambda one: (-one.at_most, one.name)):
        if one.advice.shorter_step:
            cause = max(one.moves, key=lambda name: ledger.gain.get(name, 0.0))
            chosen.setdefault(one.name, (one, cause))
    return list(chosen.values())


def _helps(one: _Candidate, cause: str, least: float) -> bool:
    if not one.advice.applies:
        return False
    return cause in ROOFS or not one.advice.shorter_step or one.at_most >= least


def _rank(one: _Candidate, cause: str) -> tuple[int, float, int, str]:
    """A fix made for the cause first, then the one that could give more, then the one that risks less."""
    gain = one.at_most if one.advice.shorter_step else 0.0
    place = one.fix.MOVES.index(cause) + one.advice.after_others
    return place, -gain, SAFETIES.index(one.fix.SAFETY), one.name


def _prescription(one: _Candidate, cause: str, ledger: _Ledger) -> Prescription:
    moves = [name for name in one.moves if ledger.gain.get(name, 0.0) >= MENTIONED * ledger.step]
    if cause not in moves:
        moves.insert(0, cause)
    # At a roof nothing is recoverable: what is left is another job, of which no bound is known.
    bounded = one.advice.shorter_step and cause not in ROOFS and one.at_most > 0
    low = max(ledger.step - one.at_most, 0.0) if bounded else None
    return Prescription(
        fixes=[one.name],
        moves=moves,
        step_ms=Range(low=low),
        speedup=Range(high=ledger.step / low if low else None),
        safety=one.fix.SAFETY,  # type: ignore[arg-type]
        how=one.advice.how,
    )


def _popularity(name: str) -> int:
    return POPULARITY.index(name) if name in POPULARITY else len(POPULARITY)


def _refusal(one: _Candidate, ledger: _Ledger) -> NotWorthIt:
    why = one.advice.why_not
    if one.advice.applies:
        what = max(one.moves, key=lambda name: ledger.gain.get(name, 0.0))
        most, step = format_ms(one.at_most_of_all), format_ms(ledger.step)
        why = f"what it moves ({what}) gives back at most {most} of the {step} step"
    return NotWorthIt([one.name], _at_most_speedup(one, ledger), why)


def _at_most_speedup(one: _Candidate, ledger: _Ledger) -> float | None:
    if not one.advice.applies and one.advice.at_most_ms is None:
        return None
    rest = ledger.step - one.at_most_of_all
    return ledger.step / rest if rest > 0 else None
