"""What a larger batch takes, from what smaller ones took.

Where the allocator was recorded at a size, it says of every moment of the step what stays and what grows with
the batch: the peak at another size is the largest of these lines, with what was there besides as it was
measured. Without that, each phase of a step follows a line of
its own through the sizes that were measured; within a phase, too, one may lie above another from some size
on, so a line goes through as many of the nearest points as lie on one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log

import msgspec
import numpy as np

from findwall.model.arms import BatchLines, Peaks
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


class PredictedPeak(msgspec.Struct, frozen=True):
    """Bytes at the peak with batches of another size, in all processes; of resident memory what is needed,
    which is the least that it will be. None: nobody knows."""

    low: float | None = None
    mid: float | None = None
    high: float | None = None
    reserved: float | None = None  # with what torch's cache or the C library keeps, at the most


def predicted(
    tried: Mapping[int, Peaks], size: int, recorded: Mapping[int, BatchLines] | None = None
) -> PredictedPeak:
    """Low and high differ where it hangs on what libraries work in. `recorded`: lines of the sizes at which
    the allocator was."""
    mid, low, high = (_peak(tried, size, recorded or {}, which) for which in ("lines", "least", "most"))
    if mid is None or low is None or high is None:
        return PredictedPeak(mid, mid, mid, predicted_reserved(tried, size, recorded))
    reserved = predicted_reserved(tried, size, recorded)
    return PredictedPeak(min(low, mid), mid, max(high, mid), reserved)


def predicted_peak(
    tried: Mapping[int, Peaks], size: int, recorded: Mapping[int, BatchLines] | None = None
) -> float | None:
    """The likely one."""
    return _peak(tried, size, recorded or {}, "lines")


def _peak(
    tried: Mapping[int, Peaks], size: int, recorded: Mapping[int, BatchLines], which: str
) -> float | None:
    own = _recorded(tried, size, recorded, which)
    own = _by_phase(tried, size) if own is None else own
    return None if own is None else own + _beside(tried, size)


def predicted_reserved(
    tried: Mapping[int, Peaks], size: int, recorded: Mapping[int, BatchLines] | None = None
) -> float | None:
    """The same with what torch's cache or the C library keeps: as much more as before, at the most. What the
    C library keeps, it keeps of what a step takes beyond what is there between two."""
    peak = predicted_peak(tried, size, recorded)
    if peak is None:
        return None
    more = [(one.reserved / one.whole, 0) for one in tried.values() if one.reserved and one.whole]
    for at, lines in (recorded or {}).items():
        one = tried.get(at, Peaks())
        needed = _on_lines(one, lines, 1.0, "lines") if one.of == "resident" and one.reserved else None
        if needed is not None and one.reserved and one.held is not None and needed > one.held:
            kept = (one.reserved - one.beside - one.held) / (needed - one.held)
            more.append((max(kept, 1.0), one.held + one.beside))
    on_steps = [one for one in more if one[1]]
    return max((there + times * (peak - there) for times, there in on_steps or more), default=None)


def _recorded(
    tried: Mapping[int, Peaks], size: int, recorded: Mapping[int, BatchLines], which: str
) -> float | None:
    """From the nearest recorded size; between two from both, as far as each is near."""
    near = sorted((abs(log(at / size)), at) for at in recorded if at in tried)
    lower = next((one for one in near if one[1] <= size), None)
    upper = next((one for one in near if one[1] >= size), None)
    found = [
        (apart, peak)
        for apart, at in dict.fromkeys([lower, upper] if lower and upper else near[:1])
        if (peak := _on_lines(tried[at], recorded[at], size / at, which)) is not None
    ]
    whole = sum(apart for apart, _ in found)
    if len(found) < 2 or not whole:
        return found[0][1] if found else None
    return sum(peak * (whole - apart) / whole for apart, peak in found)


def _on_lines(peaks: Peaks, of: BatchLines, factor: float, which: str) -> float | None:
    """On a device the rest is what was measured beyond the recorded peak. Resident memory holds freed memory
    too; only between two steps it was given back, so it is counted from there."""
    stepping = max((one for one in (peaks.working, peaks.optimizer) if one is not None), default=None)
    if not of.lines or stepping is None:
        return None
    most = max(stays + factor * grows for stays, grows in getattr(of, which) or of.lines)
    if peaks.of == "resident":
        if peaks.held is None or of.between is None:
            return None
        return max(peaks.set_up or 0.0, peaks.held + most - of.between)
    return max(peaks.set_up or 0.0, stepping + most - max(map(sum, of.lines)))


def _beside(tried: Mapping[int, Peaks], size: int) -> float:
    """What other processes hold: batches that wait are as large as the batch."""
    workers = [(float(at), float(one.workers)) for at, one in tried.items() if one.workers is not None]
    waiting = [(float(at), float(one.waiting)) for at, one in tried.items() if one.waiting is not None]
    most = max((count / at for at, count in waiting), default=0.0)
    return (on_line(workers, size) or 0.0) + most * size


def _by_phase(tried: Mapping[int, Peaks], size: int) -> float | None:
    """The largest of the phases' lines. From one size alone: what it holds between two steps is there
    without a batch; what forward and backward take on top of that grows with it, the rest stays."""
    held = next((one.held for one in tried.values() if one.held is not None), None)
    phases = []
    for phase in ("set_up", "working", "optimizer"):
        points = [(float(at), float(peak)) for at, one in tried.items() if (peak := _of(one, phase))]
        if phase == "working" and len(points) == 1 and held is not None and held < points[0][1]:
            points.append((0.0, float(held)))
        phases.append(on_line(points, size))
    return max((one for one in phases if one is not None), default=None)


def _of(peaks: Peaks, phase: str) -> int | None:
    found: int | None = getattr(peaks, phase)
    return found
