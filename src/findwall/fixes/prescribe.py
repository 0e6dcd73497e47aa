"""Which fixes move this wall, what they could be worth at best, and why the popular others cannot
help."""

from __future__ import annotations

from dataclasses import dataclass

from findwall.attribute.budget import CAUSES
from findwall.attribute.facts import Facts
from findwall.fixes import fix_modules
from findwall.fixes.advice import Advice, Fix, step_ms
from findwall.model.catalogue import ROOFS
from findwall.model.diagnosis import NotWorthIt, Prescription, Range
from findwall.units import format_ms, ms
from findwall.walls.verdict import WORTH_IT, Verdict

MOST_REFUSED = 6
MENTIONED = 0.01  # of the step: causes that give back less are not named among what a fix moves
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
    at_most: float  # ms off the step


def prescribe(facts: Facts, verdict: Verdict) -> tuple[list[Prescription], list[NotWorthIt]]:
    """Fixes of the verdict's cause first, then of what else is worth it; and the popular ones left out."""
    ledger = _ledger(facts)
    candidates = [_candidate(name, fix, facts, ledger) for name, fix in _fixes().items()]
    chosen = _choose(candidates, _targets(verdict, ledger), ledger) if verdict.cause is not None else []
    prescriptions = [_prescription(candidate, cause, ledger) for candidate, cause in chosen]
    taken = {candidate.name for candidate, _ in chosen}
    left = [one for one in candidates if one.fix.POPULAR and one.name not in taken]
    if verdict.cause is None:
        # Without a verdict nobody knows what is worth it; what cannot help at all is known all the same.
        left = [one for one in left if not one.advice.applies]
    left.sort(key=lambda one: (_popularity(one.name), one.name))
    return prescriptions, [_refusal(one, ledger) for one in left[:MOST_REFUSED]]


def _fixes() -> dict[str, Fix]:
    return dict(fix_modules())


def _ledger(facts: Facts) -> _Ledger:
    found = facts.recoverable().tolist()
    gain = {cause: ms(value) for cause, value in zip(CAUSES, found, strict=True) if value > 0}
    return _Ledger(step_ms(facts), gain)


def _candidate(name: str, fix: Fix, facts: Facts, ledger: _Ledger) -> _Candidate:
    """What a fix says, its gain never above what its causes could give back."""
    advice = fix.advise(facts)
    bound = ledger.of(fix.MOVES)
    if advice.at_most_ms is not None:
        bound = min(bound, advice.at_most_ms)
    return _Candidate(name, fix, advice, max(bound, 0.0))


def _targets(verdict: Verdict, ledger: _Ledger) -> list[str]:
    """Causes worth a fix: the verdict's, the next, and whatever else gives back enough."""
    worth = sorted(ledger.gain, key=lambda cause: -ledger.gain[cause])
    others = [cause for cause in worth if ledger.gain[cause] >= WORTH_IT * ledger.step]
    named = [cause for cause in (verdict.cause, verdict.next) if cause is not None]
    return list(dict.fromkeys([*named, *others]))


def _choose(
    candidates: list[_Candidate], targets: list[str], ledger: _Ledger
) -> list[tuple[_Candidate, str]]:
    chosen: dict[str, tuple[_Candidate, str]] = {}
    for cause in targets:
        if cause not in ROOFS and ledger.gain.get(cause, 0.0) <= 0:
            continue
        fitting = [one for one in candidates if cause in one.fix.MOVES and _helps(one, cause, ledger)]
        for one in sorted(fitting, key=lambda one: _rank(one, cause)):
            chosen.setdefault(one.name, (one, cause))
    # Several small causes can add up to what is worth a fix that moves them all.
    rest = [one for one in candidates if one.advice.applies and one.at_most >= WORTH_IT * ledger.step]
    for one in sorted(rest, key=lambda one: (-one.at_most, one.name)):
        if one.advice.shorter_step:
            cause = max(one.fix.MOVES, key=lambda name: ledger.gain.get(name, 0.0))
            chosen.setdefault(one.name, (one, cause))
    return list(chosen.values())


def _helps(one: _Candidate, cause: str, ledger: _Ledger) -> bool:
    if not one.advice.applies:
        return False
    return cause in ROOFS or not one.advice.shorter_step or one.at_most >= MENTIONED * ledger.step


def _rank(one: _Candidate, cause: str) -> tuple[int, float, str]:
    """A fix made for the cause first, then the one that could give more."""
    return one.fix.MOVES.index(cause), -one.at_most, one.name


def _prescription(one: _Candidate, cause: str, ledger: _Ledger) -> Prescription:
    moves = [name for name in one.fix.MOVES if ledger.gain.get(name, 0.0) >= MENTIONED * ledger.step]
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
        moved = [name for name in one.fix.MOVES if ledger.gain.get(name, 0.0) > 0]
        what = moved[0] if moved else one.fix.MOVES[0]
        most, step = format_ms(one.at_most), format_ms(ledger.step)
        why = f"what it moves ({what}) gives back at most {most} of the {step} step"
    return NotWorthIt([one.name], _at_most_speedup(one, ledger), why)


def _at_most_speedup(one: _Candidate, ledger: _Ledger) -> float | None:
    if not one.advice.applies and one.advice.at_most_ms is None:
        return None
    rest = ledger.step - one.at_most
    return ledger.step / rest if rest > 0 else None
