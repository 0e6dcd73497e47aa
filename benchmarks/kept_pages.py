"""What it gives CPU jobs to keep what they free (`keep-freed-memory`): `kept_pages.py JOB... --out FILE`.

Each job runs plain and with the C library told to keep freed memory, in turn, in fresh processes; it prints
its own mean step.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch

from findwall.machine.ceilings.numpy_cores import core_name

KEPT = {"MALLOC_TRIM_THRESHOLD_": "4294967295", "MALLOC_MMAP_MAX_": "0"}
ARMS: dict[str, dict[str, str]] = {"plain": {}, "kept": KEPT}
STEP = re.compile(r"mean step ms ([\d.]+)")


def step_ms(job: Path, steps: int, extra: dict[str, str]) -> float:
    command = [sys.executable, job.name, "--size", "cpu", "--steps", str(steps)]
    environ = {**os.environ, **extra}
    done = subprocess.run(command, cwd=job.parent, env=environ, capture_output=True, text=True, check=True)
    return float(STEP.findall(done.stdout)[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("jobs", type=Path, nargs="+")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    found = {}
    for job in asked.jobs:
        runs: dict[str, list[float]] = {name: [] for name in ARMS}
        for _ in range(asked.rounds):
            for name, extra in ARMS.items():
                runs[name].append(step_ms(job, asked.steps, extra))
        plain, kept = (statistics.median(runs[name]) for name in ARMS)
        found[job.stem] = {"plain_ms": plain, "kept_ms": kept, "runs_ms": runs}
        print(f"{job.stem}: {plain:.1f} -> {kept:.1f} ms, {kept / plain:.2f} of the step", flush=True)
    if asked.out is not None:
        told = {
            "date": time.strftime("%Y-%m-%d"),
            "cpu": core_name(),
            "torch": torch.__version__,
            "jobs": found,
        }
        asked.out.write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
