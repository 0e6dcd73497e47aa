"""Kinds of steps: the usual ones, and those that come now and then and do something besides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from findwall.model.catalogue import MAJORITY_SHARE, NEAR

USUAL = "usual"  # the kind of a step of which nothing special is known
SELDOM = "seldom"  # steps that came only after all others were timed
EVEN_SHARE = NEAR  # of the distances that must be the same
# Of the mean timed step: where the later ones take less, those that were timed were the job's start.
MUCH_FASTER = MAJORITY_SHARE
FEWEST_HITS = 3  # of steps that come at even distances
RARE_SHARE = 0.2  # of the steps: what comes more often is no exception. Chosen by hand, not calibrated.


@dataclass(frozen=True, slots=True)
class StepKind:
    """Steps that do the same: the usual ones, or those that also log, save, evaluate."""

    name: str
    share: float  # of the steps
    mean: float  # seconds
    every: int | None  # one step in so many, where they come at even distances
    doing: str = ""  # what most of the time beyond a usual step goes to, where a hook saw it: "saving"


def even_distance(rows: Sequence[int]) -> int | None:
    """How far apart these steps come, where most distances are the same."""
    if len(rows) < FEWEST_HITS:
        return None
    distances = [after - before for before, after in pairwise(rows)]
    common = Counter(distances).most_common(1)[0][0]
    even = sum(one == common for one in distances) >= EVEN_SHARE * len(distances)
    return common if even and common > 1 else None


def belongs_to_step(rows: Sequence[int], count: int) -> bool:
    """Whether what these of so many steps hold is part of the job's mean step: it comes often, or again and
    again at even distances. What comes now and then is beside the steps."""
    return len(rows) > RARE_SHARE * count or even_distance(rows) is not None
