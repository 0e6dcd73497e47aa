"""Whether a job with a fix made still computes the same, told by the losses of its first steps.

Two plain runs differ too: by kernels that add up in another order each time, and by their seeds. A fix may
differ as much as it says it may: one that promises the same numbers no more than two plain runs from the same
seed, one that rounds no more than rounding explains, or than two plain runs from different seeds. Training
that overshoots makes any rounding grow from step to step, so the first few steps are held to account by
themselves: there a wrong forward pass, gradient or update shows, and rounding has not grown yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from statistics import fmean
from typing import Literal

import msgspec

Likeness = Literal["same", "differs", "not-checked"]

BLOCKS = "▁▂▃▄▅▆▇█"
COMPARED = 20  # losses: later ones drift apart by themselves. Chosen by hand.
FIRST = 5  # losses that are compared by themselves too. Chosen by hand.
FEWEST = 3  # losses: fewer prove nothing
# Of the loss, in the mean of the compared steps. Chosen by hand: what one rounding does, and what 16 bits do.
EXACT, ROUNDED = 1e-5, 0.02
TIMES_NOISE = 2.0  # how much more than two plain runs a fix may differ


class Losses(msgspec.Struct, frozen=True):
    """How far the losses of a fix lie from the plain ones, as a share of them."""

    likeness: Likeness
    apart: float | None = None
    allowed: float | None = None
    steps: int = 0
    of: Literal["losses", "outputs"] = "losses"  # what was compared
    plain: tuple[float, ...] = ()  # one curve of each
    fixed: tuple[float, ...] = ()


def compare_losses(
    plain: Sequence[Sequence[float]],
    other_seed: Sequence[Sequence[float]],
    fixed: Sequence[Sequence[float]],
    exact: bool,
) -> Losses:
    """`exact`: the fix promises the same numbers. Each sequence holds the losses of one process."""
    base, made = ([one for one in many if len(one) >= FEWEST] for many in (plain, fixed))
    if not base or not made:
        return Losses("not-checked")
    steps = min(COMPARED, *map(len, base), *map(len, made))
    exact = exact and len(base) > 1  # one plain run does not show what a repeat differs by
    compared = [_compared(base, other_seed, made, exact, many) for many in {min(FIRST, steps), steps}]
    found, allowed = max(compared, key=lambda pair: pair[0] / pair[1])
    likeness: Likeness = "same" if found <= allowed else "differs"
    return Losses(likeness, found, allowed, steps, plain=tuple(base[0][:steps]), fixed=tuple(made[0][:steps]))


def _compared(
    plain: Sequence[Sequence[float]],
    other_seed: Sequence[Sequence[float]],
    fixed: Sequence[Sequence[float]],
    exact: bool,
    steps: int,
) -> tuple[float, float]:
    """How far apart the first steps are, and how far they may be."""
    base, made = ([one[:steps] for one in many] for many in (plain, fixed))
    found = max(apart(one, two) for one in base for two in made)
    noise = max((apart(one, two) for one, two in combinations(base, 2)), default=0.0)
    if exact:
        return found, max(EXACT, TIMES_NOISE * noise)
    seeds = [one[:steps] for one in other_seed if len(one) >= steps]
    between = max((apart(one, two) for one in base for two in seeds), default=0.0)
    return found, max(ROUNDED, TIMES_NOISE * max(noise, between))


def apart(one: Sequence[float], two: Sequence[float]) -> float:
    """The mean distance of two curves, as a share of the first's size."""
    size = fmean(map(abs, one)) or 1.0
    return fmean(abs(a - b) for a, b in zip(one, two, strict=True)) / size


def plotted(one: Sequence[float], two: Sequence[float], width: int = COMPARED) -> tuple[str, str]:
    """Both curves as a line of blocks each, on one scale."""
    shown = [list(curve[:width]) for curve in (one, two)]
    low, high = min(map(min, shown)), max(map(max, shown))
    step = (high - low) / (len(BLOCKS) - 1) or 1.0
    first, second = ("".join(BLOCKS[int((value - low) / step)] for value in curve) for curve in shown)
    return first, second
