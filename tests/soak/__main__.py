"""Run the soak: `python -m soak --kills 200 --folders 1000 --traces 5000`, from the folder `tests`.

A case is made from the seed, its part and its number alone: `--only traces --first 1234 --traces 1` is the
one case again. Every case has a guard against hanging.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from soak import exports, folders, hostile, kills, odd_jobs, patterns, traces
from soak.chance import Rolled
from soak.hang import HANG_S, hang_guard

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "soak.json"
FAILURE_CHARACTERS = 2000


def kill_a_job(folder: Path, chance: Rolled, _number: int) -> str:
    return kills.kill_at_random(folder, chance)


def run_odd_job(folder: Path, _chance: Rolled, number: int) -> str:
    name = list(odd_jobs.JOBS)[number % len(odd_jobs.JOBS)]
    odd_jobs.same_as_plain(folder, odd_jobs.JOBS[name])
    return "as plain python"


def tamper_with_folder(folder: Path, chance: Rolled, _number: int) -> str:
    return folders.tamper_and_read(folder, chance)


def mutate_trace(folder: Path, chance: Rolled, _number: int) -> str:
    return traces.mutate_and_examine(folder / "trace.json", chance)


def read_hostile_export(folder: Path, _chance: Rolled, number: int) -> str:
    return hostile.read_hostile(list(exports.HOSTILE)[number % len(exports.HOSTILE)], folder)


def mutate_export(folder: Path, chance: Rolled, _number: int) -> str:
    return exports.mutate_and_read(folder, chance)


def keep_a_pattern(_folder: Path, _chance: Rolled, number: int) -> str:
    return patterns.ends(number)


PARTS: dict[str, tuple[Callable[[Path, Rolled, int], str], int]] = {
    "kills": (kill_a_job, 200),
    "jobs": (run_odd_job, len(odd_jobs.JOBS)),
    "folders": (tamper_with_folder, 1000),
    "traces": (mutate_trace, 5000),
    "hostile": (read_hostile_export, len(exports.HOSTILE)),
    "exports": (mutate_export, 1000),
    "patterns": (keep_a_pattern, patterns.COUNT),
}


def try_case(part: str, seed: int, number: int) -> tuple[int, str, str]:
    """Number, how it went, and what failed."""
    case, _ = PARTS[part]
    with TemporaryDirectory(prefix="soak-", ignore_cleanup_errors=True) as place:
        try:
            with hang_guard(4 * HANG_S):
                return number, case(Path(place).resolve(), Rolled(part, seed, number), number), ""
        except Exception:  # noqa: BLE001 - whatever it was, it is what a soak is for
            return number, "failed", traceback.format_exc()[-FAILURE_CHARACTERS:]


def _try_cases(arguments: tuple[str, int, range]) -> list[tuple[int, str, str]]:
    part, seed, numbers = arguments
    return [try_case(part, seed, number) for number in numbers]


def _chunks(part: str, seed: int, first: int, count: int) -> Iterator[tuple[str, int, range]]:
    size = 1 if part in ("kills", "jobs") else 50
    for begin in range(first, first + count, size):
        yield part, seed, range(begin, min(begin + size, first + count))


def soak(part: str, count: int, seed: int, first: int, jobs: int) -> dict[str, Any]:
    """All cases of a part; those that were tried where Ctrl-C ends it."""
    began, outcomes, failures = time.monotonic(), Counter[str](), []
    with ProcessPoolExecutor(jobs) as pool:
        try:
            for done in pool.map(_try_cases, _chunks(part, seed, first, count)):
                for number, outcome, failure in done:
                    outcomes[outcome] += 1
                    if failure:
                        failures.append({"part": part, "case": number, "failure": failure})
                        print(f"{part} {number} failed:\n{failure}", file=sys.stderr, flush=True)
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
    return {
        "cases": sum(outcomes.values()),
        "asked": count,
        "seconds": round(time.monotonic() - began, 1),
        "outcomes": dict(outcomes),
        "failures": failures,
    }


def versions() -> dict[str, str]:
    import numpy
    import torch

    import findwall

    return {
        "findwall": findwall.__version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": numpy.__version__,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="soak", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    for part, (_, count) in PARTS.items():
        default = int(os.environ.get(f"SOAK_{part.upper()}", count))
        parser.add_argument(f"--{part}", type=int, default=default, help=f"cases (default {default})")
    parser.add_argument("--only", choices=list(PARTS), action="append", help="only this part (repeatable)")
    parser.add_argument("--seed", type=int, default=int(os.environ.get("SOAK_SEED", "0")))
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    date = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    parts: dict[str, Any] = {}
    for part in options.only or PARTS:
        found = soak(part, getattr(options, part), options.seed, options.first, options.processes)
        parts[part] = found
        told = ", ".join(f"{count} {outcome}" for outcome, count in sorted(found["outcomes"].items()))
        print(f"{part:8} {found['cases']:6} cases in {found['seconds']:7.1f} s: {told}", flush=True)
        result = {"date": date, "versions": versions(), "seed": options.seed, "parts": parts}
        options.results.write_text(json.dumps(result, indent=1) + "\n")  # also of a soak that is stopped
    return 1 if any(found["failures"] for found in parts.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
