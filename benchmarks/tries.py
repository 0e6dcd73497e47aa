"""How near `findwall try` comes to what the same fixes give when they are made by hand in the script.

    python benchmarks/tries.py --out FILE [--jobs a,b] [--budget 300] [--repeat 2] [--limit S] [--hand N]
    python benchmarks/tries.py --out FILE --fixes remove-sync --jobs nan_checks,norm_items --hand 1
    python benchmarks/tries.py --out FILE --fixes pad-shapes --jobs odd_widths --hand 1

Runs `findwall try` on the zoo's jobs, nobody's edit, one after the other on a GPU, and compares the step it
reaches with the best of the hand-made arms in `results/fix_pairs.json` whose fixes `try` can all make. With
`--fixes` only these are tried, by their stand-ins where they need an edit, and only arms of these count. With
`--hand N` the N best of them are timed again on the spot, in two processes each: of what the host decides,
another day says little. `--hand-only` times them for a job that was tried before. Rows are written after
every job; rows of other jobs in the file stay. With `--again` the rows go beside those that are there, and
what was tried in both is compared: no verdict may contradict a repeat. `--show` prints the file alone. A job
that has no arms in that file has those of its own list, which only `--hand N` times.
"""

from __future__ import annotations

import argparse
import ast
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
from findwall.trial.judge import NOT_SETTLED
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
    "gpt2_fp32",
)
HAND_S, HAND_RUNS = 6.0, 2  # seconds that an arm made by hand is timed, and processes of it
TOLD = re.compile(r"mean step ms ([0-9.]+)")
ARMS = re.compile(r"^FIXES = (\[.*?\])", re.MULTILINE | re.DOTALL)
NAMES = {**FIX_OF, "no_hooks": "remove-sync"}


def by_hand(job: str, only: str = "") -> dict[str, float | None]:
    """The hand-made arms of a job that `try` could make as well, with their steps in ms where they were
    measured. `only`: fixes, as `--fixes` names them."""
    made = json.loads(PAIRS.read_text())["jobs"].get(job, {}).get("fixes", {})
    found = None if made else ARMS.search((HERE / "zoo" / f"{job}.py").read_text())
    arms = {name: one["step_ms"] for name, one in made.items()}
    arms |= dict.fromkeys(ast.literal_eval(found[1]) if found else [])
    able = {name for name, fix in all_fixes().items() if fix.trial is not None}
    able &= set(only.split(",")) if only else able
    fixes = {arm: {one.partition("=")[0] for one in NAMES.get(arm, "").split(",")} for arm in arms}
    return {arm: step for arm, step in arms.items() if fixes[arm] <= able}


def now_by_hand(job: str, most: int, only: str) -> dict[str, list[float]]:
    """The best of them timed again."""
    known = by_hand(job, only)
    arms = sorted(known, key=lambda arm: known[arm] or 0.0)[:most]
    found: dict[str, list[float]] = {arm: [] for arm in arms}
    for arm in [*arms, *reversed(arms)] * (HAND_RUNS // 2):
        words = [str(HERE / "zoo" / f"{job}.py"), "--fix", arm, "--seconds", str(HAND_S)]
        done = subprocess.run([sys.executable, *words], capture_output=True, text=True, cwd="/tmp")
        found[arm] += [float(step) for step in TOLD.findall(done.stdout)]
    return found


def reference(job: str, row: dict[str, Any]) -> float | None:
    """The shortest step by hand: as timed beside the trial, where it was."""
    now = [fmean(runs) for runs in row.get("by_hand_ms", {}).values() if runs]
    measured = [step for step in by_hand(job, row.get("fixes", "")).values() if step is not None]
    return min(now or measured, default=None)


def tried(job: str, budget: float, repeat: int, only: str) -> dict[str, Any]:
    document = Path(f"/tmp/try-{job}.json")
    document.unlink(missing_ok=True)
    begun = time.monotonic()
    words = ["--budget", f"{budget:.0f}s", "--repeat", str(repeat), "--json", str(document)]
    words += ["--fixes", only] if only else []
    command = [sys.executable, "-m", "findwall", "try", *words, str(HERE / "zoo" / f"{job}.py")]
    done = subprocess.run([*command, "--steps", "20000"], capture_output=True, text=True, cwd="/tmp")
    row: dict[str, Any] = {"seconds": round(time.monotonic() - begun), "said": done.stdout.splitlines()[:3]}
    row |= {"fixes": only} if only else {}
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


def verdicts(row: dict[str, Any]) -> dict[str, str]:
    """Of the fixes that went through: a process that had no time to end says nothing of a fix. What is not
    settled is called so by `try` itself: it asks for more time."""
    made = [one for one in row.get("trials", ()) if one["verdict"] != "failed"]
    return {one["fix"]: NOT_SETTLED if NOT_SETTLED in one["why"] else one["verdict"] for one in made}


def show_repeats(first: dict[str, Any], again: dict[str, list[dict[str, Any]]]) -> None:
    pairs = [
        (job, fix, verdict, verdicts(row)[fix])
        for job, rows in again.items()
        for row in rows
        for fix, verdict in verdicts(first.get(job, {})).items()
        if fix in verdicts(row)
    ]
    other = [one for one in pairs if one[2] != one[3]]
    wrong = [one for one in other if NOT_SETTLED not in one]
    still_open = f"{len(other) - len(wrong)} not settled once and settled once"
    print(f"tried again: {len(pairs)} on {len(again)} jobs, {len(wrong)} with another verdict, {still_open}")
    for job, fix, before, now in other:
        print(f"  {job}: {fix} was {before}, and {now} when it was tried again")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "try.json")
    parser.add_argument("--jobs", default=",".join(JOBS))
    parser.add_argument("--fixes", default="")
    parser.add_argument("--budget", type=float, default=300.0)
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--limit", type=float, default=1e9)
    parser.add_argument("--hand", type=int, default=0)
    parser.add_argument("--hand-only", action="store_true")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--show", action="store_true")
    args = parser.parse_args()
    kept = json.loads(args.out.read_text()) if args.out.exists() else {"date": str(date.today()), "jobs": {}}
    begun = time.monotonic()
    for job in [] if args.show else args.jobs.split(","):
        left = args.limit - (time.monotonic() - begun)
        if left < 60:
            print(f"{job}: no time left")
            continue
        row = kept["jobs"].get(job, {})
        if not args.hand_only:
            row = tried(job, min(args.budget, left - 20), args.repeat, args.fixes)
        if args.hand:
            row["by_hand_ms"] = now_by_hand(job, args.hand, args.fixes)
        if args.again:
            kept.setdefault("again", {}).setdefault(job, []).append(row)
        else:
            kept["jobs"][job] = row
        args.out.write_text(json.dumps(kept, indent=1) + "\n")
        show({job: row})
    print()
    show(kept["jobs"])
    for job, rows in kept.get("again", {}).items():
        for row in rows:
            show({job: row})
    show_repeats(kept["jobs"], kept.get("again", {}))


if __name__ == "__main__":
    main()
