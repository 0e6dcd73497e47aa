"""Whether a trial tells two arms apart that are alike, and finds 3 % where they are not.

    python benchmarks/alike.py [--runs 20] [--less 3] [--repeat 3] [--limit S] [--out FILE]

Each run is what `findwall try` does with two fixes, by the same search and the same proof: processes in
turn, plain, plain from another seed, and with each fix, until the difference is settled. The job is a step of
100 equal products; one fix leaves out none of them (so nothing may be called faster), the other `--less` of a
hundred (so the gain is known). Each sample is a process of its own with its own context on the device; they
are forked from one that has torch imported already, and no more, which is all that makes this quick.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Mapping
from datetime import date
from pathlib import Path

import msgspec
import torch

from findwall.model.applied import Applied, AppliedFix
from findwall.model.arms import REPORT, ArmReport
from findwall.trial.arms_in_turn import Arm, Plan, Trial, run_trial, step_in_report
from findwall.trial.search import Settled, search
from findwall.trial.stacks_tried import Candidate, Found, Stack, View

HERE = Path(__file__).resolve().parent
PIECES = 100
ALIKE, PLANTED = "as-many-pieces", "fewer-pieces"
WARM_S, TIMED_S = 0.2, 0.4  # chosen by hand: clocks are up, and a step of 20 ms is timed 20 times
SAME = 1.0  # the loss of every step


class Child:
    """A forked process, as a trial needs it."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._code: int | None = None

    def poll(self) -> int | None:
        if self._code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._code = os.waitstatus_to_exitcode(status)
        return self._code


def start(arm: Arm, env: Mapping[str, str], stdout: int, stderr: int) -> Child:
    pid = os.fork()
    if pid:
        return Child(pid)
    code = 1
    try:
        os.setsid()
        os.dup2(stdout, 1)
        os.dup2(stderr, 2)
        report = ArmReport(
            step_ms(int(arm.argv[0])),
            losses=[SAME] * 5,
            applied=Applied({one: AppliedFix(seen="made") for one in arm.argv[1:]}),
        )
        Path(env[REPORT]).write_bytes(msgspec.json.encode(report))
        code = 0
    finally:
        os._exit(code)


def step_ms(pieces: int) -> float:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    width, dtype = (4096, torch.bfloat16) if device == "cuda" else (160, torch.float32)
    torch.set_num_threads(1)
    x = torch.randn(width, width, device=device, dtype=dtype)
    steps = 0
    begun = time.perf_counter()
    warm = True
    while True:
        for _ in range(pieces):
            x @ x
        if device == "cuda":
            torch.cuda.synchronize()
        steps += 1
        now = time.perf_counter()
        if warm and now - begun > WARM_S:
            begun, steps, warm = now, 0, False
        elif not warm and now - begun > TIMED_S:
            return (now - begun) / steps * 1e3


def tried(less: int, repeat: int) -> Found:
    """One run of `try`, with the two fixes to try."""

    def measure(arms: dict[str, Stack], settled: Settled) -> Trial:
        plan = Plan(rounds=2 * repeat, read=step_in_report, start=start, settled=settled, process_s=60.0)
        return run_trial([Arm(name, (pieces(made), *made)) for name, made in arms.items()], plan)

    def pieces(made: Stack) -> str:
        return str(PIECES - (less if PLANTED in made else 0))

    def look(stack: Stack) -> View:
        fixes = [] if stack else [Candidate((one,), True) for one in (ALIKE, PLANTED)]
        return View("compute / at-the-roof", None, fixes)

    return search(
        measure, look, lambda stack, name: tuple(one for one in stack if one == name), rounds=repeat
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--less", type=int, default=3, help="of a hundred")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--limit", type=float, default=1e9, help="seconds")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "alike.json")
    args = parser.parse_args()
    begun = time.monotonic()
    rows: dict[str, list[dict[str, object]]] = {ALIKE: [], PLANTED: []}
    for _ in range(args.runs):
        if time.monotonic() - begun > args.limit:
            break
        found = tried(args.less, args.repeat)
        for made in found.stages[0].attempts[:2]:
            proof = made.faster
            row: dict[str, object] = {
                "verdict": made.verdict,
                "ratio": proof.ratio if proof is not None else None,
                "noise": found.noise,
                "processes": sum(proof.samples) if proof is not None else None,
                "seconds": round(found.seconds, 1),
            }
            rows[made.fixes[0]].append(row)
            print(made.fixes[0], row, flush=True)
    where = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    told: dict[str, object] = {
        "date": str(date.today()),
        "device": where,
        "torch": torch.__version__,
        "less_percent": args.less,
        "repeat": args.repeat,
    }
    args.out.write_text(json.dumps({**told, **rows}, indent=1) + "\n")
    for name, many in rows.items():
        print(
            f"{name}: called faster in {sum(one['verdict'] == 'faster' for one in many)} of {len(many)} runs"
        )


if __name__ == "__main__":
    main()
