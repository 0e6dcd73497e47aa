"""Memory that grew by as much in every step until there was no more, by what was held at ends of steps.

Much else grows for a while: a warm-up, a cache that fills, an optimizer's state, longer batches. So growth is
the cause only where each part of the steps grew at about the pace of the whole, where it explains most of
what the job held beyond its model, and where the request would have fitted without it.
"""

from __future__ import annotations

from itertools import pairwise

import msgspec

from findwall.model.catalogue import MAJORITY_SHARE

FIRST_STEP = 2  # the one before makes what stays
PARTS = 4  # at the most, of about as many steps each
FEWEST_LOOKS = 3
UNEVEN = 2.0  # a part may grow so many times faster or slower than the whole
LEAST_GROWN_BYTES = 16 << 20  # Python and torch make as much for themselves
BEYOND = 2.0  # growth is taken to go on for as long again as it was seen, no longer


class SeenGrowth(msgspec.Struct, frozen=True):
    bytes_per_step: float
    first: int
    last: int  # step at which it was last seen
    grown: float  # from the first to the failure


class AtFailure(msgspec.Struct, frozen=True):
    """In bytes."""

    step: int  # the last that ended
    held: float
    model: float  # of it
    asked: float | None
    left: float  # free on the device and in the cache


def growth_until(looks: list[tuple[int, int]], failure: AtFailure) -> SeenGrowth | None:
    """From the earliest look on from which memory grew steadily. `looks`: steps in order, bytes."""
    looks = [look for look in looks if FIRST_STEP <= look[0] <= failure.step]
    for at in range(len(looks) - FEWEST_LOOKS + 1):
        found = _steady(looks[at:], failure)
        if found is not None:
            return found if _explains(found, failure) else None
    return None


def _steady(looks: list[tuple[int, int]], failure: AtFailure) -> SeenGrowth | None:
    parts = _apart(looks)
    (first, before), (last, after) = parts[0], parts[-1]
    if len(parts) < FEWEST_LOOKS or after <= before:
        return None
    pace = (after - before) / (last - first)
    for (step, held), (later, more) in pairwise(parts):
        if not pace / UNEVEN <= (more - held) / (later - step) <= pace * UNEVEN:
            return None
    until = min(failure.step, first + BEYOND * (last - first))
    return SeenGrowth(pace, first, last, min(pace * (until - first), failure.held - before))


def _apart(looks: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The first, the last, and those nearest to as many steps apart."""
    first, last = looks[0][0], looks[-1][0]
    wanted = [first + (last - first) * part / PARTS for part in range(PARTS + 1)]
    return sorted({min(looks, key=lambda look: abs(look[0] - step)) for step in wanted})


def _explains(found: SeenGrowth, failure: AtFailure) -> bool:
    if found.grown < max(LEAST_GROWN_BYTES, MAJORITY_SHARE * (failure.held - failure.model)):
        return False
    return failure.asked is None or failure.asked <= failure.left + found.grown
