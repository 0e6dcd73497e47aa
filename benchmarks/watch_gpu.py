"""Does `findwall watch` name the walls of GPU jobs that run already?

    python benchmarks/watch_gpu.py [--jobs a,b] [--seconds S] [--spy FOLDER] [--out FILE]

Jobs of `zoo/` run without end, one after the other; once a job trains it is watched for S seconds. Its
verdict is held against the job's own `WALLS`: `named` (the wall, or one of those that count as right),
`between` (no verdict, and the right one is among what it lies between), `none`, or `WRONG`. FOLDER holds
py-spy, where it is not installed.

Writes benchmarks/results/watch_gpu.json. Ends with 1 if any verdict is wrong or fewer than three are named.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RESULT = HERE / "results" / "watch_gpu.json"
JOBS = (
    "slow_loader",
    "json_logging",
    "conv_fp32",
    "accelerate_fp32",
    "tiny_transformer",
    "nan_checks",
    "odd_widths",
)
ENDLESS = "100000000"
WARM_S = 25.0  # loading torch, the first steps, the loader's first batches
LEAST_NAMED = 3


def walls_of(name: str) -> list[list[str]]:
    """The answers that count as right, from the job's own file, without running it."""
    tree = ast.parse((HERE / "zoo" / f"{name}.py").read_text())
    for node in tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "WALLS":
            return [list(pair) for pair in ast.literal_eval(node.value)]
    raise SystemExit(f"{name} has no WALLS")


def watch(name: str, seconds: float, environ: dict[str, str], size: str) -> dict[str, Any]:
    command = [sys.executable, str(HERE / "zoo" / f"{name}.py"), "--size", size, "--steps", ENDLESS]
    with tempfile.TemporaryDirectory() as folder:
        target, log = Path(folder) / "watch.json", Path(folder) / "log"
        with log.open("wb") as out:
            job = subprocess.Popen(command, stdout=out, stderr=out, cwd=HERE / "zoo")
        try:
            time.sleep(WARM_S)
            if job.poll() is not None:
                return {"job": name, "outcome": "failed", "why": log.read_text(errors="replace")[-500:]}
            began = time.monotonic()
            words = ["watch", str(job.pid), "--seconds", str(seconds), "--json", str(target)]
            done = subprocess.run(
                [sys.executable, "-m", "findwall", *words],
                env=environ,
                capture_output=True,
                text=True,
                check=False,
            )
            took = time.monotonic() - began
            alive = job.poll() is None
        finally:
            job.kill()
            job.wait()
        if done.returncode != 0:
            return {"job": name, "outcome": "failed", "why": done.stderr[-500:]}
        return {
            "alive": alive,
            "took_s": round(took, 1),
            **told(name, json.loads(target.read_text()), done.stderr),
        }


def told(name: str, document: dict[str, Any], said: str) -> dict[str, Any]:
    wall, right = document["wall"], walls_of(name)
    between = wall["between"] or []
    if wall["wall"] is not None:
        outcome = "named" if [wall["wall"], wall["cause"]] in right else "WRONG"
    else:
        outcome = "between" if any(pair in right for pair in between) else "none"
    row = document["watch"]["ranks"][0]
    return {
        "job": name,
        "outcome": outcome,
        "right": right,
        "verdict": f"{wall['wall']} / {wall['cause']}",
        "between": between,
        "sentence": wall["sentence"],
        "looks": document["watch"]["looks"],
        "missed": document["watch"]["missed"],
        "row": row,
        "lines": document["watch"]["lines"][:4],
        "settle": document["watch"]["settle"].replace(f"{HERE.parent}/", ""),
        "notes": document["notes"],
        "device": document["machine"]["device"],
        "said": said.strip(),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--jobs", default=",".join(JOBS))
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--spy", type=Path, default=None)
    parser.add_argument("--size", default="gpu", choices=("gpu", "cpu"))
    parser.add_argument("--out", type=Path, default=RESULT)
    asked = parser.parse_args()
    environ = dict(os.environ)
    if asked.spy is not None:
        environ["PATH"] = f"{asked.spy.resolve()}{os.pathsep}{environ.get('PATH', '')}"
    rows = []
    for name in asked.jobs.split(","):
        row = watch(name, asked.seconds, environ, asked.size)
        rows.append(row)
        print(
            json.dumps(
                {key: row.get(key) for key in ("job", "outcome", "verdict", "between", "sentence", "why")}
            )
        )
        print(json.dumps(row.get("row")), *row.get("notes", []), sep="\n  ", flush=True)
    named = sum(row["outcome"] == "named" for row in rows)
    wrong = [row["job"] for row in rows if row["outcome"] in ("WRONG", "failed")]
    asked.out.write_text(
        json.dumps({"machine": platform.machine(), "named": named, "jobs": rows}, indent=1) + "\n"
    )
    print(f"{named} of {len(rows)} named, wrong or failed: {', '.join(wrong) or 'none'}")
    return 1 if wrong or named < LEAST_NAMED else 0


if __name__ == "__main__":
    sys.exit(main())
