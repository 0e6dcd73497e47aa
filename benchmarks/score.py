"""Every bar that an earlier issue set and that runs without a GPU, in one table: `make score`.

    python benchmarks/score.py [--only WORD ...]

Each row: the bar, what is wanted, what was measured, whether it holds, and the command that tells more. What
needs something that is not here (`../shared`, a browser) is skipped with a word. All is also written to
`results/score.json` with date, commit and versions, so that a later change can show what it did to each bar.
Exit code 1: a bar does not hold.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import golden

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared"
JUDGE = SHARED / "tools" / "judge.py"
RESULTS = ROOT / "benchmarks" / "results"
FINDWALL = Path(sys.executable).with_name("findwall")

# What earlier issues asked for.
MOST_ERROR = 0.07  # mean |log(predicted / measured)| of the fixes that were made on the zoo
MOST_WRONG_REPLAY, MEAN_WRONG_REPLAY = 0.03, 0.015  # of the true step
PAGE_BYTES, PAGE_S = 5_000_000, 3.0  # of a trace of a million events, on top of the verdict
TIMES_FASTER = 10  # than the faster of two other readers
BESIDE_FILE_BYTES = 150_000_000  # of memory
BUSY_LOAD = 1.5  # processes that want a core, for each there is


@dataclass
class Row:
    """`holds`: None where it has no bar, could not be measured here, or was missed on a busy machine."""

    bar: str
    wanted: str
    measured: str
    holds: bool | None
    more: str
    seconds: float = 0.0


def verdicts() -> list[Row]:
    """What is said of every recording but the drawn: against the truth, and against what is kept."""
    rows = [row for row in golden._recordings() if not row["drawn"]]
    now, then, changed = Counter[str](), Counter[str](), []
    for row, found in golden._documents(rows):
        kept = golden._kept(row)
        if row.get("accepted"):
            now[_outcome(row, found)] += 1
            then[_outcome(row, kept)] += 1
        if golden._verdict(found) != golden._verdict(kept):
            changed.append(row["name"])
    new = sorted(set(changed) - _kept_changes())
    return [
        Row(
            "verdicts of known truth",
            f"right >= {then['right']}, wrong <= {then['wrong']}, as 68d77be",
            ", ".join(f"{name} {now[name]}" for name in ("right", "wrong", "none")),
            now["right"] >= then["right"] and now["wrong"] <= then["wrong"],
            "golden.py score",
        ),
        Row(
            "verdicts that changed since 68d77be",
            "each with its reason in changes.tsv",
            f"{len(changed)} of {len(rows)}" + (f", without a reason: {', '.join(new)}" if new else ""),
            not new,
            "golden.py diff",
        ),
    ]


def _outcome(row: dict[str, Any], found: dict[str, Any]) -> str:
    cause = (found.get("wall") or {}).get("cause")
    right = cause in [one[1] for one in row["accepted"]]
    return "none" if cause is None else "right" if right else "wrong"


def _kept_changes() -> set[str]:
    lines = (golden.HERE / "changes.tsv").read_text().splitlines()[1:]
    return {line.split("\t")[0] for line in lines if line.split("\t")[1] in ("wall.wall", "wall.cause")}


def fixes() -> list[Row]:
    """Predictions against fixes really made."""
    command = [sys.executable, str(JUDGE), "fixes", str(SHARED / "zoo"), str(FINDWALL)]
    text, more = _said(command), "../shared/tools/judge.py fixes ../shared/zoo .venv/bin/findwall"
    told = text.strip().splitlines()[-1]
    error, harmful = re.search(r"mean error ([\d.]+)", told), re.search(r"harmful (\d+)", told)
    first = re.search(r"first choice good (\d+)/(\d+)", told)
    inside = re.search(r"interval right (\d+)/(\d+)", told)
    assert error and harmful and first and inside, text
    return [
        Row("error of predicted fixes", f"<= {MOST_ERROR}", error[1], float(error[1]) <= MOST_ERROR, more),
        Row("fixes advised though slower", "0", harmful[1], harmful[1] == "0", more),
        Row("first choice is a good one", "all", f"{first[1]} of {first[2]}", first[1] == first[2], more),
        Row("intervals that hold the measured step", "(told)", f"{inside[1]} of {inside[2]}", None, more),
    ]


def documents() -> list[Row]:
    """What no document may say."""
    paths = sorted(path for path in (SHARED / "traces").iterdir() if path.name != "README.md")
    paths += sorted(path for path in (SHARED / "nsys").iterdir() if path.name != "README.md")
    command = [sys.executable, str(JUDGE), "documents", str(FINDWALL), *map(str, paths)]
    told = re.search(r"(\d+) contradictions in (\d+) documents of (\d+) files", _said(command))
    assert told is not None
    holds = told[1] == "0" and told[2] == told[3]
    more = "../shared/tools/judge.py documents .venv/bin/findwall ../shared/traces/*"
    return [Row("contradictions in documents", "0, and each file gives one", told[0], holds, more)]


def laws() -> list[Row]:
    """The laws that are files of their own; `make test` runs them all."""
    listed = re.search(r"^LAWS := (.*)$", (ROOT / "Makefile").read_text().replace("\\\n", " "), re.MULTILINE)
    assert listed is not None
    names = [name for name in listed[1].split() if name.endswith(".py")]
    done = _ran([sys.executable, "-m", "pytest", "-q", "-n", "2", "--tb=line", *names])
    failed = len(re.findall(r"^(?:FAILED|ERROR) ", done.stdout, re.MULTILINE))
    told = "all hold" if done.returncode == 0 else f"{failed} do not, exit code {done.returncode}"
    return [
        Row("laws on drawn examples", "all hold", told, done.returncode == 0, "pytest " + " ".join(names))
    ]


def rooms() -> list[Row]:
    """How full rooms are, names used twice, what a fix imports."""
    done = _ran([sys.executable, "-m", "pytest", "-q", "--tb=line", "tests/test_rooms.py"])
    told = "all hold" if done.returncode == 0 else f"exit code {done.returncode}"
    wanted = "<= 25 files, no name twice, <= 66 imports of a fix"
    return [Row("rooms", wanted, told, done.returncode == 0, "pytest tests/test_rooms.py")]


def replay() -> list[Row]:
    """The replay against the true step, and measured fixes against the replayed best."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "replay.json"
        _said([sys.executable, "benchmarks/replay.py", "--out", str(out)])
        found: dict[str, Any] = json.loads(out.read_text())
    # The bar of tests/replay/test_truth.py, for the same jobs; those kept aside are told.
    jobs = [one for part in found if part != "kept aside" for one in found[part]["jobs"]]
    errors = [abs(one["error"]) for one in jobs]
    aside = [abs(one["error"]) for one in found["kept aside"]["jobs"]]
    mean = sum(errors) / len(errors)
    # A step that varied by more than the bar is held to that; one longer than any recorded is not explained.
    far = [one for one in jobs if abs(one["error"]) > max(MOST_WRONG_REPLAY, one["spread"])]
    missed = [one["job"] for one in far if one["error"] > 0]
    unexplained = [f"{one['job']} {one['error']:+.1%}" for one in far if one["error"] < 0]
    beaten = [one for part in found.values() for one in part["fixes"] if one["proven"]]
    known = sum(one["best_ms"] is not None for part in found.values() for one in part["fixes"])
    wanted = f"mean <= {MEAN_WRONG_REPLAY:.1%}, each <= {MOST_WRONG_REPLAY:.0%} or its own spread"
    told = f"mean {mean:.2%}, {len(missed)} of {len(jobs)} beyond"
    told += f"; longer than recorded, left over: {', '.join(unexplained)}" if unexplained else ""
    holds = mean <= MEAN_WRONG_REPLAY and not missed
    names = ", ".join(f"{one['job']}/{one['measured_as']}" for one in beaten)
    return [
        Row("replayed step, error", wanted, told, holds, "replay.py"),
        Row(
            "the same, jobs kept aside",
            "(told)",
            f"mean {sum(aside) / len(aside):.2%}, worst {max(aside):.2%}",
            None,
            "replay.py",
        ),
        Row(
            "replayed bests beaten", "0", f"{len(beaten)} of {known} {names}".strip(), not beaten, "replay.py"
        ),
    ]


