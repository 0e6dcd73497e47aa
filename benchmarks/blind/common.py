"""Arguments and a clock for the jobs of the rounds; each folder has a link to it beside its jobs."""

import argparse
import time

import torch


def arguments(steps, fixes, cpu_steps=6):
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=None)
    parser.add_argument("--fix", choices=fixes, default=None)
    parser.add_argument("--size", choices=["gpu", "cpu"], default="gpu")
    args = parser.parse_args()
    if args.steps is None:
        args.steps = steps if args.size == "gpu" else cpu_steps
    args.device = torch.device("cuda" if args.size == "gpu" else "cpu")
    args.gpu = args.size == "gpu"
    return args


class Clock:
    """Call `tick()` after every step: times the later two thirds, with one synchronize at either end."""

    def __init__(self, steps, period=1):
        self.steps, self.done, self.mean_ms = steps, 0, None
        first = -(-steps // 3)
        self.first = min(-(-first // period) * period, steps - 1)

    def tick(self):
        self.done += 1
        if self.done == self.first:
            self._sync()
            self.began = time.perf_counter()
        elif self.done == self.steps:
            self._sync()
            self.mean_ms = (time.perf_counter() - self.began) * 1e3 / (self.steps - self.first)

    def report(self):
        print(f"mean step ms {self.mean_ms:.4f}", flush=True)

    @staticmethod
    def _sync():
        if torch.cuda.is_available():
            torch.cuda.synchronize()
