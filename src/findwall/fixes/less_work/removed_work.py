"""What fixes that take whole passes out of the step move."""

from __future__ import annotations

import numpy as np

from findwall.fixes import Facts
from findwall.model.catalogue import WORTH_IT
from findwall.model.causes import CAUSES
from findwall.model.intervals import I64


def causes_of(facts: Facts, atoms: I64, among: tuple[str, ...]) -> tuple[str, ...] | None:
    """The causes of what goes, those with a fair share of the step, the most first; None: any of them."""
    spent = np.bincount(facts.atoms.cause[atoms], facts.own[atoms], minlength=len(CAUSES))
    order = [CAUSES[at] for at in np.argsort(-spent, kind="stable").tolist()]
    worth = [one for one in order if spent[CAUSES.index(one)] >= WORTH_IT * facts.step]
    return tuple(one for one in worth if one in among) or None
