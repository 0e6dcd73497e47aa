"""What the samples of two arms prove: a ratio with an interval, and a verdict.

A sample is the mean step of one process, not a step: steps of one process share its clocks, its memory
layout and its neighbours, and thousands of them say nothing about the next process. So there are few samples
a side, three to ten, and resampling three values would give an interval that is far too narrow. Step times
vary by shares, so their logarithms are compared, with Welch's t-interval: it holds its coverage from two
samples a side on, also where one arm is noisier than the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import exp, log, sqrt
from typing import Literal

import msgspec
import numpy as np

from findwall.errors import InputError
from findwall.model.catalogue import MENTION_SHARE, SMALL_PART

Verdict = Literal["faster", "slower", "no-difference"]

LEVEL = 0.95  # of the noise floor; chosen by hand, the usual one
# Of what is called proven. An arm may be looked at after each of several rounds: with this, two arms that are
# alike are told apart in about 1 % of trials (2 % where one is ten times noisier), and 3 % are found in 96 %
# of them where processes vary by 1 % (three to six rounds; `tests/trial/test_search.py` plays it).
PROOF = 0.99
LENT = 1.0  # degree of freedom that one arm's spread lends to another's. Chosen by hand.
LENT_NOISE = 0.05  # of the step; chosen by hand: two samples that agree may do so by chance
LEAST_SAMPLES = 2  # a side: one sample has no spread
LEAST_DIFFERENCE = MENTION_SHARE  # of the step: nobody keeps a change for less
LEAST_NOISE = SMALL_PART * LEAST_DIFFERENCE  # two processes that agree better agree by chance
ANGLES = 4001  # points for the t-distribution: its quantiles are right to 1e-5 of themselves
DF_DIGITS = 2  # degrees of freedom are rounded to this, so that quantiles are computed once


class Comparison(msgspec.Struct, frozen=True):
    """How many times faster the second arm is than the first: 1.25 is a step of 80 ms instead of 100."""

    ratio: float  # of the medians
    low: float
    high: float
    samples: tuple[int, int]


def prove(base: Sequence[float], other: Sequence[float]) -> Comparison | None:
    """The speed-up of `other` over `base` with its interval, as strict as a verdict needs it; None with
    fewer than two samples a side.

    The interval is of the geometric means. Where a straggler pulls them away from the medians it is widened
    to hold the ratio of the medians, which is what is told. Two samples alone would prove next to nothing:
    they are lent a spread, so that an arm whose processes take 27 and 32 ms is faster than one of 60 and 60.
    """
    alone = _compared(base, other, None)
    if alone is None or len(other) > LEAST_SAMPLES:
        return alone
    return min(alone, _compared(base, other, LENT_NOISE) or alone, key=lambda one: one.high / one.low)


def prove_alike(base: Sequence[float], other: Sequence[float]) -> Comparison | None:
    """The same of two sides that are runs of one job, looked at once: one varies by what the other does."""
    return _compared(base, other, 0.0)


def _compared(base: Sequence[float], other: Sequence[float], lends: float | None) -> Comparison | None:
    """`lends`: the least spread that `base` lends to `other`, as if it had been seen there once more."""
    if min(base, default=1.0) <= 0 or min(other, default=1.0) <= 0:
        raise InputError("A step time is 0 or less.", "Check how the arm reports its mean step.")
    if min(len(base), len(other)) < LEAST_SAMPLES:
        return None
    logs = np.log(np.asarray(base, float)), np.log(np.asarray(other, float))
    middle = float(np.median(logs[0]) - np.median(logs[1]))
    centre = float(logs[0].mean() - logs[1].mean())
    plain = max(float(logs[0].var(ddof=1)), LEAST_NOISE**2)
    own, free = max(float(logs[1].var(ddof=1)), LEAST_NOISE**2), len(other) - 1
    lent = 0.0 if lends is None else LENT
    own = (lent * max(plain, (lends or 0.0) ** 2) + free * own) / (lent + free)
    reach = _reach((plain / len(base), len(base) - 1), (own / len(other), lent + free))
    low, high = min(centre - reach, middle), max(centre + reach, middle)
    return Comparison(exp(middle), exp(low), exp(high), (len(base), len(other)))


def noise_floor(base: Sequence[float], again: Sequence[float]) -> float:
    """The least share by which a ratio must differ from 1, from an arm measured against itself (A/A).

    Half the interval of such a comparison, and no less than what the two differ by. Both sides are one arm,
    so one estimate of the noise serves both.
    """
    if min(len(base), len(again)) < LEAST_SAMPLES:
        return LEAST_DIFFERENCE
    freedom = len(base) + len(again) - 2
    logs = [np.log(np.asarray(arm, float)) for arm in (base, again)]
    variance = sum(float(arm.var(ddof=1)) * (len(arm) - 1) for arm in logs) / freedom
    error = sqrt(max(variance, LEAST_NOISE**2) * (1 / len(base) + 1 / len(again)))
    between = abs(float(np.median(logs[0]) - np.median(logs[1])))
    return max(LEAST_DIFFERENCE, exp(max(student(0.5 + LEVEL / 2, freedom) * error, between)) - 1)


def verdict(found: Comparison | None, floor: float = LEAST_DIFFERENCE) -> Verdict:
    """A difference must be proven (the interval leaves out 1) and worth the name (beyond the noise floor)."""
    if found is None:
        return "no-difference"
    beyond = abs(log(found.ratio)) > log(1 + floor)
    if found.low > 1 and beyond:
        return "faster"
    return "slower" if found.high < 1 and beyond else "no-difference"


def _reach(one: tuple[float, float], two: tuple[float, float]) -> float:
    """Half the interval, with Welch and Satterthwaite's degrees of freedom: of each side the squared error of
    its mean, and its own degrees."""
    error = one[0] + two[0]
    freedom = error**2 / (one[0] ** 2 / one[1] + two[0] ** 2 / two[1])
    return student(0.5 + PROOF / 2, round(freedom, DF_DIGITS)) * sqrt(error)


@lru_cache(maxsize=1024)
def student(chance: float, freedom: float) -> float:
    """The quantile of Student's t. With t = sqrt(df) tan(a) its density is cos(a) to the power df - 1."""
    angles = np.linspace(0, np.pi / 2, ANGLES)
    density = np.cos(angles) ** (freedom - 1)
    below = np.concatenate(([0.0], np.cumsum(density[1:] + density[:-1])))
    angle = np.interp(2 * chance - 1, below / below[-1], angles)
    return float(sqrt(freedom) * np.tan(angle))
