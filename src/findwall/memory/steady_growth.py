"""Memory that a job takes in every step and never gives back, seen in its totals over the run.

A warm-up, a cache that fills and a saw-tooth all grow for a while. So growth is steady where every quarter of
the run grows at about the pace of the whole, nothing much is ever given back, and noise is small beside it.
"""

from __future__ import annotations

import msgspec
import numpy as np
import numpy.typing as npt

from findwall.model.catalogue import FAIR_PART, MENTION_SHARE, SMALL_PART
from findwall.model.machine import MemoryTotals

PARTS = 4
FEWEST_LOOKS = 16  # four in each part
LEAST_GROWN_BYTES = 16 << 20  # over the run: Python and torch make as much for themselves
UNEVEN = 2.0  # a part may grow so many times faster or slower than the whole
F64 = npt.NDArray[np.float64]


class SteadyGrowth(msgspec.Struct, frozen=True):
    bytes_per_step: float
    steps: int  # that it was seen over
    full_at_step: int | None  # where memory ends at this pace; None: nobody knows how much there is
    full_in_s: float | None  # from the last look


def steady_growth(totals: MemoryTotals, since_step: int = 0) -> SteadyGrowth | None:
    """`since_step`: warm-up ends there."""
    step, ns, held = (np.array(one, np.float64) for one in (totals.step, totals.ns, totals.allocated))
    kept = step >= since_step
    step, ns, held = step[kept], ns[kept], held[kept]
    if len(step) < FEWEST_LOOKS or step[-1] <= step[0]:
        return None
    slope = _slope(step, held)
    grown = slope * (step[-1] - step[0])
    if grown < max(LEAST_GROWN_BYTES, MENTION_SHARE * float(np.median(held))):
        return None
    given_back = float((np.maximum.accumulate(held) - held).max())
    rest = held - slope * step
    noise = float(np.median(np.abs(rest - np.median(rest))))
    if given_back > FAIR_PART * grown or noise > SMALL_PART * grown or not _is_even(step, held, slope):
        return None
    steps = int(step[-1] - step[0])
    if totals.limit is None:
        return SteadyGrowth(slope, steps, None, None)
    left = max(totals.limit - held[-1], 0.0) / slope
    pace = (ns[-1] - ns[0]) / 1e9 / (step[-1] - step[0])
    return SteadyGrowth(slope, steps, int(step[-1] + left), float(left * pace))


def _is_even(step: F64, held: F64, slope: float) -> bool:
    parts = zip(np.array_split(step, PARTS), np.array_split(held, PARTS), strict=True)
    slopes = [_slope(*part) for part in parts]
    return all(slope / UNEVEN <= one <= slope * UNEVEN for one in slopes)


def _slope(x: F64, y: F64) -> float:
    """The median over all pairs (Theil and Sen): a few looks that stand out do not move it."""
    first, second = np.triu_indices(len(x), 1)
    apart = x[second] - x[first]
    told = apart > 0
    return float(np.median((y[second] - y[first])[told] / apart[told])) if told.any() else 0.0
