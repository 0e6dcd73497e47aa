"""The command line and the clock of jobs whose fix is an option, and whose steps may come in kinds.

Like `stepclock`, with `--fix NAME` (one of the job's `FIXES`), `--seconds S` (stop after so long instead
of after so many steps) and whole periods: where every k-th step does more, the mean is taken over a
multiple of k steps and the clock starts at the beginning of a period.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Sequence

import torch
from stepclock import Step, device_of, synchronize

__all__ = ["Clock", "Step", "arguments", "device_of", "main", "synchronize"]


def arguments(fixes: Sequence[str], steps: int) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    usual = "gpu" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--size", choices=("gpu", "cpu"), default=usual)
    parser.add_argument("--steps", type=int, default=None)
    parser.add_argument("--seconds", type=float, default=None, help="stop after so long instead")
    parser.add_argument("--fix", choices=fixes, default=None)
    chosen = parser.parse_args()
    if chosen.steps is None:
        chosen.steps = steps if chosen.size == "gpu" else 5
    return chosen


class Clock:
    """Told of the end of each step; starts and stops on the edge of a period and prints the mean step."""

    def __init__(self, chosen: argparse.Namespace, warmup: int = 5, period: int = 1) -> None:
        self.period = period
        self.warmup = math.ceil(warmup / period) * period
        self.steps = math.ceil(chosen.steps / period) * period
        self.seconds: float | None = chosen.seconds
        self.number = 0
        self.begin = 0.0

    def done(self) -> bool:
        """True once enough steps were timed. The device is waited for at the two ends and nowhere else."""
        self.number += 1
        if self.number == self.warmup:
            synchronize()
            self.begin = time.perf_counter()
        timed = self.number - self.warmup
        if timed <= 0 or timed % self.period or not self._enough(timed):
            return False
        synchronize()
        print(f"mean step ms {(time.perf_counter() - self.begin) / timed * 1e3:.3f}", flush=True)
        return True

    def _enough(self, timed: int) -> bool:
        if self.seconds is None:
            return timed >= self.steps
        return time.perf_counter() - self.begin >= self.seconds


def main(
    make: Callable[[str, str | None], Step],
    fixes: Sequence[str],
    steps: int = 200,
    warmup: int = 5,
    period: int = 1,
) -> None:
    chosen = arguments(fixes, steps)
    torch.manual_seed(0)
    step = make(chosen.size, chosen.fix)
    clock = Clock(chosen, warmup, period)
    while True:
        step()
        if clock.done():
            return
