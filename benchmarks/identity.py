"""Is a job's result the same, bit by bit, with and without `findwall run`?

    python benchmarks/identity.py [--size gpu|cpu] [--only a,b] [--parallel N]

Every job of `identity_jobs.py` runs in fresh processes: plain, through `findwall run` to the job's own end,
and plain again. What they print (sha256 of every step's result, of the final parameters and of each random
generator's state) must be the same to the byte, and findwall must have measured and traced inside the job,
or nothing would be proven. A job that two plain runs already tell apart (atomics) must lie as near to a
plain run as plain runs lie to each other; its generators must be the same all the same.

Jobs run side by side: identity does not depend on time. On a GPU it writes benchmarks/results/identity.json.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
JOBS_FILE = HERE / "identity_jobs.py"
RESULT = HERE / "results" / "identity.json"
# The order in which they are started: the longest first.
JOBS = (
    "compiled",
    "transformer_fp16_scaler",
    "transformer_bf16",
    "convolutions_loader",
    "atomics",
    "sampling",
    "graph_whole",
    "graph_backward",
)
OPTIONS = ("--wait", "5", "--steps", "12")
PLAIN_RUNS = {"atomics": 4}  # the more, the better it is known how far plain runs lie apart
ABOUT = ("torch", "cuda", "gpu")


@dataclass
class Outcome:
    """One process."""

    code: int
    stdout: str
    stderr: str
    seconds: float

    @property
    def told(self) -> dict[str, Any] | None:
        try:
            found = json.loads(self.stdout)
        except ValueError:
            return None
        return found if isinstance(found, dict) else None


@dataclass
class Row:
    """One job's answer."""

    job: str
    same: bool = False
    measured: bool = False
    how: str = ""  # "bit by bit", "within plain runs", or what is wrong
    differs: list[str] = field(default_factory=list)
    apart_plain: float | None = None
    apart_run: float | None = None
    findwall: dict[str, Any] = field(default_factory=dict)
    digests: dict[str, Any] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)

    @property
    def good(self) -> bool:
        return self.same and self.measured


def environment(size: str, folder: Path) -> dict[str, str]:
    """What makes a job repeatable, given to plain and measured runs alike.

    Kernels compiled for one run serve the next: which of several the compiler takes is decided by timing.
    """
    return {
        **os.environ,
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        "PYTHONHASHSEED": "0",
        "OMP_NUM_THREADS": "4" if size == "gpu" else "1",
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "compiled"),
        "TRITON_CACHE_DIR": str(folder / "compiled" / "triton"),
    }


def start(command: list[str], size: str, folder: Path, timeout: float) -> Outcome:
    begin = time.perf_counter()
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            cwd=folder,
            env=environment(size, folder),
        )
    except subprocess.TimeoutExpired:
        return Outcome(-1, "", f"took more than {timeout:.0f} s", timeout)
    return Outcome(done.returncode, done.stdout, done.stderr, time.perf_counter() - begin)


def examine(job: str, size: str, folder: Path, timeout: float) -> tuple[Row, dict[str, Any]]:
    """All runs of one job, one after the other, so that all find the same compiled kernels."""
    folder.mkdir(parents=True)
    target = [str(JOBS_FILE), job, "--size", size]
    out = folder / "run"
    under = [sys.executable, "-m", "findwall", "run", "--out", str(out), *OPTIONS, *target]
    plain = [start([sys.executable, *target], size, folder, timeout)]
    row = Row(job)
    if plain[0].told is not None:
        run = start(under, size, folder, timeout)
        rest = range(PLAIN_RUNS.get(job, 2) - 1)
        plain += [start([sys.executable, *target], size, folder, timeout) for _ in rest]
        row = judge(job, run, plain)
        row.findwall = what_was_measured(out)
        row.measured = bool(row.findwall.get("traced_steps"))
    else:
        row.how = "the plain job failed: " + plain[0].stderr[-1500:]
    return row, {name: (plain[0].told or {}).get(name) for name in ABOUT}


def judge(job: str, run: Outcome, plain: list[Outcome]) -> Row:
    row = Row(job, seconds=[outcome.seconds for outcome in (run, *plain)])
    for outcome in (run, *plain):
        if outcome.code != 0 or outcome.told is None:
            row.how = f"a run failed with {outcome.code}: {outcome.stderr[-1500:]}"
            return row
    row.digests = {name: value for name, value in (run.told or {}).items() if name != "series"}
    if all(outcome.stdout == plain[0].stdout for outcome in plain[1:]):
        row.same = run.stdout == plain[0].stdout
        row.differs = differing(run, plain[0])
        row.how = "bit by bit" if row.same else "DIFFERS"
    else:
        judge_within(row, run, plain)
    return row


def differing(one: Outcome, other: Outcome) -> list[str]:
    a, b = one.told or {}, other.told or {}
    return sorted(name for name in {*a, *b} if a.get(name) != b.get(name))


