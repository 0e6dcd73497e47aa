"""`findwall run` on every job of the zoo: verdict against truth, and the step with and without findwall.

    python benchmarks/run_zoo.py [--only a,b] [--size gpu|cpu] [--deadline S]

Each job runs in fresh processes: plain (it times its own steps) before and after, and between them through
`findwall run --stop`, which knows nothing but the command line. The truth is the `WALLS` line of the job's
file; where a step of the job is several of findwall's (`PARTS`), the plain time is divided. Writes
benchmarks/results/run_zoo.json and prints a table.
"""

from __future__ import annotations

import argparse
import ast
import json
import platform
import re
import subprocess
import sys
import time
from datetime import date
from pathlib import Path

HERE = Path(__file__).resolve().parent
ZOO = HERE / "zoo"
RESULT = HERE / "results" / "run_zoo.json"
NOT_JOBS = {"stepclock", "fixclock", "changes"}


def constants(path: Path) -> dict[str, object]:
    """The job's module-level constants, read without running it."""
    found: dict[str, object] = {}
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            try:
                found[node.targets[0].id] = ast.literal_eval(node.value)
            except ValueError:
                continue
    return found


def launcher(path: Path) -> list[str]:
    """How the job is started: jobs of several ranks say how many (`RANKS`)."""
    ranks = constants(path).get("RANKS")
    if ranks is None:
        return [sys.executable]
    return [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks)]


def plain(path: Path, size: str, steps: int, timeout: float) -> float | None:
    """Mean step in ms as the job itself times it."""
    parts = constants(path).get("PARTS", 1)
    command = [*launcher(path), str(path), "--size", size, "--steps", str(steps)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    told = re.search(r"mean step ms ([\d.]+)", done.stdout)
    return float(told.group(1)) / parts if told else None  # type: ignore[operator]


def measured(path: Path, size: str, folder: Path, timeout: float, steps: int | None) -> dict[str, object]:
    """What `findwall run` says of the same command line."""
    document = folder / f"{path.stem}.json"
    command = [*launcher(path), "-m", "findwall", "run", "--stop", "--json", str(document)]
    command += ["--steps", str(steps)] if steps else []
    command += ["--out", str(folder / path.stem), str(path), "--size", size, "--steps", "100000"]
    begin = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    row: dict[str, object] = {"seconds": time.perf_counter() - begin, "exit": done.returncode}
    if not document.exists():
        return {**row, "error": done.stderr[-1500:]}
    told = json.loads(document.read_text())
    return {
        **row,
        "verdict": [told["wall"]["wall"], told["wall"]["cause"]],
        "between": told["wall"].get("between"),
        "sentence": told["wall"]["sentence"],
        "next": (told["wall"].get("next") or {}).get("cause"),
        "step_ms": told["step"]["ms"],
        "steps": told["step"]["count"],
        "discarded": told["step"]["discarded"],
        "profiled_ms": told["step"]["profiled_ms"],
        "cost": told.get("cost"),
        "notes": told["notes"],
    }


def timed_alone(path: Path, arguments: argparse.Namespace) -> float | None:
    return plain(path, arguments.size, arguments.steps, arguments.timeout)


def examine(name: str, arguments: argparse.Namespace, folder: Path) -> dict[str, object]:
    path = ZOO / f"{name}.py"
    row: dict[str, object] = {"job": name, "truth": constants(path).get("WALLS")}
    try:
        quick = None if name in arguments.long.split(",") else arguments.timed
        before = (arguments.plain + 1) // 2
        plain_ms = [timed_alone(path, arguments) for _ in range(before)]
        row.update(measured(path, arguments.size, folder, arguments.timeout, quick))
        plain_ms += [timed_alone(path, arguments) for _ in range(arguments.plain - before)]
        row["plain_ms"] = plain_ms
    except subprocess.TimeoutExpired:
        row["error"] = f"took more than {arguments.timeout} s"
    row["right"] = row.get("verdict") in (row["truth"] or [])
    return row


def share(value: float | None) -> str:
    return "unknown" if value is None else f"{100 * value:+.2f} %"


def line(row: dict[str, object]) -> str:
    truth = row["truth"][0] if row["truth"] else ["?", "?"]  # type: ignore[index]
    if "error" in row:
        return f"{row['job']:24s} {truth[1]:20s} FAILED {str(row['error'])[-300:]!r}"
    cost = row.get("cost") or {}
    shadow = cost.get("shadow_share") or {}  # type: ignore[union-attr]
    return (
        f"{row['job']:24s} {truth[1]:20s} {'right' if row['right'] else 'WRONG':5s} "
        f"{row['verdict'][1]!s:20s} "  # type: ignore[index]
        f"plain {'/'.join(f'{ms or 0:.2f}' for ms in row['plain_ms']):>15s} "  # type: ignore[attr-defined]
        f"run {row['step_ms'] or float('nan'):8.2f} ms  "
        f"hooks {share(cost.get('hook_share'))}  "  # type: ignore[union-attr]
        f"shadow {share(shadow.get('low'))} to {share(shadow.get('high'))}  "
        f"{row['seconds']:.0f} s"
    )


def versions() -> dict[str, object]:
    import torch

    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {
        "torch": torch.__version__,
        "gpu": gpu,
        "python": platform.python_version(),
        "date": str(date.today()),
    }


def keep(path: Path, row: dict[str, object]) -> None:
    """Each job's latest row, in one file."""
    rows = json.loads(path.read_text())["jobs"] if path.exists() else []
    rows = [one for one in rows if one["job"] != row["job"]] + [row]
    rows.sort(key=lambda one: one["job"])
    path.write_text(json.dumps({"jobs": rows}, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="")
    parser.add_argument("--size", choices=("gpu", "cpu"), default="gpu")
    parser.add_argument("--steps", type=int, default=40, help="steps of the plain run")
    parser.add_argument("--timeout", type=float, default=90)
    parser.add_argument("--deadline", type=float, default=540, help="start no job after this many seconds")
    parser.add_argument("--out", type=Path, default=RESULT)
    parser.add_argument("--timed", type=int, help="steps findwall times, instead of as many as it likes")
    parser.add_argument("--long", default="", help="jobs in which it times as many as it likes all the same")
    parser.add_argument("--plain", type=int, default=2, help="plain runs of each job")
    parser.add_argument("--folder", type=Path, default=Path("findwall-runs/zoo"))
    arguments = parser.parse_args()
    names = [name for name in arguments.only.split(",") if name]
    names = names or sorted(path.stem for path in ZOO.glob("*.py") if path.stem not in NOT_JOBS)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    begin = time.perf_counter()
    rows, made_with = [], versions()
    for name in names:
        if time.perf_counter() - begin > arguments.deadline:
            print(f"{name}: not run, past the deadline")
            continue
        rows.append(examine(name, arguments, arguments.folder))
        print(line(rows[-1]), flush=True)
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        keep(arguments.out, {**rows[-1], "versions": made_with})
    right = sum(bool(row["right"]) for row in rows)
    print(f"{right} of {len(rows)} right")


if __name__ == "__main__":
    main()
