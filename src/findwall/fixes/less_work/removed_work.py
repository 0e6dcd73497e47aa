"""What fixes that take whole passes out of the step move."""

from __future__ import annotations

import numpy as np

from findwall.facts.user_lines import line_of
from findwall.fixes import Claim, Facts, Outcome, Use, gone, lines, no_use, time_of
from findwall.model.catalogue import WORTH_IT
from findwall.model.causes import CAUSES
from findwall.model.dataflow import Needless
from findwall.model.intervals import I64


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
    change = gone(facts, found.atoms)
    return Use(
        Claim(said[0], figures, places=lines(place)),
        change,
        likely=lambda made: change,
        uncurved=True,
        condition=condition,
    )