def judge_within(row: Row, run: Outcome, plain: list[Outcome]) -> None:
    """Plain runs differ among themselves: no further from the nearest than the two furthest plain ones."""
    row.differs = differing(run, plain[0])
    generators = [name for name in row.differs if name.endswith("_rng") or name == "noted"]
    if "series" not in (run.told or {}):
        unsteady = {name for other in plain[1:] for name in differing(plain[0], other)}
        row.how = f"two plain runs differ ({', '.join(sorted(unsteady))}): this job proves nothing"
        return
    row.apart_plain = max(apart(a, b) for a, b in itertools.combinations(plain, 2))
    row.apart_run = min(apart(run, other) for other in plain)
    row.same = row.apart_run <= row.apart_plain and not generators
    row.how = "within plain runs" if row.same else "DIFFERS"


def apart(one: Outcome, other: Outcome) -> float:
    """The largest difference in any step's result or final parameter, relative to the largest of its kind."""
    first, second = ((outcome.told or {}).get("series", []) for outcome in (one, other))
    if [len(values) for values in first] != [len(values) for values in second]:
        return float("inf")
    return max((_apart(a, b) for a, b in zip(first, second, strict=True)), default=float("inf"))


def _apart(first: list[str], second: list[str]) -> float:
    a, b = [float.fromhex(value) for value in first], [float.fromhex(value) for value in second]
    most = max(map(abs, a), default=0.0) or 1.0
    return max((abs(x - y) for x, y in zip(a, b, strict=True)), default=0.0) / most


def what_was_measured(out: Path) -> dict[str, Any]:
    """From the run folder: how far findwall came, and whether its trace lay inside the job."""
    try:
        told = json.loads((out / "rank0" / "measurement.json").read_text())
    except (OSError, ValueError) as error:
        return {"error": str(error)}
    trace = told.get("trace") or {}
    name = trace.get("file") or "none"
    kept = any((out / "rank0" / one).is_file() for one in (name, f"{name}.gz"))  # packed beside the verdict
    return {
        "phase": told.get("phase"),
        "step_source": told.get("step_source"),
        "steps_seen": told.get("steps_seen"),
        "steps_timed": len((told.get("steps") or {}).get("host_ns") or []),
        "traced_steps": trace.get("steps") if kept else 0,
        "traced_from": trace.get("first_step"),
        "device_events": trace.get("kernels"),
        "why_no_trace": trace.get("why_not"),
        "diagnosis": (out / "diagnosis.json").is_file(),
        "notes": told.get("notes"),
    }


def table(rows: list[Row]) -> str:
    head = ("job", "answer", "steps by", "timed", "traced", "from step", "events", "came to", "s")
    lines = [head]
    for row in rows:
        seen = row.findwall
        answer = row.how.split(":")[0][:60] if row.same else f"{row.how[:200]} {','.join(row.differs)}"
        if row.apart_plain is not None:
            answer += f" ({row.apart_run:.1e}, plain {row.apart_plain:.1e})"
        figures = [seen.get(name) for name in ("step_source", "steps_timed", "traced_steps", "traced_from")]
        figures += [seen.get("device_events"), seen.get("phase"), f"{sum(row.seconds):.0f}"]
        lines.append((row.job, answer, *("-" if value is None else str(value) for value in figures)))
    widths = [max(len(line[at]) for line in lines) for at in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def write(file: Path, rows: list[Row], about: dict[str, Any], size: str, seconds: float) -> None:
    content = {
        "date": date.today().isoformat(),
        **about,
        "python": platform.python_version(),
        "size": size,
        "options": list(OPTIONS),
        "seconds": round(seconds, 1),
        "identical": all(row.good for row in rows),
        "jobs": [{**asdict(row), "good": row.good} for row in rows],
    }
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(content, indent=1) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--size", choices=("gpu", "cpu"), default="gpu")
    parser.add_argument("--only", default="", help="these jobs, separated by commas")
    parser.add_argument("--out", type=Path, help="default: the committed result, for all jobs on a GPU")
    parser.add_argument("--parallel", type=int, default=4, help="jobs side by side")
    parser.add_argument("--timeout", type=float, default=240, help="seconds a process may take")
    asked = parser.parse_args()
    wanted = [name for name in asked.only.split(",") if name] or list(JOBS)
    begin = time.perf_counter()
    rows, about = [], {}
    with tempfile.TemporaryDirectory() as base, ThreadPoolExecutor(asked.parallel) as pool:
        for row, found in pool.map(
            lambda job: examine(job, asked.size, Path(base) / job, asked.timeout), wanted
        ):
            rows.append(row)
            about = {**about, **{name: value for name, value in found.items() if value is not None}}
            print(f"{row.job}: {row.how[:300]} ({time.perf_counter() - begin:.0f} s)", flush=True)
            for problem in [] if row.good else [str(row.findwall), *row.differs]:
                print(f"    {problem}", flush=True)
    out = asked.out or (RESULT if asked.size == "gpu" and not asked.only else None)
    if out is not None:
        write(out, rows, about, asked.size, time.perf_counter() - begin)
    print(table(rows))
    print(f"{sum(row.good for row in rows)} of {len(rows)} jobs the same with and without findwall run")
    return 0 if all(row.good for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
