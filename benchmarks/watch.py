"""What does `findwall watch` cost the job it looks at, and does it name the wall and the line?

    python benchmarks/watch.py [--jobs a,b] [--rounds N] [--pairs N] [--out FILE]

Each job runs once, without end, and counts its steps. First it is watched N times for 20 s: is the planted
wall named, and its line? Then a watch runs beside it that looks as often as in its first 30 s, without end.
For a second it is stopped (SIGSTOP), for one it goes on, in an order that chance decides for each pair, so
that a machine that drifts, or that others use, counts for both alike. `slower` is how much longer a step took
in the watched half of a pair: the mean over all pairs, with its 95 % interval, and the median. `cpu_slower`
is the same of the job's own CPU time per step, which other people's work hardly touches. `noise` is `slower`
of pairs in which the watch was stopped in both halves. `watch_cores` is what the watch and py-spy took.

Writes benchmarks/results/watch.json.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import random
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from findwall.trial.statistics import student
from watch_jobs import JOBS, PLANTED

HERE = Path(__file__).resolve().parent
RESULT = HERE / "results" / "watch.json"
WATCH_S, HALF_S = 20.0, 1.0
WARM_STEPS = 50
ALLOWED = 0.01  # of a step
QUICK = (
    "import sys; import findwall.watch.watcher as watcher; watcher.FIRST_S = 1e9;"
    "from findwall.cli import main; main(['watch', sys.argv[1]])"
)


class Job:
    """A job that runs without end, and the count of its steps."""

    def __init__(self, name: str, folder: Path) -> None:
        self._counter = folder / "count"
        self._counter.write_bytes(bytes(8))
        command = [sys.executable, str(HERE / "watch_jobs.py"), name, str(self._counter)]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        self.pid = self._process.pid

    def look(self) -> tuple[float, int, float]:
        """The time, the steps so far, and the CPU seconds so far."""
        steps = int(struct.unpack("q", self._counter.read_bytes())[0])
        return time.monotonic(), steps, cpu_seconds(self.pid)

    def end(self) -> bool:
        """Whether it was still alive."""
        alive = self._process.poll() is None
        self._process.kill()
        self._process.wait()
        return alive


def cpu_seconds(pid: int) -> float:
    """Of all threads, to the nanosecond, and of children that have ended, to the tick."""
    tasks = Path(f"/proc/{pid}/task")
    own = sum(int((task / "schedstat").read_text().split()[0]) for task in tasks.iterdir()) / 1e9
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return own + (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")


def half(job: Job, watch: subprocess.Popen[bytes], is_watched: bool) -> tuple[float, float]:
    """Seconds per step, and CPU seconds per step."""
    watch.send_signal(signal.SIGCONT if is_watched else signal.SIGSTOP)
    before = job.look()
    time.sleep(HALF_S)
    after = job.look()
    steps = max(after[1] - before[1], 1)
    return (after[0] - before[0]) / steps, (after[2] - before[2]) / steps


def pairs(job: Job, count: int) -> dict[str, Any]:
    watch = subprocess.Popen(
        [sys.executable, "-c", QUICK, str(job.pid)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    slower, cpu, noise = [], [], []
    plain = []
    try:
        time.sleep(WATCH_S)
        spent, watched_s = cpu_seconds(watch.pid), 0.0
        for number in range(count):
            order = random.choice([(True, False), (False, True)])
            told = {is_watched: half(job, watch, is_watched) for is_watched in order}
            slower.append(math.log(told[True][0] / told[False][0]))
            cpu.append(math.log(told[True][1] / told[False][1]))
            plain.append(told[False][0])
            watched_s += HALF_S
            if number % 3 == 0:
                noise.append(math.log(half(job, watch, False)[0] / half(job, watch, False)[0]))
        cores = (cpu_seconds(watch.pid) - spent) / watched_s
    finally:
        watch.kill()
        watch.wait()
    return {
        "step_ms": round(1e3 * statistics.median(plain), 3),
        "slower": interval(slower),
        "cpu_slower": interval(cpu),
        "noise": interval(noise),
        "watch_cores": round(cores, 4),
    }


def named(job: Job, name: str, rounds: int, folder: Path) -> dict[str, Any]:
    """Whether short watches name the wall."""
    found = []
    for number in range(rounds):
        document = folder / f"{number}.json"
        command = [sys.executable, "-m", "findwall", "watch", str(job.pid), "--seconds", str(WATCH_S)]
        subprocess.run([*command, "--json", str(document)], stdout=subprocess.DEVNULL, check=True)
        found.append(json.loads(document.read_text()))
    return {
        "named": sum(is_named(name, one) for one in found),
        "of": rounds,
        "verdicts": [f"{one['wall']['wall']} / {one['wall']['cause']}" for one in found],
        "lines": [one["watch"]["lines"][0]["line"] for one in found if one["watch"]["lines"]],
        "looks": [one["watch"]["looks"] for one in found],
    }


def measure(name: str, rounds: int, count: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        job = Job(name, Path(folder))
        try:
            while job.look()[1] < WARM_STEPS:
                time.sleep(0.5)
            told = named(job, name, rounds, Path(folder))
            cost = pairs(job, count)
        finally:
            alive = job.end()
    return {"job": name, "alive": alive, **told, **cost}


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
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--pairs", type=int, default=80)
    parser.add_argument("--out", type=Path, default=RESULT)
    asked = parser.parse_args()
    rows = []
    for name in asked.jobs.split(","):
        row = measure(name, asked.rounds, asked.pairs)
        rows.append(row)
        print(json.dumps(row), flush=True)
    load = [round(value, 2) for value in os.getloadavg()]
    about = {"machine": platform.machine(), "cores": os.cpu_count(), "load": load, "pairs": asked.pairs}
    asked.out.write_text(json.dumps({**about, "jobs": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
