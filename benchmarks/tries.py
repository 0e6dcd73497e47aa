"""How near `findwall try` comes to what the same fixes give when they are made by hand in the script.

    python benchmarks/tries.py --out FILE [--jobs a,b] [--budget 300] [--repeat 2] [--limit S] [--hand N]

Runs `findwall try` on the zoo's jobs, nobody's edit, one after the other on a GPU, and compares the step it
reaches with the best of the hand-made arms in `results/fix_pairs.json` whose fixes can all be applied. With
`--hand N` the N best of them are timed again on the spot, in two processes each: of what the host decides,
another day says little. `--hand-only` times them for a job that was tried before. Rows are written after
every job; rows of other jobs in the file stay. `--show` prints the file alone.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from datetime import date
from pathlib import Path
from statistics import fmean
from typing import Any

from findwall.fixes import all_fixes
from fix_names import FIX_OF

HERE = Path(__file__).resolve().parent
PAIRS = HERE / "results" / "fix_pairs.json"
# Walls that are unlike each other, the quickest first.
JOBS = (
    "plain_adamw",
    "accelerate_fp32",
    "pageable_batches",
    "handwritten_gelu",
    "slow_loader",
    "collect_garbage",
    "empty_cache",
    "conv_fp32",
    "resnet50_default",
    "layout_flips",
    "graph_messages",
    "upcast_tower",
)
HAND_S, HAND_RUNS = 6.0, 2  # seconds that an arm made by hand is timed, and processes of it
TOLD = re.compile(r"mean step ms ([0-9.]+)")


def by_hand(job: str) -> dict[str, float]:
    """The hand-made arms of a job that `try` could make as well, with their steps in ms."""
    made = json.loads(PAIRS.read_text())["jobs"].get(job, {}).get("fixes", {})
    able = {name for name, fix in all_fixes().items() if fix.apply is not None}
    arms = {name: FIX_OF.get(name, "") for name in made}
    return {
        arm: made[arm]["step_ms"]
        for arm, fixes in arms.items()
        if fixes and all(one.partition("=")[0] in able for one in fixes.split(","))
    }


def now_by_hand(job: str, most: int) -> dict[str, list[float]]:
    """The best of them timed again."""
    arms = sorted(by_hand(job), key=by_hand(job).__getitem__)[:most]
    found: dict[str, list[float]] = {arm: [] for arm in arms}
    for arm in [*arms, *reversed(arms)] * (HAND_RUNS // 2):
        words = [str(HERE / "zoo" / f"{job}.py"), "--fix", arm, "--seconds", str(HAND_S)]
        done = subprocess.run([sys.executable, *words], capture_output=True, text=True, cwd="/tmp")
        found[arm] += [float(step) for step in TOLD.findall(done.stdout)]
    return found


def reference(job: str, row: dict[str, Any]) -> float | None:
    """The shortest step by hand: as timed beside the trial, where it was."""
    now = [fmean(runs) for runs in row.get("by_hand_ms", {}).values() if runs]
    return min(now or by_hand(job).values(), default=None)


def tried(job: str, budget: float, repeat: int) -> dict[str, Any]:
    document = Path(f"/tmp/try-{job}.json")
    document.unlink(missing_ok=True)
    begun = time.monotonic()
    words = ["--budget", f"{budget:.0f}s", "--repeat", str(repeat), "--json", str(document)]
    command = [sys.executable, "-m", "findwall", "try", *words, str(HERE / "zoo" / f"{job}.py")]
    done = subprocess.run([*command, "--steps", "20000"], capture_output=True, text=True, cwd="/tmp")
    row: dict[str, Any] = {"seconds": round(time.monotonic() - begun), "said": done.stdout.splitlines()[:3]}
    if not document.exists():
        return {**row, "failed": done.stderr[-500:]}
    found = json.loads(document.read_text())
    kept = [one for one in found["trials"] if one["kept"]]
    best = min(kept, key=lambda one: one["measured"]["mid"], default=None)
    row |= {
        "step_ms": found["step"]["ms"],
        "wall": f"{found['wall']['wall']} / {found['wall']['cause']}",
        "reached_ms": best["measured"]["mid"] if best else found["step"]["ms"],
        "stack": best["fix"] if best else "",
        "trials": found["trials"],
    }
    return row


def show(rows: dict[str, Any]) -> None:
    print(f"{'job':20} {'plain':>8} {'reached':>8} {'by hand':>8}  ratio  stack")
    errors = []
    for job, row in rows.items():
        if "failed" in row:
            print(f"{job:20} failed: {row['failed'][-100:]}")
            continue
        best = reference(job, row)
        ratio = f"{row['reached_ms'] / best:.2f}" if best else "–"
        hand = f"{best:.2f}" if best else "–"
        print(
            f"{job:20} {row['step_ms']:8.2f} {row['reached_ms']:8.2f} {hand:>8}  {ratio:>5}  {row['stack']}"
        )
        errors += [
            abs(one["predicted"]["mid"] / one["measured"]["mid"] - 1.0)
            for one in row["trials"]
            if one["predicted"]["mid"] and one["measured"]["mid"]
        ]
    if errors:
        print(f"predicted ↔ measured: {len(errors)} trials, mean error {100 * fmean(errors):.1f} %")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "try.json")
    parser.add_argument("--jobs", default=",".join(JOBS))
    parser.add_argument("--budget", type=float, default=300.0)
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--limit", type=float, default=1e9)
    parser.add_argument("--hand", type=int, default=0)
    parser.add_argument("--hand-only", action="store_true")
    parser.add_argument("--show", action="store_true")
    args = parser.parse_args()
    kept = json.loads(args.out.read_text()) if args.out.exists() else {"date": str(date.today()), "jobs": {}}
    begun = time.monotonic()
    for job in [] if args.show else args.jobs.split(","):
        left = args.limit - (time.monotonic() - begun)
        if left < 60:
            print(f"{job}: no time left")
            continue
        if not args.hand_only:
            kept["jobs"][job] = tried(job, min(args.budget, left - 20), args.repeat)
        if args.hand:
            kept["jobs"][job]["by_hand_ms"] = now_by_hand(job, args.hand)
        args.out.write_text(json.dumps(kept, indent=1) + "\n")
        show({job: kept["jobs"][job]})
    print()
    show(kept["jobs"])


if __name__ == "__main__":
    main()
