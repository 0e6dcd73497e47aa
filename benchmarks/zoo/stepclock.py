"""The command line and the clock that every job of the zoo shares.

Nothing here touches the model: a job's `make(size)` builds it and gives back `step`, one call of
which is one step.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch

Step = Callable[[], object]


def device_of(size: str) -> str:
    return "cuda" if size == "gpu" else "cpu"


def synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def block_ms(step: Step, steps: int) -> float:
    """Mean step over a block: one synchronize on each side, none between."""
    synchronize()
    begin = time.perf_counter()
    for _ in range(steps):
        step()
    synchronize()
    return (time.perf_counter() - begin) / steps * 1e3


def arguments(steps: int) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    usual = "gpu" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--size", choices=("gpu", "cpu"), default=usual)
    parser.add_argument("--steps", type=int, default=None)
    chosen = parser.parse_args()
    if chosen.steps is None:
        chosen.steps = steps if chosen.size == "gpu" else 5
    return chosen


def main(make: Callable[[str], Step], steps: int = 200, warmup: int = 5) -> None:
    chosen = arguments(steps)
    torch.manual_seed(0)
    step = make(chosen.size)
    for _ in range(warmup):
        step()
    print(f"mean step ms {block_ms(step, chosen.steps):.3f}")
