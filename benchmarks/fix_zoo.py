"""What each fix really gives: the zoo's jobs with `--fix`, plain and fixed in turn, in fresh processes.

    python benchmarks/fix_zoo.py --out FILE [--only a,b] [--seconds S | --steps N] [--deadline S]

A job runs plain, then with each of its `FIXES`, then plain again, and so on for `--rounds`: every fix stands
between two plain runs, so that a drift of the machine shows as their `spread` and not as a gain. Each process
times its own steps over whole periods, with no profiler, for `--seconds` (or `--steps`, where given). Writes
{job: {step_ms, spread, fixes: {name: {step_ms, speedup}}}} after every job.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

ZOO = Path(__file__).resolve().parent / "zoo"
CLOCK = "fixclock"


def fixes_of(path: Path) -> list[str]:
    """The job's `FIXES`, read without running it."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "FIXES":
            return list(ast.literal_eval(node.value))
    return []


def job_names() -> list[str]:
    """The jobs that take `--fix`."""
    return sorted(
        path.stem
        for path in ZOO.glob("*.py")
        if path.stem != CLOCK and re.search(rf"^from {CLOCK} import", path.read_text(), re.MULTILINE)
    )


@dataclass
class Timed:
    """All runs of a job with one fix, or with none."""

    runs_ms: list[float] = field(default_factory=list)
    error: str | None = None

    @property
    def step_ms(self) -> float | None:
        return statistics.median(self.runs_ms) if self.runs_ms else None

    @property
    def spread(self) -> float | None:
        """(max − min) / median of the runs."""
        if len(self.runs_ms) < 2:
            return None
        return (max(self.runs_ms) - min(self.runs_ms)) / statistics.median(self.runs_ms)

    def row(self) -> dict[str, object]:
        found: dict[str, object] = {
            "step_ms": rounded(self.step_ms),
            "spread": rounded(self.spread),
            "runs_ms": self.runs_ms,
        }
        return found if self.error is None else {**found, "error": self.error}


def rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def run_once(name: str, fix: str | None, arguments: argparse.Namespace, into: Timed) -> None:
    """One fresh process; a fix that cannot be made here must not cost us the job's other rows."""
    command = [sys.executable, str(ZOO / f"{name}.py"), "--size", arguments.size]
    if arguments.steps:
        command += ["--steps", str(arguments.steps)]
    else:
        command += ["--seconds", str(arguments.seconds)]
    command += ["--fix", fix] if fix else []
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=arguments.timeout, check=False)
    except subprocess.TimeoutExpired:
        into.error = f"took more than {arguments.timeout:.0f} s"
        return
    told = re.search(r"mean step ms ([\d.]+)", done.stdout)
    if told:
        into.runs_ms.append(float(told.group(1)))
    else:
        into.error = f"exit {done.returncode}: {done.stderr[-400:]}"


def measured(name: str, arguments: argparse.Namespace, until: float) -> dict[str, object]:
    """Plain, fix, plain, fix, … plain: for each round every fix has a plain run on both sides."""
    plain, fixed = Timed(), {fix: Timed() for fix in fixes_of(ZOO / f"{name}.py")}
    run_once(name, None, arguments, plain)
    for _ in range(arguments.rounds):
        for fix, timed in fixed.items():
            if time.perf_counter() > until or plain.error:
                break
            if timed.error:
                continue
            run_once(name, fix, arguments, timed)
            run_once(name, None, arguments, plain)
    rows = {fix: {**timed.row(), "speedup": speedup(plain, timed)} for fix, timed in fixed.items()}
    return {**plain.row(), "fixes": rows}


def speedup(plain: Timed, fixed: Timed) -> float | None:
    if plain.step_ms is None or fixed.step_ms is None:
        return None
    return round(plain.step_ms / fixed.step_ms, 3)


def line(name: str, row: dict[str, object]) -> str:
    if row["step_ms"] is None:
        return f"{name:24s} FAILED {str(row.get('error'))[-300:]!r}"
    fixes: dict[str, dict[str, object]] = row["fixes"]  # type: ignore[assignment]
    told = "  ".join(
        f"{fix} {one['step_ms']} ({one['speedup']}x)"
        if one["step_ms"]
        else f"{fix} FAILED {one.get('error')!r}"
        for fix, one in fixes.items()
    )
    spread = "" if row["spread"] is None else f"±{row['spread']:.1%}"
    return f"{name:24s} {row['step_ms']:10.3f} ms {spread:7s} | {told}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", default="")
    parser.add_argument("--size", choices=("gpu", "cpu"), default="gpu")
    parser.add_argument("--steps", type=int, help="steps timed in each process, instead of --seconds")
    parser.add_argument("--seconds", type=float, default=3.0, help="timed in each process, whole periods")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds one process may take")
    parser.add_argument("--deadline", type=float, default=540.0, help="start nothing after so many seconds")
    arguments = parser.parse_args()
    names = [name for name in arguments.only.split(",") if name] or job_names()
    until = time.perf_counter() + arguments.deadline
    rows: dict[str, dict[str, object]] = {}
    if arguments.out.exists():
        rows = json.loads(arguments.out.read_text())
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    for name in names:
        if time.perf_counter() > until:
            print(f"{name}: not run, past the deadline")
            continue
        rows[name] = measured(name, arguments, until)
        print(line(name, rows[name]), flush=True)
        arguments.out.write_text(json.dumps(rows, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