def page() -> list[Row]:
    """The page of a million events, and how pages open and move where there is a browser."""
    found: dict[str, Any] = json.loads(_said([sys.executable, "benchmarks/page.py", "--million"]))
    drawn, wanted = found["million"], f"<= {PAGE_BYTES / 1e6:.0f} MB, {PAGE_S:.0f} s"
    told = f"{drawn['page_bytes'] / 1e6:.2f} MB, {drawn['page_s']:.1f} s"
    small = drawn["page_bytes"] <= PAGE_BYTES
    holds = unless_busy(drawn["page_s"] <= PAGE_S) if small else False
    rows = [Row("page of a million events", wanted, told, holds, "page.py --million")]
    if "usual_moves" not in found:
        return [
            *rows,
            Row("page in a browser", "opens in 0.5 s, 30 frames/s", "no Chromium here", None, "page.py"),
        ]
    opens, frames = (
        found["usual_moves"]["opens_ms"],
        found["long_step_moves"]["most_in_the_picture"]["frames_per_s"],
    )
    told, holds = f"{opens} ms, {frames} frames/s", unless_busy(opens <= 500 and frames >= 30)
    return [*rows, Row("page in a browser", "opens in 0.5 s, 30 frames/s", told, holds, "page.py")]


def reading() -> list[Row]:
    """A million events: the other readers as they were measured when they were last run (`ingest.py`)."""
    import ingest

    path, events = ingest._made("1m")
    ours = ingest._run("findwall", ingest._findwall(path), "1m", path, events, 1)
    kept = json.loads((RESULTS / "ingest.json").read_text())
    rivals = [
        row["cpu_seconds"] for row in kept["rows"] if row["reader"] in ingest.RIVALS and row["size"] == "1m"
    ]
    times = min(rivals) / ours.cpu_seconds
    allowed = (ours.file_bytes + BESIDE_FILE_BYTES) / 1e6
    speed = f"{times:.1f} times ({ours.cpu_seconds:.1f} s of CPU; others as of {kept['date']})"
    more = "ingest.py (runs the other readers too)"
    return [
        Row(
            "reading, against the faster rival",
            f">= {TIMES_FASTER} times",
            speed,
            unless_busy(times >= TIMES_FASTER),
            more,
        ),
        Row(
            "reading, memory",
            f"<= {allowed:.0f} MB",
            f"{ours.peak_bytes / 1e6:.0f} MB",
            ours.peak_bytes / 1e6 <= allowed,
            more,
        ),
    ]


