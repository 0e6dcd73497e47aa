"""What does `findwall watch` cost the job it looks at, and does it name the wall and the line?

    python benchmarks/watch.py [--jobs a,b] [--rounds N] [--seconds S] [--out FILE]

Each job runs once, without end, and counts its steps. Stretches of S seconds take turns: nobody watches, then
`findwall watch --seconds S` does, from its start to its verdict, and so on. A watched stretch is held against
the two beside it, so that a machine that drifts, or that others use, does not count. `noise` is the same for
stretches that nobody watched, against the next but one: what the machine does by itself.

Writes benchmarks/results/watch.json.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from watch_jobs import JOBS, PLANTED

from findwall.verify.statistics import student

HERE = Path(__file__).resolve().parent
RESULT = HERE / "results" / "watch.json"
WARM_S = 8.0
ALLOWED = 0.01  # of a step


class Job:
    """A job that runs without end, and the count of its steps."""

    def __init__(self, name: str, folder: Path) -> None:
        self._counter = folder / "count"
        self._counter.write_bytes(bytes(8))
        command = [sys.executable, str(HERE / "watch_jobs.py"), name, str(self._counter)]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        self.pid = self._process.pid

    def steps(self) -> int:
        return int(struct.unpack("q", self._counter.read_bytes())[0])

    def end(self) -> bool:
        """Whether it was still alive."""
        alive = self._process.poll() is None
        self._process.kill()
        self._process.wait()
        return alive


def stretch(job: Job, seconds: float, document: Path | None) -> float:
    """Seconds a step; `document`: where a watch of that length writes what it found."""
    before, began = job.steps(), time.monotonic()
    if document is None:
        time.sleep(seconds)
    else:
        command = [sys.executable, "-m", "findwall", "watch", str(job.pid), "--seconds", str(seconds)]
        subprocess.run([*command, "--json", str(document)], stdout=subprocess.DEVNULL, check=True)
    return (time.monotonic() - began) / max(job.steps() - before, 1)


def measure(name: str, rounds: int, seconds: float) -> dict[str, Any]:
    plain: list[float] = []
    watched: list[float] = []
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        job = Job(name, Path(folder))
        try:
            time.sleep(WARM_S)
            plain.append(stretch(job, seconds, None))
            for number in range(rounds):
                document = Path(folder) / f"{number}.json"
                watched.append(stretch(job, seconds, document))
                plain.append(stretch(job, seconds, None))
                found.append(json.loads(document.read_text()))
        finally:
            alive = job.end()
    slower = [math.log(one / math.sqrt(plain[at] * plain[at + 1])) for at, one in enumerate(watched)]
    noise = [math.log(plain[at + 1] / math.sqrt(plain[at] * plain[at + 2])) for at in range(rounds - 1)]
    return {
        "job": name,
        "alive": alive,
        "step_ms": round(1e3 * statistics.median(plain), 3),
        "slower": interval(slower),
        "noise": interval(noise),
        "named": f"{sum(is_named(name, one) for one in found)} of {rounds}",
        "lines": [one["watch"]["lines"][0]["line"] for one in found if one["watch"]["lines"]],
        "verdicts": [f"{one['wall']['wall']} / {one['wall']['cause']}" for one in found],
    }


def interval(logs: list[float]) -> dict[str, float | None]:
    """The mean share by which steps were longer, with the interval that holds it 95 times in 100."""
    if len(logs) < 2:
        return {"mean": None, "low": None, "high": None}
    middle = statistics.fmean(logs)
    reach = student(0.975, len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
    ends = {"mean": middle, "low": middle - reach, "high": middle + reach, "median": statistics.median(logs)}
    return {name: round(math.expm1(value), 5) for name, value in ends.items()}


def is_named(name: str, document: dict[str, Any]) -> bool:
    """The planted wall, and its line first among the job's own."""
    wall, _ = PLANTED[name]
    if document["wall"]["wall"] != wall:
        return False
    return wall is None or f"{name}.py:" in document["wall"]["sentence"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--jobs", default=",".join(JOBS))
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--out", type=Path, default=RESULT)
    asked = parser.parse_args()
    rows = []
    for name in asked.jobs.split(","):
        row = measure(name, asked.rounds, asked.seconds)
        rows.append(row)
        print(json.dumps(row), flush=True)
    load = [round(value, 2) for value in os.getloadavg()]
    about = {"machine": platform.machine(), "cores": os.cpu_count(), "load": load, "rounds": asked.rounds}
    asked.out.write_text(json.dumps({**about, "seconds": asked.seconds, "jobs": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
