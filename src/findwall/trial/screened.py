"""What a screening says of a fix: how many times faster, the smallest gain it could have seen, and whether a
proof in fresh processes is worth its time. It judges time alone, never memory or losses."""

from __future__ import annotations

from math import exp, log, sqrt
from statistics import fmean, median, stdev
from typing import Literal

import msgspec

from findwall.model.arms import ScreenedFix
from findwall.model.catalogue import WORTH_IT
from findwall.trial.statistics import LEAST_DIFFERENCE, LEAST_NOISE, LEVEL, Comparison, student

FEWEST_PAIRS = 3  # that give an interval worth reading. Chosen by hand.
TOO_FEW = "the job ended before enough steps with it were timed: only a process of its own can show it"
BY_SWITCH = "not while the job runs: {} sets it at the start, which only a process of its own can show"
Says = Literal["gain", "no-gain", "open"]  # open: fresh processes must show it


class Screened(msgspec.Struct, frozen=True):
    """One fix, beside the job without it in the same process."""

    fix: str
    says: Says
    faster: Comparison | None = None
    could_see: float | None = None  # the smallest gain that these blocks would have shown, as a share
    seen: str = ""  # what shows that it took effect
    trouble: str = ""  # why nothing is known
    seconds: float = 0.0
    base: tuple[str, ...] = ()  # what was made in the job meanwhile

    @property
    def took_effect(self) -> bool:
        return bool(self.seen)

    @property
    def ratio(self) -> float:
        return self.faster.ratio if self.faster is not None else 1.0


def screened(told: ScreenedFix, name: str = "", typed: str = "") -> Screened:
    """A fix that did nothing here may do something from a job's start: that is open. What is no gain here is
    none worth a proof, if a gain worth one would have been seen. `name`: with the number it was made with;
    `typed`: the job's own switch for it."""
    faster, could_see = _compared(told.pairs)
    name = name or told.name
    if told.trouble or faster is None or could_see is None:
        trouble = BY_SWITCH.format(typed) if typed and not told.seen else told.trouble or TOO_FEW
        return Screened(name, "open", faster, could_see, told.seen, trouble, told.seconds)
    is_gain = faster.low > 1 and faster.ratio > 1 + LEAST_DIFFERENCE
    says: Says = "gain" if is_gain else "open" if faster.high > 1 + WORTH_IT else "no-gain"
    return Screened(name, says, faster, could_see, told.seen, "", told.seconds)


def _compared(pairs: list[tuple[float, float]]) -> tuple[Comparison | None, float | None]:
    """Of pairs of blocks that ran side by side, so that a drift of the machine hits both alike."""
    shares = [log(plain / made) for plain, made in pairs if plain > 0 and made > 0]
    many = len(shares)
    if many < FEWEST_PAIRS:
        return None, None
    reach = student(0.5 + LEVEL / 2, many - 1) * max(stdev(shares), LEAST_NOISE) / sqrt(many)
    middle, centre = median(shares), fmean(shares)
    low, high = min(centre - reach, middle), max(centre + reach, middle)
    return Comparison(exp(middle), exp(low), exp(high), (many, many)), max(exp(reach) - 1, LEAST_DIFFERENCE)
