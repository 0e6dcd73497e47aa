"""Clocks: the device's own events on a GPU, the host's counter on a CPU. And the time that is left."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any, Protocol

Work = Callable[[], object]


class Clock(Protocol):
    def each(self, work: Work, repeats: int, before: Work | None = None) -> list[float]:
        """Seconds of each of `repeats` runs; `before` runs ahead of each and is not counted."""

    def run(self, work: Work, seconds: float) -> float:
        """Mean seconds of one run while the device is kept loaded for about `seconds`."""


class HostClock:
    """For work that is done when the call returns."""

    def each(self, work: Work, repeats: int, before: Work | None = None) -> list[float]:
        times = []
        for _ in range(repeats):
            if before is not None:
                before()
            start = time.perf_counter()
            work()
            times.append(time.perf_counter() - start)
        return times

    def run(self, work: Work, seconds: float) -> float:
        start = time.perf_counter()
        runs = 0
        while True:
            work()
            runs += 1
            elapsed = time.perf_counter() - start
            if elapsed >= seconds:
                return elapsed / runs


class DeviceClock:
    """CUDA events: queued beside the work, read after it. The host's speed does not enter."""

    def __init__(self, torch: Any, device: Any) -> None:
        self.torch = torch
        self.device = device

    def each(self, work: Work, repeats: int, before: Work | None = None) -> list[float]:
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
    """The seconds a measurement may take, and how long one sustained run may be within them."""

    # The long runs (five math types, copy, read, write) may take about two thirds of the whole.
    SUSTAINED_S = 2.0
    LONG_RUNS = 8

    def __init__(self, total_s: float) -> None:
        self.total_s = total_s
        self.started = time.perf_counter()
        self.sustained_s = min(self.SUSTAINED_S, total_s * 0.6 / self.LONG_RUNS)

    @property
    def spent_s(self) -> float:
        return time.perf_counter() - self.started

    @property
    def left_s(self) -> float:
        return self.total_s - self.spent_s
