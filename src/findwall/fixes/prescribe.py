"""Which fixes move this wall, what they could be worth at best, and why the popular others cannot
help."""

from __future__ import annotations

from typing import get_args

import msgspec

from findwall.attribute.facts import Facts
from findwall.attribute.figures import step_ms
from findwall.attribute.whatif import best_step, ideal
from findwall.fixes import Fix, NoUse, Safety, Use, all_fixes
from findwall.model.catalogue import MENTION_SHARE, ROOFS, WORTH_IT
from findwall.model.diagnosis import NO_GAIN, NotWorthIt, Prescription, Range
from findwall.replay.change import Change
from findwall.units import format_ms, ms

MOST_REFUSED = 6  # popular fixes that are said not to help. Chosen by hand, not calibrated.
ROUNDING_MS = 1e-3  # off the step: less is rounding, a microsecond being the last digit shown
SAFETIES = get_args(Safety)


class _Ledger(msgspec.Struct, frozen=True):
    """The step and what each cause could give back, in ms; unknown is absent."""

    step: float
    gain: dict[str, float]

    def of(self, causes: tuple[str, ...]) -> float:
        return sum(self.gain.get(cause, 0.0) for cause in causes)


class _Candidate(msgspec.Struct, frozen=True):
    name: str
    fix: Fix
    outcome: Use
    moves: tuple[str, ...]  # in this job
    at_most: float  # ms off the step, by the replay of the fix at its best


def prescribe(facts: Facts, cause: str | None) -> tuple[list[Prescription], list[NotWorthIt]]:
    """Fixes of the verdict's cause first, then of what else is worth it; and the popular ones left out.

    `cause` None: there is no verdict, and nothing is prescribed.
    """
    ledger = _ledger(facts)
    said = {name: fix.advise(facts) for name, fix in all_fixes().items()}
    candidates = [_candidate(name, one, facts, ledger) for name, one in said.items() if isinstance(one, Use)]
    chosen = _choose(candidates, _targets(cause, ledger), ledger) if cause is not None else []
    prescriptions = [_prescription(candidate, moved, ledger) for candidate, moved in chosen]
    taken = {candidate.name for candidate, _ in chosen}
    refused = {
        name: NotWorthIt([name], NO_GAIN, one.why, one.obvious)
        for name, one in said.items()
        if isinstance(one, NoUse)
    }
    if cause is not None:  # without a verdict nobody knows what is worth it
        refused |= {one.name: _refusal(one, ledger) for one in candidates if one.name not in taken}
    tried = {name: fix.tried for name, fix in all_fixes().items() if fix.tried is not None}
    left = sorted((name for name in refused if name in tried), key=lambda name: (tried[name], name))
    return prescriptions, [refused[name] for name in left[:MOST_REFUSED]]


def _ledger(facts: Facts) -> _Ledger:
    gain = {cause: ms(value) for cause, value in facts.recoverable().items() if value > 0}
    return _Ledger(step_ms(facts), gain)


def _candidate(name: str, outcome: Use, facts: Facts, ledger: _Ledger) -> _Candidate:
    """A fix that applies, and what the step loses by it at best."""
    fix = all_fixes()[name]
    at_most = ledger.step - ms(step_at_best(fix, outcome, facts)) if outcome.shorter_step else 0.0
    return _Candidate(name, fix, outcome, outcome.moves or fix.moves, max(at_most, 0.0))


def step_at_best(fix: Fix, outcome: Use, facts: Facts) -> float:
    """The step, in ns, with all done that a fix could do: no real one should be faster."""
    moves = outcome.moves or fix.moves
    return best_step(facts, _at_best(facts, outcome, moves), moves)


def together_at_best(outcomes: dict[str, Use], facts: Facts) -> float:
    """The same with several fixes made at once, by their names, or one of them alone where others do harm."""
    moved = {name: outcome.moves or all_fixes()[name].moves for name, outcome in outcomes.items()}
    changes = [_at_best(facts, outcome, moved[name]) for name, outcome in outcomes.items()]
    causes = tuple(dict.fromkeys(cause for moves in moved.values() for cause in moves))
    alone = (step_at_best(all_fixes()[name], outcome, facts) for name, outcome in outcomes.items())
    return min(best_step(facts, sum(changes, Change()), causes), *alone)


def _at_best(facts: Facts, outcome: Use, moves: tuple[str, ...]) -> Change:
    return outcome.changes.best if outcome.changes is not None else ideal(facts, *moves)


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
        # What the verdict names is shown with its fixes, also where the next wall stands close behind.
        least = 0.0 if cause == targets[0] else WORTH_IT
        fitting = [
            one for one in candidates if cause in one.moves and _helps(one, cause, least * ledger.step)
        ]
        for one in sorted(fitting, key=lambda one: _rank(one, cause)):
            chosen.setdefault(one.name, (one, cause))
    # Several small causes can add up to what is worth a fix that moves them all.
    rest = [one for one in candidates if min(one.at_most, ledger.of(one.moves)) >= WORTH_IT * ledger.step]
    for one in sorted(rest, key=lambda one: (-one.at_most, one.name)):
        if one.outcome.shorter_step:
            cause = max(one.moves, key=lambda name: ledger.gain.get(name, 0.0))
            chosen.setdefault(one.name, (one, cause))
    return list(chosen.values())


def _helps(one: _Candidate, cause: str, least: float) -> bool:
    return cause in ROOFS or not one.outcome.shorter_step or one.at_most >= max(least, ROUNDING_MS)


def _rank(one: _Candidate, cause: str) -> tuple[int, float, int, str]:
    """A fix made for the cause first, then the one that could give more, then the one that risks less."""
    gain = one.at_most if one.outcome.shorter_step else 0.0
    place = one.fix.moves.index(cause) + one.outcome.after_others
    return place, -gain, SAFETIES.index(one.fix.safety), one.name


def _prescription(one: _Candidate, cause: str, ledger: _Ledger) -> Prescription:
    moves = [name for name in one.moves if ledger.gain.get(name, 0.0) >= MENTION_SHARE * ledger.step]
    if cause not in moves:
        moves.insert(0, cause)
    # At a roof nothing is recoverable: what is left is another job, of which no bound is known.
    # Nor where nothing at all would remain: some of the step must.
    bounded = one.outcome.shorter_step and cause not in ROOFS
    bounded &= 0 < one.at_most < ledger.step - ROUNDING_MS
    low = ledger.step - one.at_most if bounded else None
    return Prescription(
        fixes=[one.name],
        moves=moves,
        step_ms=Range(low=low),
        speedup=Range(high=ledger.step / low if low else None),
        safety=one.fix.safety,
        how=one.outcome.how,
    )


def _refusal(one: _Candidate, ledger: _Ledger) -> NotWorthIt:
    what = max(one.moves, key=lambda name: ledger.gain.get(name, 0.0))
    most, step = format_ms(one.at_most), format_ms(ledger.step)
    rest = ledger.step - one.at_most
    why = f"it saves up to {most} of the {step} step, by removing {what}"
    left = ledger.of(one.moves)
    if left < one.at_most:  # all it could do at best, and what its causes have to give at all
        amount = f"only {format_ms(left)}" if left > 0 else "nothing"
        why = f"the causes it moves, {what} first, give back {amount} of the {step} step"
    if one.at_most < ROUNDING_MS:
        why = f"it saves nothing while another wall stands: removing {what} alone leaves the step at {step}"
    return NotWorthIt([one.name], ledger.step / rest if rest > 0 else None, why)
