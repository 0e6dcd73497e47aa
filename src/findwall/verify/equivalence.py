"""Whether a job with a fix made still computes the same, told by the losses of its first steps.

Two plain runs differ too: by kernels that add up in another order each time, and by their seeds. A fix may
differ as much as it says it may: one that is safe no more than two plain runs from the same seed, one that
changes numerics no more than rounding explains, or than two plain runs from different seeds.
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
    base = [one[:steps] for one in base]
    found = max(apart(one, two[:steps]) for one in base for two in made)
    noise = max((apart(one, two) for one, two in combinations(base, 2)), default=0.0)
    if exact:
        allowed = max(EXACT, TIMES_NOISE * noise)
    else:
        seeds = [one[:steps] for one in other_seed if len(one) >= steps]
        between = max((apart(one, two) for one in base for two in seeds), default=0.0)
        allowed = max(ROUNDED, TIMES_NOISE * noise, between)
    return Losses("same" if found <= allowed else "differs", found, allowed, steps)


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
