"""What a larger batch takes, from what smaller ones took: each phase of a step follows a line of its own, and
the whole is the largest of them.

Within a phase, too, one line may lie above another from some size on (what forward keeps, above what the
weights take), so a line goes through as many of the nearest points as lie on one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from findwall.model.arms import Peaks
from findwall.model.catalogue import MENTION_SHARE

Point = tuple[float, float]  # batch size, and what it took


def on_line(points: Sequence[Point], at: float) -> float | None:
    """The value at another size. It never falls as batches grow. None without a point."""
    known = sorted(points)
    if not known:
        return None
    below = [one for one in known if one[0] <= at]
    above = [one for one in known if one[0] >= at]
    if below and above:
        sizes, values = np.array(known, float).T
        return float(np.interp(at, sizes, values))
    if below:
        return max(_extended(below[::-1], at), below[-1][1])
    return max(min(_extended(above, at), above[0][1]), 0.0)


def _extended(nearest_first: Sequence[Point], at: float) -> float:
    """By the line through the most points, from the nearest on, that lie on one within a percent."""
    found = nearest_first[0][1]
    for many in range(2, len(nearest_first) + 1):
        sizes, values = np.array(nearest_first[:many], float).T
        slope, start = np.polyfit(sizes, values, 1)
        off = np.abs(start + slope * sizes - values)
        if many > 2 and bool((off > MENTION_SHARE * values).any()):
            break
        found = float(start + slope * at)
    return found


def predicted_peak(tried: Mapping[int, Peaks], size: int) -> float | None:
    """Bytes at the peak with batches of another size: the largest of the phases' lines.

    From one size alone: what it holds between two steps is there without a batch; what forward and backward
    take on top of that grows with it, the rest stays.
    """
    if not tried:
        return None
    held = next((one.held for one in tried.values() if one.held is not None), None)
    phases = []
    for phase in ("set_up", "working", "optimizer"):
        points = [(float(at), float(peak)) for at, one in tried.items() if (peak := _of(one, phase))]
        if phase == "working" and len(points) == 1 and held is not None and held < points[0][1]:
            points.append((0.0, float(held)))
        phases.append(on_line(points, size))
    return max((one for one in phases if one is not None), default=None)


def predicted_reserved(tried: Mapping[int, Peaks], size: int) -> float | None:
    """The same of what torch takes from the driver: as much more than what is allocated as before, at the
    most."""
    peak = predicted_peak(tried, size)
    more = [one.reserved / one.whole for one in tried.values() if one.reserved and one.whole]
    return peak * max(more) if peak is not None and more else None


def _of(peaks: Peaks, phase: str) -> int | None:
    found: int | None = getattr(peaks, phase)
    return found
