"""The step with all done that fixes could do: no real one should be faster."""

from __future__ import annotations

from collections.abc import Mapping

from findwall.facts.best_changes import best_step, ideal
from findwall.facts.facts import Facts
from findwall.facts.figures import step_without_rare
from findwall.fixes import Fix, Use, all_fixes
from findwall.fixes.predict import moved_by
from findwall.replay.change import Change
from findwall.units import NS_PER_MS


def step_at_best(fix: Fix, outcome: Use, facts: Facts) -> float:
    """The step, in ns, with all done that a fix could do: no real one should be faster."""
    moves = outcome.moves or fix.moves
    return min(best_step(facts, _at_best(facts, outcome, moves), moves), step_without_rare(facts, moves))


def together_at_best(
    outcomes: dict[str, Use], facts: Facts, alone: Mapping[str, float] | None = None
) -> float:
    """The same with several fixes made at once, by their names, or one of them alone where others do harm.

    `alone`: the step of each at its best, in ms, where that is known already.
    """
    changes = [_at_best(facts, one, one.moves or all_fixes()[name].moves) for name, one in outcomes.items()]
    if alone is None:
        steps = [step_at_best(all_fixes()[name], outcome, facts) for name, outcome in outcomes.items()]
    else:
        steps = [step * NS_PER_MS for step in alone.values()]
    return min(best_step(facts, sum(changes, Change()), moved_by(outcomes)), *steps)


def _at_best(facts: Facts, outcome: Use, moves: tuple[str, ...]) -> Change:
    return outcome.best if outcome.best is not None else ideal(facts, *moves)
