"""The command line and the clock that every job of the zoo shares.

Nothing here touches the model: a job's `make(size)` builds it and gives back `step`, one call of
which is one step. `make(size, fix)` builds it with one of the job's `FIXES` made (`--fix NAME`).
`--seconds S` times about so long instead of so many steps.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence

import torch

Step = Callable[[], object]
WARM_SHARE = 0.2  # of the seconds to be timed: clocks go up and loaders hand out what they had made ahead


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


def timed_ms(step: Step, chosen: argparse.Namespace, most: int | None = None) -> float:
    """Mean step over the steps asked for; with `--seconds`, over as many as fit, and no more than `most`."""
    if chosen.seconds is None:
        return block_ms(step, chosen.steps)
    begin = time.perf_counter()
    last = block_ms(step, 1)
    while time.perf_counter() - begin < WARM_SHARE * chosen.seconds and most is None:
        last = block_ms(step, 1)
    return block_ms(step, max(2, min(int(chosen.seconds * 1e3 / last), most or 10_000)))


def arguments(steps: int, fixes: Sequence[str] = ()) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    usual = "gpu" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--size", choices=("gpu", "cpu"), default=usual)
    parser.add_argument("--steps", type=int, default=None)
    parser.add_argument("--seconds", type=float, default=None, help="time about so long instead")
    parser.add_argument("--fix", choices=fixes, default=None)
    chosen = parser.parse_args()
    if chosen.steps is None:
        chosen.steps = steps if chosen.size == "gpu" else 5
    return chosen


def main(make: Callable[..., Step], steps: int = 200, warmup: int = 5, most: int | None = None) -> None:
    """`most`: of the steps in `--seconds`, for a job whose steps grow."""
    chosen = arguments(steps, getattr(make, "__globals__", {}).get("FIXES", ()))
    torch.manual_seed(0)
    step = make(chosen.size, chosen.fix) if chosen.fix else make(chosen.size)
    for _ in range(warmup):
        step()
    print(f"mean step ms {timed_ms(step, chosen, most):.3f}", flush=True)
