"""How fast a trace is read and analysed, and what memory that takes, beside PyPI's two readers.

    python benchmarks/ingest.py [--repeat N] [--rivals-on-5m] [--only findwall]

Makes a trace of 1,000,000 events and one of 5,000,000 out of real ones (make_trace.py), then runs
`findwall read FILE --json -` and each rival (load and main analysis) on the same file, every one in
a process and a venv of its own. Bars: ten times the faster rival; peak memory (process tree, shared
pages once) at most the raw file plus 150 MB; time no worse than linear from 1 M to 5 M.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
import venv
from dataclasses import asdict, dataclass
from pathlib import Path

from make_trace import ROOT, Template, real_traces, write_trace
from process_tree import Measured, measure

WORK = ROOT / ".benchmark"
RESULTS = ROOT / "benchmarks" / "results" / "ingest.json"
SIZES = {"1m": 1_000_000, "5m": 5_000_000}
READING = "findwall, reading"
EXTRA_BYTES = 150 * 10**6
RIVAL_TIMEOUT_S = 3600.0

# --no-deps for the rivals themselves: their notebooks and servers are not needed to read a trace.
RIVALS = {
    "traceinsight": (
        "run_traceinsight.py",
        ["traceinsight==0.6.1"],
        ["numpy", "pandas<3", "networkx", "plotly", "pydot", "psutil", "pyyaml"],
    ),
    "torch-tb-profiler": (
        "run_torch_tb_profiler.py",
        ["torch-tb-profiler==0.4.3"],
        ["pandas<3", "tensorboard", "setuptools<81"],
    ),
}


@dataclass(frozen=True)
class Row:
    """One reader on one file; the median of its runs."""

    reader: str
    size: str
    events: int
    file_bytes: int
    seconds: float
    cpu_seconds: float
    runs: list[float]
    peak_bytes: int
    note: str

    @property
    def events_per_second(self) -> float:
        return self.events / self.seconds

    @property
    def peak_over_file(self) -> float:
        return self.peak_bytes / self.file_bytes


def main() -> int:
    options = _options()
    rows: list[Row] = []
    for size in ("1m",) if options.skip_5m else tuple(SIZES):
        path, events = _made(size)
        plan = [
            (READING, _reading_alone(path), options.repeat),
            ("findwall", _findwall(path), options.repeat),
        ]
        if options.only == "all" and (size == "1m" or options.rivals_on_5m):
            plan += [(name, _rival(name, path), 1) for name in RIVALS]
        if not rows:
            print(_HEADINGS)
        for reader, command, repeat in plan:
            rows.append(_run(reader, command, size, path, events, repeat))
            print(_line(rows[-1]), flush=True)
            _save(rows, [])
    failures = _judge(rows)
    _save(rows, failures)
    return 1 if failures else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repeat", type=int, default=3, help="runs of findwall; the median counts")
    parser.add_argument(
        "--rivals-on-5m", action="store_true", help="run the rivals on 5 M events too (minutes)"
    )
    parser.add_argument("--skip-5m", action="store_true", help="leave the 5 M events out")
    parser.add_argument("--only", choices=["all", "findwall"], default="all")
    return parser.parse_args()


def _made(size: str) -> tuple[Path, int]:
    """The trace of this size, made once, and how many events it holds."""
    path, count_file = WORK / f"trace_{size}.json", WORK / f"trace_{size}.count"
    if not (path.exists() and count_file.exists()):
        WORK.mkdir(exist_ok=True)
        print(f"making {path.name} ...", flush=True)
        templates = [Template(source) for source in real_traces()]
        count_file.write_text(str(write_trace(path, SIZES[size], templates)))
    return path, int(count_file.read_text())


def _findwall(path: Path) -> list[str]:
    return [sys.executable, "-m", "findwall", "read", str(path), "--json", "-"]


def _reading_alone(path: Path) -> list[str]:
    """Without the analysis: to see which of the two takes the time."""
    code = (
        "import sys, pathlib; from findwall.readers import read_trace; read_trace(pathlib.Path(sys.argv[1]))"
    )
    return [sys.executable, "-c", code, str(path)]


def _rival(name: str, path: Path) -> list[str]:
    return [str(rival_python(name)), str(ROOT / "benchmarks" / "rivals" / RIVALS[name][0]), str(path)]


def rival_python(name: str) -> Path:
    """Of the rival's own venv, made once."""
    _, packages, needs = RIVALS[name]
    home = WORK / name
    python = home / "bin" / "python"
    if not (home / "ready").exists():
        print(f"installing {packages[0]} ...", flush=True)
        venv.create(home, with_pip=True, clear=True)
        for arguments in (["--no-deps", *packages], needs):
            subprocess.run([str(python), "-m", "pip", "install", "-q", *arguments], check=True)
        (home / "ready").touch()
    return python


