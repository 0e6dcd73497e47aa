"""Whether what was seen over steps could be chance."""

from __future__ import annotations

import numpy as np

from findwall.model.intervals import F64

ANGLES = 20_001  # points that the distribution is summed over: four digits of a chance of one in a million


TRIMMED = 0.2  # of the values at either end: as many are left out where there are five or more


def chance_of(values: F64) -> float:
    """How likely values with such a mean and spread are where the true mean is nought or less; 1 for one
    value alone, which has no spread. By Student's t, one-sided, of the trimmed mean (Yuen): one odd step in
    many makes nobody late, and nobody less surely so."""
    known = np.sort(values[~np.isnan(values)])
    cut = int(TRIMMED * len(known))
    kept = known[cut : len(known) - cut]
    if len(kept) < 2 or kept.mean() <= 0:
        return 1.0
    drawn_in = np.clip(known, kept[0], kept[-1])
    error = float(drawn_in.std(ddof=1)) * np.sqrt((len(known) - 1) / (len(kept) * (len(kept) - 1)))
    if error <= 0:
        return 0.0
    # With t = sqrt(df) tan(a) the density is cos(a) to the power df - 1.
    freedom = len(kept) - 1
    begin = np.arctan(float(kept.mean()) / error / np.sqrt(freedom))
    whole = _area(0.0, freedom)
    return float(0.5 * _area(float(begin), freedom) / whole)


def _area(begin: float, freedom: int) -> float:
    angles = np.linspace(begin, np.pi / 2, ANGLES)
    density = np.cos(angles) ** (freedom - 1)
    return float(((density[1:] + density[:-1]) / 2 * np.diff(angles)).sum())
