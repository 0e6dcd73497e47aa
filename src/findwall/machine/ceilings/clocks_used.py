"""Clocks: the device's own events on a GPU, the host's counter on a CPU. And the time that is left."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any, Protocol

Work = Callable[[], object]
Now = Callable[[], float]


class Clock(Protocol):
    def each(self, work: Work, repeats: int, before: Work | None = None, warm: int = 0) -> list[float]:
        """Seconds of each of `repeats` runs, after `warm` that are not counted.

        `before` runs ahead of each and is not timed. Work so slow that the runs do not fit is run less often.
        """

    def run(self, work: Work, seconds: float) -> float:
        """Mean seconds of one run while the device is kept loaded for about `seconds`."""


class HostClock:
    """For work that is done when the call returns. No further run is begun after `longest_s`."""

    def __init__(self, longest_s: float = math.inf, now: Now = time.perf_counter) -> None:
        self.longest_s = longest_s
        self.now = now

    def each(self, work: Work, repeats: int, before: Work | None = None, warm: int = 0) -> list[float]:
        begun = self.now()
        times: list[float] = []
        while len(times) < warm + repeats and (not times or self.now() - begun < self.longest_s):
            if before is not None:
                before()
            start = self.now()
            work()
            times.append(self.now() - start)
        return times[warm:] or times[-1:]

    def run(self, work: Work, seconds: float) -> float:
        start = self.now()
        runs = 0
        while True:
            work()
            runs += 1
            elapsed = self.now() - start
            if elapsed >= seconds:
                return elapsed / runs


class DeviceClock:
    """CUDA events: queued beside the work, read after it. The host's speed does not enter."""

    def __init__(self, torch: Any, device: Any) -> None:
        self.torch = torch
        self.device = device

    def each(self, work: Work, repeats: int, before: Work | None = None, warm: int = 0) -> list[float]:
        for _ in range(warm):
            work()
        pairs = []
        for _ in range(repeats):
            if before is not None:
                before()
            start, end = self._event(), self._event()
            start.record()
            work()
            end.record()
            pairs.append((start, end))
        self.torch.cuda.synchronize(self.device)
        return [start.elapsed_time(end) / 1e3 for start, end in pairs]

    def run(self, work: Work, seconds: float) -> float:
        expected = max(min(self.each(work, 2)), 1e-6)
        runs = max(3, math.ceil(seconds / expected))
        start, end = self._event(), self._event()
        start.record()
        for _ in range(runs):
            work()
        end.record()
        self.torch.cuda.synchronize(self.device)
        return float(start.elapsed_time(end)) / 1e3 / runs

    def _event(self) -> Any:
        return self.torch.cuda.Event(enable_timing=True)


class Allowance:
    """The seconds a measurement may take, and how long one run may be within them."""

    # The long runs (five math types, copy, read, write) may take about two thirds of the whole.
    SUSTAINED_S = 2.0
    LONG_RUNS = 8
    # Of the whole, for all runs of one burst on the cores. Chosen by hand: the bursts of three math types,
    # each with its search for a size, and of the memory then take half at worst.
    BURST_SHARE = 0.04

    def __init__(self, total_s: float, now: Now = time.perf_counter) -> None:
        self.total_s = total_s
        self.now = now
        self.started = now()
        self.sustained_s = min(self.SUSTAINED_S, total_s * 0.6 / self.LONG_RUNS)
        self.burst_s = total_s * self.BURST_SHARE

    @property
    def spent_s(self) -> float:
        return self.now() - self.started

    @property
    def left_s(self) -> float:
        return self.total_s - self.spent_s
