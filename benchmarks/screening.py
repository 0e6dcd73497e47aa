"""Does a screening, in one process, say of a fix what fresh processes prove?

    python benchmarks/screening.py [--device cpu|cuda] [--jobs a,b] [--fixes a,b] [--rounds 3] [--out FILE]
    python benchmarks/screening.py --show

On each job of `screening_jobs.py` every fix that can be switched live is screened, as `findwall try` does it,
and then proven beside the plain job in fresh processes, in turn. A pair is a job and a fix that took effect
both times. Counted are how far the two ratios lie apart, pairs of a proven gain or loss over 5 % with the
other sign, and true nulls: fixes of which the proof leaves out a gain of 5 %, so a screening must show none.
Rows are written after every job; those of other jobs and fixes in the file stay.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from pathlib import Path
from statistics import fmean, median
from typing import Any

from findwall.cli.jobs.screening import Screenings
from findwall.cli.jobs.trying import Job, _arm
from findwall.fixes import all_fixes
from findwall.model.catalogue import WORTH_IT
from findwall.trial.arms_in_turn import Plan, run_trial, step_in_report
from findwall.trial.judge import bare, did_nothing
from findwall.trial.stacks_tried import PLAIN
from findwall.trial.statistics import LEAST_DIFFERENCE, prove
from screening_jobs import PLANTED, names
from stamped import stamp

HERE = Path(__file__).resolve().parent
RESULT = HERE / "results" / "screening.json"
TIMED_STEPS = "120"
COUNTS = 0.05  # a gain or loss of more must have the right sign


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def able() -> list[str]:
    return [name for name, fix in all_fixes().items() if fix.live is not None]


def measured(name: str, device: str, rounds: int, fixes: list[str]) -> list[dict[str, Any]]:
    job = Job(
        target=str(HERE / "screening_jobs.py"), arguments=(name, "--device", device), steps=int(TIMED_STEPS)
    )
    found = Screenings(lambda arm, stack, made: _arm(job, arm, stack, made), say).of(fixes, (), math.inf)
    live = [one for one in found if one.took_effect and one.faster is not None]
    stacks = {PLAIN: (), **{one.fix: (one.fix,) for one in live}}
    made = [_arm(job, arm, stack) for arm, stack in stacks.items()]
    trial = run_trial(made, Plan(rounds=rounds, process_s=300, read=step_in_report))
    rows = []
    for one in live:
        arm = trial.arms[one.fix]
        proof = prove(trial.arms[PLAIN].runs_ms, arm.runs_ms)
        if proof is None or one.faster is None or did_nothing((one.fix,), arm):
            continue
        rows.append(
            {
                "fix": bare(one.fix),
                "says": one.says,
                "screened": [one.faster.low, one.faster.ratio, one.faster.high],
                "could_see": one.could_see,
                "proven": [proof.low, proof.ratio, proof.high],
                "screened_s": one.seconds,
                "proven_s": sum(sample.seconds for sample in arm.samples),
                "plain_ms": trial.arms[PLAIN].runs_ms,
            }
        )
    return rows


def noise(row: dict[str, Any]) -> float:
    """Half the widths of both intervals, as a share: nothing nearer can be told apart."""
    return sum(math.log(one[2] / one[0]) / 2 for one in (row["screened"], row["proven"]))


def is_narrow(row: dict[str, Any]) -> bool:
    """Whether a proof that leaves 1 open leaves out a gain that is worth it: then there is none."""
    return bool(row["proven"][2] < 1 + WORTH_IT)


def show(kept: dict[str, Any]) -> None:
    pairs = [(job, row) for job, rows in kept["jobs"].items() for row in rows]
    print(f"{'job':16} {'fix':18} {'screened':>22} {'proven':>22}  says")
    for job, row in pairs:
        told = [f"{one[1]:6.2f} ({one[0]:.2f}–{one[2]:.2f})" for one in (row["screened"], row["proven"])]
        print(f"{job:16} {row['fix']:18} {told[0]:>22} {told[1]:>22}  {row['says']}")
    if not pairs:
        return
    apart = [abs(row["screened"][1] / row["proven"][1] - 1) for _, row in pairs]
    sure = [(job, row) for job, row in pairs if not row["proven"][0] <= 1 <= row["proven"][2]]
    nulls = [row for pair in pairs if pair not in sure and is_narrow(row := pair[1])]
    wrong = [
        f"{row['fix']} on {job}"
        for job, row in sure
        if abs(row["proven"][1] - 1) > COUNTS and (row["screened"][1] > 1) != (row["proven"][1] > 1)
    ]
    false = [row for row in nulls if row["says"] == "gain"]
    unproven = len(pairs) - len(sure) - len(nulls)
    within = sum(one <= max(noise(row), LEAST_DIFFERENCE) for one, (_, row) in zip(apart, pairs, strict=True))
    if planted := [(row, PLANTED[job].get(row["fix"], 1.0)) for job, row in pairs if job in PLANTED]:
        off = [abs(row["screened"][1] / true - 1) for row, true in planted]
        right = sum((row["says"] == "gain") == (true > 1) for row, true in planted)
        print(f"planted: {len(planted)}, {100 * fmean(off):.1f} % from the truth, {right} told right")
    spread = median(max(row["plain_ms"]) / min(row["plain_ms"]) - 1 for _, row in pairs)
    print(f"{len(pairs)} pairs, {len({row['fix'] for _, row in pairs})} fixes, {len(kept['jobs'])} jobs")
    print(f"apart: mean {100 * fmean(apart):.1f} %, median {100 * median(apart):.1f} %")
    print(f"within what both intervals leave open: {within}")
    print(f"plain processes of a job differ by {100 * spread:.0f} % on the median")
    print(f"proven faster or slower: {len(sure)}, over 5 % with the wrong sign: {len(wrong)} {wrong or ''}")
    print(f"true nulls: {len(nulls)}, of which screened as a gain: {len(false)}")
    print(f"neither proven nor a null, because processes varied too much: {unproven}")
    screened, proven = (sum(row[key] for _, row in pairs) for key in ("screened_s", "proven_s"))
    print(f"seconds: {screened:.0f} screened, {proven:.0f} proven")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", default=",".join(names()))
    parser.add_argument("--fixes", default="")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--limit", type=float, default=math.inf)
    parser.add_argument("--out", type=Path, default=RESULT)
    parser.add_argument("--show", action="store_true")
    args = parser.parse_args()
    kept: dict[str, Any] = json.loads(args.out.read_text()) if args.out.exists() else {"jobs": {}}
    begun = time.monotonic()
    for name in [] if args.show else args.jobs.split(","):
        if time.monotonic() - begun > args.limit:
            say(f"{name}: no time left")
            continue
        kept |= stamp(args.device)
        rows = measured(name, args.device, args.rounds, args.fixes.split(",") if args.fixes else able())
        new = {row["fix"] for row in rows}
        before = [row for row in kept["jobs"].get(name, []) if row["fix"] not in new]
        kept["jobs"][name] = before + rows
        args.out.write_text(json.dumps(kept, indent=1) + "\n")
    show(kept)


if __name__ == "__main__":
    main()
