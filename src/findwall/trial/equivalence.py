"""Whether a job with a fix made still computes the same, told by the losses of its first steps.

Two plain runs differ too: by kernels that add up in another order each time, and by their seeds. A fix may
differ as much as it says it may: one that promises the same numbers no more than two plain runs from the same
seed, one that rounds no more than rounding explains, or than two plain runs from different seeds. Training
that overshoots makes any rounding grow from step to step, so the first few steps are held to account by
themselves: there a wrong forward pass, gradient or update shows, and rounding has not grown yet. They decide
alone where plain runs go so far apart later that those steps tell nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from statistics import fmean
from typing import Literal

import msgspec
from msgspec.structs import replace

Likeness = Literal["same", "differs", "not-checked"]

WORSE: tuple[Likeness, ...] = ("same", "not-checked", "differs")
BLOCKS = "▁▂▃▄▅▆▇█"
COMPARED = 20  # losses: later ones drift apart by themselves. Chosen by hand.
FIRST = 5  # losses that are compared by themselves too. Chosen by hand.
FEWEST = 3  # losses: fewer prove nothing
# Of the loss, in the mean of the compared steps. Chosen by hand: what one rounding does, and what 16 bits do.
EXACT, ROUNDED = 1e-5, 0.02
# How much more than two plain runs a fix may differ, and a job that learns nothing must. Chosen by hand.
TIMES_NOISE = 2.0
# Of the loss: where plain runs differ by more, what lies further apart is not known to be the same. By hand.
MOST_ALLOWED = 0.2
PLAIN_DIFFER = "plain processes differ by too much to tell"


class Losses(msgspec.Struct, frozen=True):
    """How far the losses of a fix lie from the plain ones, as a share of them."""

    likeness: Likeness
    apart: float | None = None
    allowed: float | None = None
    steps: int = 0  # that decided it: the curves may be longer
    of: Literal["losses", "outputs"] = "losses"  # what was compared
    why: str = ""  # they were not checked
    needs_repeat: bool = False  # only a second plain run could tell
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
    decided = _Curves(base, other_seed, made, exact).decided(steps)
    found = Losses(
        decided.likeness,
        decided.apart,
        decided.allowed,
        decided.steps,
        why=PLAIN_DIFFER if decided.likeness == "not-checked" else "",
        plain=tuple(base[0][:steps]),
        fixed=tuple(made[0][:steps]),
    )
    if exact and len(base) == 1 and found.likeness == "differs":  # a repeat might differ as much
        return replace(found, likeness="not-checked", needs_repeat=True)
    return found


class _Compared(msgspec.Struct, frozen=True):
    apart: float
    allowed: float
    likeness: Likeness
    steps: int


class _Curves(msgspec.Struct, frozen=True):
    """The losses of all processes, and what the fix promises."""

    plain: Sequence[Sequence[float]]
    other_seed: Sequence[Sequence[float]]
    fixed: Sequence[Sequence[float]]
    exact: bool

    def decided(self, steps: int) -> _Compared:
        """All steps and the first few: the worse counts. Where all of them are not told apart from noise, the
        first few decide of a fix that rounds, if no other seed is needed to explain them, and if the plain
        job learns so much in them that one which does not would show."""
        first = min(FIRST, steps)
        both = [self._over(many) for many in {first, steps}]
        worst = max(both, key=lambda one: (WORSE.index(one.likeness), one.apart / one.allowed))
        if worst.likeness != "not-checked" or worst.steps == first or self.exact:
            return worst
        early = replace(self, other_seed=())._over(first)
        still = [apart(one[:first], [one[0]] * first) for one in self.plain]
        tells = min(still) > TIMES_NOISE * early.allowed
        return early if early.likeness == "same" and tells else worst

    def _over(self, steps: int) -> _Compared:
        """How far apart the first steps are, and how far they may be."""
        base, made = ([one[:steps] for one in many] for many in (self.plain, self.fixed))
        found = max(apart(one, two) for one in base for two in made)
        noise = max((apart(one, two) for one, two in combinations(base, 2)), default=0.0)
        explained = max(EXACT if self.exact else ROUNDED, TIMES_NOISE * noise)
        if not self.exact and not found <= explained:
            seeds = [one[:steps] for one in self.other_seed if len(one) >= steps]
            between = max((apart(one, two) for one in base for two in seeds), default=0.0)
            explained = max(explained, TIMES_NOISE * between)
        if not found <= explained:  # also where it is not a number
            return _Compared(found, explained, "differs", steps)
        allowed = min(explained, MOST_ALLOWED)
        return _Compared(found, allowed, "same" if found <= allowed else "not-checked", steps)


def apart(one: Sequence[float], two: Sequence[float]) -> float:
    """The mean distance of two curves, as a share of the first's size."""
    size = fmean(map(abs, one)) or 1.0
    return fmean(abs(a - b) for a, b in zip(one, two, strict=True)) / size


def plotted(one: Sequence[float], two: Sequence[float]) -> tuple[str, str]:
    """Both curves as a line of blocks each, on one scale."""
    shown = [list(curve[:COMPARED]) for curve in (one, two)]
    low, high = min(map(min, shown)), max(map(max, shown))
    step = (high - low) / (len(BLOCKS) - 1) or 1.0
    first, second = ("".join(BLOCKS[int((value - low) / step)] for value in curve) for curve in shown)
    return first, second