def numbers() -> list[Row]:
    """Numbers that decide."""
    import count_numbers

    found, table = count_numbers.found(), count_numbers.read_table()
    decide, wrong = len(count_numbers.deciding(found, table)), count_numbers.disagreements(found, table)
    told = f"{decide}, table {'agrees' if not wrong else f'disagrees in {len(wrong)}'}"
    holds = decide <= count_numbers.LIMIT and not wrong
    return [Row("numbers that decide", f"<= {count_numbers.LIMIT}", told, holds, "count_numbers.py --check")]


def mutants() -> list[Row]:
    """As they were last run: an hour or more, so not here."""
    rows = json.loads((RESULTS / "mutants.json").read_text())["mutants"]
    told = [
        [(one["outcomes"].get(name) or {}).get("outcome") for one in rows] for name in ("before", "after")
    ]
    there = [pair for pair in zip(*told, strict=True) if None not in pair and pair[1] != "gone"]
    was, now = (sum(pair[at] == "killed" for pair in there) for at in (0, 1))
    text = f"before {was}, after {now} of {len(there)} that are still there"
    if None in told[0] + told[1]:
        text = f"not all tried: {told[0].count(None)} left before, {told[1].count(None)} after"
    holds = now >= was if None not in told[0] + told[1] else None
    return [Row("mutants killed", "no fewer than before", text, holds, "mutants.py show")]


BARS: dict[str, tuple[Callable[[], list[Row]], Path | None]] = {
    "verdicts": (verdicts, None),
    "fixes": (fixes, JUDGE),
    "documents": (documents, JUDGE),
    "laws": (laws, None),
    "rooms": (rooms, None),
    "replay": (replay, None),
    "page": (page, None),
    "reading": (reading, None),
    "numbers": (numbers, None),
    "mutants": (mutants, RESULTS / "mutants.json"),
}


def _said(command: list[str]) -> str:
    """Its output. A code other than 0 may be its verdict."""
    return _ran(command).stdout


def _ran(command: list[str]) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    return subprocess.run(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True, check=False)


def unless_busy(holds: bool) -> bool | None:
    """Of a time: one that is missed while others use the cores tells nothing."""
    return holds or (None if os.getloadavg()[0] > BUSY_LOAD * len(os.sched_getaffinity(0)) else False)


def measured(name: str) -> list[Row]:
    bar, needs = BARS[name]
    if needs is not None and not needs.exists():
        return [Row(name, "", f"skipped: {os.path.relpath(needs, ROOT)} is not here", None, "")]
    begun = time.monotonic()
    try:
        rows = bar()
    except (AssertionError, OSError, ValueError, KeyError, IndexError) as error:
        rows = [Row(name, "", f"could not be measured: {error!r}"[:200], False, f"score.py --only {name}")]
    rows[0].seconds = round(time.monotonic() - begun, 1)
    return rows


def show(rows: list[Row]) -> None:
    words = {True: "holds", False: "DOES NOT HOLD", None: "-"}
    cells = [(row.bar, row.wanted, row.measured, words[row.holds], row.more) for row in rows]
    widths = [max(len(cell[at]) for cell in cells) for at in range(4)]
    for cell in cells:
        print("  ".join([*(text.ljust(width) for text, width in zip(cell, widths, strict=False)), cell[4]]))


def save(rows: list[Row]) -> None:
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    document = {
        "date": time.strftime("%Y-%m-%d"),
        "commit": commit.stdout.strip(),
        "python": platform.python_version(),
        "findwall": version("findwall"),
        "numpy": version("numpy"),
        "cores": len(os.sched_getaffinity(0)),
        "load": round(os.getloadavg()[1], 1),
        "rows": [asdict(row) for row in rows],
    }
    (RESULTS / "score.json").write_text(json.dumps(document, indent=1) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(BARS), help="these alone; nothing is written")
    asked = parser.parse_args()
    rows: list[Row] = []
    for name in asked.only or BARS:
        print(f"{name} ...", file=sys.stderr, flush=True)
        rows += measured(name)
    show(rows)
    if not asked.only:
        save(rows)
    return 1 if any(row.holds is False for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
