"""What fixes that take whole passes out of the step move."""

from __future__ import annotations

import numpy as np

from findwall.facts.best_changes import left_out
from findwall.facts.user_lines import line_of
from findwall.fixes import Claim, Facts, Outcome, Use, lines, no_use, on_cores, rows_of, time_of
from findwall.model.catalogue import WORTH_IT
from findwall.model.causes import CAUSES
from findwall.model.dataflow import Needless, Unneeded
from findwall.model.events import Bool
from findwall.model.intervals import I64
from findwall.replay.change import Change, Scale

# On cores a small op's way to its work is its own time, whatever it does: what loops over small ops take
# there counts for these.
CAUSES_ON_CORES = ("slow-kernels", "unfused-pointwise", "layout-copies", "gather-scatter")


def on_cores_too(facts: Facts, atoms: I64) -> tuple[str, ...]:
    """Of a CPU job the causes that fewer of these small ops move."""
    return (causes_of(facts, atoms, CAUSES_ON_CORES) or ()) if on_cores(facts) else ()


def causes_of(facts: Facts, atoms: I64, among: tuple[str, ...]) -> tuple[str, ...] | None:
    """The causes of what goes, those with a fair share of the step, the most first; None: any of them."""
    spent = np.bincount(facts.atoms.cause[atoms], facts.own[atoms], minlength=len(CAUSES))
    order = [CAUSES[at] for at in np.argsort(-spent, kind="stable").tolist()]
    worth = [one for one in order if spent[CAUSES.index(one)] >= WORTH_IT * facts.step]
    return tuple(one for one in worth if one in among) or None


def without_needless(facts: Facts, kind: Needless, said: tuple[str, str], condition: str) -> Outcome:
    """What a step does for nothing, of one kind, left out. `said`: the claim where there is some, and where
    there is none."""
    found = next((one for one in facts.unneeded if one.kind == kind), None)
    if found is None:
        return no_use(said[1])
    place = found.place or line_of(facts, found.op) or ""
    figures = {
        "spent_ms": time_of(facts, found.atoms),
        "ops": found.ops or None,
        "parameters": found.gradients or None,
    }
    change = left_out(facts, found.atoms)
    return Use(
        Claim(said[0], figures, places=lines(place)),
        change,
        likely=lambda made: change,
        uncurved=True,
        condition=condition,
    )


def scaled(facts: Facts, one: Unneeded, where: Bool | None = None) -> Change:
    """Work on rows that are too many, with those that are needed; `where`: of these atoms alone."""
    assert one.left is not None
    chosen = np.ones(len(one.atoms), bool) if where is None else where
    rows, first = np.unique(rows_of(facts, one.atoms[chosen]), return_index=True)
    return Change((Scale(rows, one.left[chosen][first]),)) if len(rows) else Change()


def on_fewer_rows(facts: Facts, kind: Needless, said: tuple[str, str], condition: str) -> Outcome:
    """Work on rows that are too many, of one kind, on those that are needed. `said`: as above."""
    found = next((one for one in facts.unneeded if one.kind == kind), None)
    if found is None:
        return no_use(said[1])
    figures = {
        "spent_ms": time_of(facts, found.atoms),
        "left_share": left_of(facts, found),
        "pick": found.pick or None,
    }
    change = scaled(facts, found)
    return Use(
        Claim(said[0], figures, places=lines(found.place)),
        change,
        likely=lambda made: change,
        uncurved=True,
        condition=condition,
    )


def left_of(facts: Facts, one: Unneeded) -> float | None:
    """Of the time of work on rows that are too many, what would be left."""
    own = facts.own[one.atoms]
    return float((own * one.left).sum() / own.sum()) if one.left is not None and own.sum() > 0 else None
