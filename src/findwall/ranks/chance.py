"""Whether what was seen over steps could be chance."""

from __future__ import annotations

import numpy as np

from findwall.model.intervals import F64

ANGLES = 20_001  # points that the distribution is summed over: four digits of a chance of one in a million


def chance_of(values: F64) -> float:
    """How likely values with such a mean and spread are where the true mean is nought or less; 1 for one
    value alone, which has no spread. By Student's t, one-sided."""
    known = values[~np.isnan(values)]
    if len(known) < 2 or known.mean() <= 0:
        return 1.0
    spread = float(known.std(ddof=1))
    if spread <= 0:
        return 0.0
    t = float(known.mean()) / spread * np.sqrt(len(known))
    # With t = sqrt(df) tan(a) the density is cos(a) to the power df - 1.
    freedom = len(known) - 1
    begin = np.arctan(t / np.sqrt(freedom))
    whole = _area(0.0, freedom)
    return float(0.5 * _area(float(begin), freedom) / whole)


def _area(begin: float, freedom: int) -> float:
    angles = np.linspace(begin, np.pi / 2, ANGLES)
    density = np.cos(angles) ** (freedom - 1)
    return float(((density[1:] + density[:-1]) / 2 * np.diff(angles)).sum())
