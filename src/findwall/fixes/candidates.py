"""What each fix could do for this step, and is likely to: what prescriptions are chosen from."""

from __future__ import annotations

from typing import get_args

import msgspec
from msgspec.structs import replace

from findwall.facts.facts import Facts
from findwall.facts.gains import blind_ms, is_blind, step_ms
from findwall.facts.step_traits import on_cores
from findwall.fixes import Fix, Safety, Use, all_fixes
from findwall.fixes.at_best import step_at_best
from findwall.fixes.predict import Prediction, predict
from findwall.model.catalogue import MENTION_SHARE, SMALL_PART
from findwall.model.claims import Range
from findwall.model.diagnosis import Basis
from findwall.units import ms

SAFETIES = get_args(Safety)
ALIKE = 1.0 + SMALL_PART  # times as long: of two predictions no further apart neither is the better one


class Ledger(msgspec.Struct, frozen=True):
    """The step and what each cause could give back, in ms; unknown is absent."""

    step: float
    gain: dict[str, float]

    def of(self, causes: tuple[str, ...]) -> float:
        return sum(self.gain.get(cause, 0.0) for cause in causes)


class Candidate(msgspec.Struct, frozen=True):
    name: str
    fix: Fix
    outcome: Use
    moves: tuple[str, ...]  # in this job
    at_most: float  # ms off the step, by the replay of the fix at its best
    predicted: Range | None = None  # the step in ms; None: nobody can tell, the bound alone is known
    basis: Basis | None = None  # what that rests on
    least: float | None = None  # the step at best, ms; None where that is not known
    is_blind: bool = False  # so much of it that the bound is not known either
    on_cores: bool = False  # where most have a bound alone

    @property
    def is_found(self) -> bool:
        """Whether it was found in this job, in its graph or on its lines: not said of whatever is slow."""
        return (self.fix.removes or bool(self.outcome.places)) and not self.fix.of_anything

    @property
    def mid(self) -> float | None:
        return self.predicted.mid if self.predicted is not None else None


def ledger_of(facts: Facts) -> Ledger:
    gain = {cause: ms(value) for cause, value in facts.recoverable().items() if value > 0}
    return Ledger(step_ms(facts), gain)


def weighed(name: str, outcome: Use, facts: Facts, ledger: Ledger) -> Candidate:
    """A fix that applies, and what the step loses by it at best."""
    fix = all_fixes()[name]
    at_most = ledger.step - ms(step_at_best(fix, outcome, facts)) if outcome.shorter_step else 0.0
    moves = outcome.moves or fix.moves
    floors = () if fix.removes else moves  # what those of the work that stays must tell
    blind = is_blind(facts, *floors) and outcome.shorter_step
    found = None
    if at_most >= MENTION_SHARE * ledger.step:  # what could give nothing at best is not played again
        found = predict(facts, {name: outcome})
    predicted = in_ms(found, ledger.step - at_most)
    basis = found.basis if found is not None else None
    least = ledger.step - at_most if outcome.shorter_step and not blind else None
    at_most = max(at_most, 0.0) + (blind_ms(facts, *floors) if blind else 0.0)
    return Candidate(name, fix, outcome, moves, at_most, predicted, basis, least, blind, on_cores(facts))


def provable(used: dict[str, Use], targets: list[str], facts: Facts, ledger: Ledger) -> list[Candidate]:
    """Fixes of these causes that a trial can make. Beside a wall that nobody knows none has a prediction."""
    able = {name: fix for name, fix in all_fixes().items() if fix.trial is not None}
    return [
        replace(weighed(name, one, facts, ledger), predicted=None, basis=None)
        for name, one in used.items()
        if name in able and not set(targets).isdisjoint(one.moves or able[name].moves)
    ]


def in_ms(found: Prediction | None, best: float) -> Range | None:
    """A prediction that no bound contradicts: the low end is what cannot be beaten, at least, but for what
    the host differs by from run to run."""
    if found is None:
        return None
    mid = max(ms(found.mid), best)
    return Range(min(max(ms(found.low), best * found.noise), mid), mid, mid * found.high / found.mid)


def worth_naming(moves: tuple[str, ...], ledger: Ledger) -> list[str]:
    return [name for name in moves if ledger.gain.get(name, 0.0) >= MENTION_SHARE * ledger.step]


def speedup(step: Range, now: float) -> Range:
    ends = (now / value if value else None for value in (step.high, step.mid, step.low))
    return Range(*ends)