def _run(reader: str, command: list[str], size: str, path: Path, events: int, repeat: int) -> Row:
    measured: list[Measured] = [measure(command, RIVAL_TIMEOUT_S) for _ in range(repeat)]
    last = measured[-1]
    note = "" if last.exit_code == 0 else f"exit code {last.exit_code}"
    if reader in RIVALS and not note:
        note = last.output.strip().splitlines()[-1]
    seconds = [one.seconds for one in measured]
    return Row(
        reader=reader,
        size=size,
        events=events,
        file_bytes=path.stat().st_size,
        seconds=statistics.median(seconds),
        cpu_seconds=statistics.median(one.cpu_seconds for one in measured),
        runs=seconds,
        peak_bytes=max(one.peak_bytes for one in measured),
        note=note,
    )


_HEADINGS = "{:<20}{:>9}{:>9}{:>8}{:>8}{:>10}{:>9}{:>7}".format(
    "reader", "events", "file MB", "s", "CPU s", "events/s", "peak MB", "/ file"
)


def _line(row: Row) -> str:
    figures = f"{row.events:>9}{row.file_bytes / 1e6:>9.0f}{row.seconds:>8.2f}{row.cpu_seconds:>8.2f}"
    figures += f"{row.events_per_second:>10,.0f}{row.peak_bytes / 1e6:>9.0f}{row.peak_over_file:>7.2f}"
    return f"{row.reader:<20}{figures}  {row.note}"


def _judge(rows: list[Row]) -> list[str]:
    """The bars that were missed."""
    failures = [f"{row.reader} on {row.size}: {row.note}" for row in rows if row.note.startswith("exit code")]
    ours = {row.size: row for row in rows if row.reader == "findwall"}
    for size, row in ours.items():
        rivals = [other for other in rows if other.size == size and other.reader in RIVALS]
        if rivals:
            ratio = min(other.seconds for other in rivals) / row.seconds
            print(f"{size}: {ratio:.1f} times faster than the faster rival (bar: 10)")
            if ratio < 10:
                failures.append(f"{size}: only {ratio:.1f} times faster")
        allowed = row.file_bytes + EXTRA_BYTES
        print(f"{size}: peak {row.peak_bytes / 1e6:.0f} MB of {allowed / 1e6:.0f} MB allowed")
        if row.peak_bytes > allowed:
            failures.append(f"{size}: peak memory {row.peak_bytes / 1e6:.0f} MB")
    if len(ours) == 2:
        growth = ours["1m"].events_per_second / ours["5m"].events_per_second
        print(f"time per event grows by {growth:.2f} from 1 M to 5 M (bar: 1, with 10 % for noise)")
        if growth > 1.1:
            failures.append(f"time per event grows by {growth:.2f}")
    return failures


def _save(rows: list[Row], failures: list[str]) -> None:
    document = {
        "date": time.strftime("%Y-%m-%d"),
        "python": platform.python_version(),
        "cores": len(os.sched_getaffinity(0)),
        "rows": [asdict(row) for row in rows],
        "missed": failures,
    }
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
