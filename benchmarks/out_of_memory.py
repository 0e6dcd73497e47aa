"""What findwall does with jobs that run out of GPU memory, for six reasons.

    python benchmarks/out_of_memory.py [--jobs a,b] [--out FILE]

Each job of `oom_jobs` runs in fresh processes: plain, under `findwall run --memory`, under `findwall run`,
and mended (for `fragments` by the allocator's setting). Plain and findwall's must leave with the same code
and the same stdout; what the job itself says last on stderr must be there; the mended job must run through.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
JOBS = HERE / "oom_jobs"
NAMES = ("forward", "backward", "first_update", "fragments", "leak", "limit")
FINDWALL = [sys.executable, "-m", "findwall", "run"]
MENDED_BY_SETTING = {"fragments": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}}
LIMIT_S = 180


def ran(command: list[str], settings: dict[str, str] | None = None) -> dict[str, Any]:
    """One process in a folder of its own: how it left, what it wrote, and how long it took."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        with subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, **(settings or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process:
            try:
                out, err = process.communicate(timeout=LIMIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                out, err = process.communicate()
        seconds = time.monotonic() - began
    lines = err.decode(errors="replace").splitlines()
    return {
        "command": command[1:],
        "code": process.returncode,
        "seconds": round(seconds, 2),
        "stdout": out.decode(errors="replace"),
        "stderr": lines,
    }


def last_error(lines: list[str]) -> str:
    """The last line of the last traceback, or the last line of all; its figures differ from run to run."""
    said = [line for line in lines if "OutOfMemoryError" in line]
    return (said or lines or [""])[-1]


def kind_of(line: str) -> str:
    """Up to the amount asked for, which is the same in each run; what is free is not."""
    return line.split(". GPU ")[0]


def against(plain: dict[str, Any], watched: dict[str, Any]) -> dict[str, Any]:
    """Whether findwall left the job as it is, what it wrote, and what it took."""
    own = plain["stderr"]
    wanted = kind_of(last_error(own))
    return {
        "same_code": plain["code"] == watched["code"],
        "same_stdout": plain["stdout"] == watched["stdout"],
        "same_error": bool(wanted) and any(kind_of(line) == wanted for line in watched["stderr"]),
        "added_s": round(watched["seconds"] - plain["seconds"], 2),
        "findwall_says": [line for line in watched["stderr"] if line not in own],
    }


def row(name: str) -> dict[str, Any]:
    job = str(JOBS / f"{name}.py")
    plain = ran([sys.executable, job])
    plain["last_error"] = last_error(plain["stderr"])
    memory = ran([*FINDWALL, "--memory", job])
    without = ran([*FINDWALL, job])
    mended = ran([sys.executable, job, "--mended"], MENDED_BY_SETTING.get(name))
    return {
        "plain": plain,
        "memory": memory | against(plain, memory),
        "without": without | against(plain, without),
        "mended": mended,
    }


def shown(name: str, found: dict[str, Any]) -> str:
    steps = found["plain"]["stdout"].count("step ")
    cells = [f"{name:14}{found['plain']['code']:>6}{steps:>7}{found['plain']['seconds']:>8.1f}"]
    for way in ("memory", "without"):
        one = found[way]
        marks = "".join("-x"[one[key]] for key in ("same_code", "same_stdout", "same_error"))
        cells.append(f"{marks:>8}{one['added_s']:>+8.1f}{len(one['findwall_says']):>7}")
    mended = found["mended"]
    cells.append(f"{mended['code']:>8}{mended['seconds']:>8.1f}")
    return "".join(cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--jobs", default=",".join(NAMES))
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    rows: dict[str, dict[str, Any]] = {}
    for name in asked.jobs.split(","):
        rows[name] = row(name)
        print(f"{name}: {rows[name]['plain']['last_error'][:160]}", flush=True)
        if asked.out:
            asked.out.write_text(json.dumps(rows, indent=1) + "\n")
    print("\nx: as the plain job's code, stdout, error; lines: that findwall added to stderr")
    ways = "".join(f"{way:>8}{'added s':>8}{'lines':>7}" for way in ("--memory", "run"))
    print(f"{'job':14}{'code':>6}{'lines':>7}{'s':>8}{ways}{'mended':>8}{'s':>8}")
    for name, found in rows.items():
        print(shown(name, found))


if __name__ == "__main__":
    main()
