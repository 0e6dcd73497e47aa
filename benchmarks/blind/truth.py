"""Measure the truth of a folder of jobs: `python truth.py FOLDER --out FILE [--deadline S] [--only a,b] [--repeat N]`.

Each job runs plain, then with each of its fixes, in fresh processes, with its own TRUTH_STEPS. FILE is written after
every job, so an interrupted run keeps what it has. With --repeat the rounds are interleaved and the median is kept.
"""

import argparse
import ast
import json
import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path


def constants(path):
    found = {}
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            if name in ("WALLS", "FIXES", "TRUTH_STEPS"):
                found[name] = ast.literal_eval(node.value)
    return found


def one(path, steps, fix, size, limit):
    command = [sys.executable, path.name, "--size", size]
    if steps:
        command += ["--steps", str(steps)]
    if fix:
        command += ["--fix", fix]
    began = time.monotonic()
    try:
        done = subprocess.run(command, cwd=path.parent, capture_output=True, text=True, timeout=limit, env=os.environ)
    except subprocess.TimeoutExpired:
        return None, time.monotonic() - began, f"ran past {limit:.0f} s", []
    seconds = time.monotonic() - began
    match = re.search(r"^mean step ms ([0-9.]+)", done.stdout, re.M)
    if done.returncode or not match:
        return None, seconds, (done.stderr or done.stdout)[-1500:], []
    achieved = [line for line in done.stdout.splitlines() if line.startswith("achieved")]
    return float(match.group(1)), seconds, None, achieved


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--deadline", type=float, default=None, help="seconds from now after which nothing new starts")
    parser.add_argument("--only", default="")
    parser.add_argument("--size", default="gpu")
    parser.add_argument("--repeat", type=int, default=1)
    args = parser.parse_args()
    began = time.monotonic()

    def left():
        return 1e9 if args.deadline is None else args.deadline - (time.monotonic() - began)

    truth = {}
    wanted = [name for name in args.only.split(",") if name]
    for path in sorted(args.folder.resolve().glob("*.py")):
        known = constants(path)
        if "FIXES" not in known or (wanted and path.stem not in wanted):
            continue
        steps = known.get("TRUTH_STEPS") if args.size == "gpu" else None
        times, errors, achieved, seconds = {}, {}, [], {}
        for _ in range(args.repeat):
            for fix in [None, *known["FIXES"]]:
                if left() < 5:
                    errors.setdefault(fix or "plain", "deadline")
                    continue
                ms, took, error, lines = one(path, steps, fix, args.size, min(180.0, left()))
                seconds[fix or "plain"] = round(took, 1)
                if error:
                    errors[fix or "plain"] = error
                else:
                    times.setdefault(fix, []).append(ms)
                    achieved = lines or achieved
                print(f"{path.stem:24s} {fix or 'plain':18s} {ms if ms is None else round(ms, 3)} ms  {took:.1f} s"
                      + ("  FAILED" if error else ""), file=sys.stderr, flush=True)
        base = statistics.median(times[None]) if times.get(None) else None
        entry = {"walls": known.get("WALLS", []), "step_ms": base, "fixes": {}, "seconds": seconds}
        for fix in known["FIXES"]:
            ms = statistics.median(times[fix]) if times.get(fix) else None
            entry["fixes"][fix] = {"step_ms": ms, "speedup": round(base / ms, 3) if base and ms else None}
        if achieved:
            entry["achieved"] = achieved
        if errors:
            entry["errors"] = errors
        truth[path.stem] = entry
        args.out.write_text(json.dumps(truth, indent=1))
    args.out.write_text(json.dumps(truth, indent=1))


if __name__ == "__main__":
    main()
