"""When warm-up is over: by a test of level and slope, never by a fixed count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import median

from findwall.units import NS_PER_S

# Steps that must be alike. All of these are chosen by hand, not calibrated.
WINDOW = 8
WINDOW_LONG_STEPS = 5  # where a step takes seconds, eight of them are too much to ask
LONG_STEP_NS = 2 * NS_PER_S
SETTLES_NS = NS_PER_S // 2  # clocks, caches and worker queues need time, not only steps
TOLERANCE = 0.03  # of a step: half the window may differ from the other half by so much
NORMAL_MAD = 1.4826  # standard deviations of a normal distribution in its median absolute deviation
DRIFT_TOLERANCES = 2  # that a trend may add up to over the window
ALLOCATOR_GROWTH = 1.001  # times what was reserved before: more is growth
GIVE_UP_NS = 60 * NS_PER_S  # of steps without compilation
GIVE_UP_ANYWAY_NS = 240 * NS_PER_S
GIVE_UP_STEPS = 10
ALWAYS_COMPILING = 5  # so many steps in a row: that is how this job runs
ALWAYS_COMPILING_NS = 20 * NS_PER_S


def slope(values: Sequence[float]) -> float:
    """Theil-Sen: the median of all pairwise slopes, blind to a few outliers."""
    pairs = [(b - a) / (j - i) for i, a in enumerate(values) for j, b in enumerate(values) if j > i]
    return median(pairs)


def level_and_flat(times: Sequence[float], window: int = WINDOW) -> bool:
    """Do the last steps keep one level, without a trend, within their own noise?"""
    if len(times) < window:
        return False
    last = times[-window:]
    half = window // 2
    centre = median(last)
    noise = NORMAL_MAD * median(abs(value - centre) for value in last)
    tolerance = max(TOLERANCE * centre, 2 * noise / sqrt(half))
    if abs(median(last[half:]) - median(last[:half])) > tolerance:
        return False
    return abs(slope(last)) * (window - 1) <= DRIFT_TOLERANCES * tolerance


@dataclass(slots=True)
class WarmupTest:
    """Fed once a step; says when the job has settled, or that it will not."""

    started_ns: int
    seen: int = 0
    quiet: int = 0  # steps since something was compiled or the allocator grew
    restless_ns: int = 0  # when that was
    reason: str = "the job had just started"
    reserved: int = 0
    compiling: int = 0  # steps in a row

    def step(self, now: int, times: Sequence[float], compiles: int, reserved: int) -> bool | None:
        """True: settled. False: it did not and will not be waited for. None: go on."""
        self.seen += 1
        self.quiet += 1
        self.compiling = self.compiling + 1 if compiles else 0
        if compiles:
            self._disturb(now, "compiling")
        elif reserved > self.reserved * ALLOCATOR_GROWTH:
            self._disturb(now, "the allocator was growing")
        self.reserved = max(self.reserved, reserved)
        if self._gave_up(now):
            return False
        window = WINDOW_LONG_STEPS if times and times[-1] > LONG_STEP_NS else WINDOW
        if self.quiet < window or now - self.started_ns < SETTLES_NS:
            return None
        if level_and_flat(times, window):
            return True
        self.reason = "step times had no level yet"
        return None

    def _disturb(self, now: int, reason: str) -> None:
        self.quiet = 0
        self.restless_ns = now
        self.reason = reason

    def _gave_up(self, now: int) -> bool:
        if self.compiling >= ALWAYS_COMPILING and now - self.started_ns > ALWAYS_COMPILING_NS:
            return True
        if self.seen < GIVE_UP_STEPS:
            return False
        since = max(self.started_ns, self.restless_ns)
        return now - since > GIVE_UP_NS or now - self.started_ns > GIVE_UP_ANYWAY_NS
