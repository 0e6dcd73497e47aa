"""Whether the peak that findwall predicts for a change is the peak that the changed job has.

    python benchmarks/memory_ladder.py record --out DIR [--jobs a,b] [--device cuda] [--at-once 4]
    python benchmarks/memory_ladder.py score --runs DIR [--jobs a,b] [--write] [--table FILE]
    python benchmarks/memory_ladder.py all --out DIR [--within 240] [--table FILE] [--device cuda]

`all` does both, as far as it comes within so many seconds. `record` trains each job of `memory_jobs` as it
is, and with each change in a fresh process; on a CPU
torch.profiler notes what the allocator did, on a GPU a snapshot, of jobs four times as wide. ZeRO's stages
are those of torch's own libraries over a process group that sends nothing. `score` predicts every peak from
the first recording alone. Two jobs, drawn by lot before any rule was written, are left out unless `--aside`
asks for them: they are looked at once, at the end.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import sys
import time
import traceback
from math import inf
from pathlib import Path
from typing import Any

from findwall.fixes import memory_edits
from findwall.fixes.communication.sharding_memory import over_ranks
from findwall.memory.batch_growth import with_batch
from findwall.memory.device_memory import device_memory
from findwall.memory.memory_ladder import Rung, predicted, rung
from findwall.memory.traced_history import traced_history
from findwall.model.memory_history import SnapshotRun
from findwall.readers.paths import open_run
from stamped import stamp

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "memory_ladder.json"
SEED, ASIDE = 34, 2
NAMES = ("classifier", "graphs", "pair", "perceptron", "ranker", "recurrent", "transformer", "unet")


def aside() -> set[str]:
    return set(random.Random(SEED).sample(NAMES, ASIDE))


def record(
    out: Path, names: list[str], changes: list[str], device: str, at_once: int, within: float = inf
) -> None:
    """Each in a process of its own: forked where nothing has run yet, else torch is imported every time."""
    from memory_jobs.dense_nets import JOBS as DENSE
    from memory_jobs.image_nets import JOBS as IMAGES
    from memory_jobs.sequence_nets import JOBS as SEQUENCES
    from memory_jobs.training import CHANGES
    from memory_jobs.training import record as record_one

    jobs = {**DENSE, **IMAGES, **SEQUENCES}
    out.mkdir(parents=True, exist_ok=True)
    running, until = 0, time.monotonic() + within
    # Every job as it is comes first: without it no change of it can be told.
    for change, name in itertools.product(changes or CHANGES, names):
        if time.monotonic() > until:
            break
        if running == at_once:
            os.wait()
            running -= 1
        running += 1
        if os.fork():
            continue
        try:
            file = out / f"{name}.{change}.{'pickle' if device == 'cuda' else 'json'}"
            peak = record_one(jobs[name], change, device, file, stacks=change == "base")
            (out / f"{name}.{change}.peak").write_text(str(peak))
            if change != "base":
                file.unlink(missing_ok=True)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(0)
    for _ in range(running):
        os.wait()


# The change of a job that each prediction is of.
PREDICTED = {
    "batch-x2": "batch-x2",
    "batch-x4": "batch-x4",
    "accumulate-2": "accumulate-gradients",
    "sgd": "sgd",
    "momentum": "sgd-momentum",
    "foreach": "foreach-optimizer",
    "fused": "fused-optimizer",
    "keep-gradients": "keep-gradients",
    "checkpoint": "checkpoint-blocks",
    "bf16-autocast": "bf16-autocast",
    "pure-bf16": "pure-bf16",
    **{f"zero-{stage}-of-{ranks}": f"zero-{stage}-of-{ranks}" for stage in (1, 2, 3) for ranks in (2, 8)},
}


def predictions(path: Path) -> tuple[int, dict[str, Rung]]:
    """The recorded peak, and what each change would make of it."""
    run = open_run([path])
    history = run.memory if isinstance(run, SnapshotRun) else traced_history(run.first.timeline)
    facts = device_memory(history)[0]
    found = {one.fix: one for one in predicted(facts, memory_edits())}
    for factor in (2, 4):
        found[f"batch-x{factor}"] = rung("", *(one.peak for one in with_batch(facts, factor)))
    for ranks in (2, 8):
        found |= {f"{one.fix}-of-{ranks}": one for one in over_ranks(facts, ranks)}
    return facts.peak_bytes, found


def score(runs: Path, names: list[str]) -> list[dict[str, Any]]:
    rows = []
    for name in names:
        base = next(runs.glob(f"{name}.base.[jp][si]*"), None)
        if base is None or not (runs / f"{name}.base.peak").exists():
            print(f"{name}: not recorded")
            continue
        recorded, found = predictions(base)
        assert recorded == int((runs / f"{name}.base.peak").read_text()), name
        for change, fix in PREDICTED.items():
            file = runs / f"{name}.{change}.peak"
            if not file.exists():
                continue
            true, one = int(file.read_text()), found.get(fix)
            row = {"job": name, "change": change, "base": recorded, "true": true}
            if one is not None:
                row |= {"low": one.low, "mid": one.mid, "high": one.high, "error": one.mid / true - 1}
            rows.append(row)
    return rows


def show(rows: list[dict[str, Any]]) -> None:
    """Errors in percent, in brackets the true peak as a share of the recorded one."""
    changes = list(dict.fromkeys(row["change"] for row in rows))
    print(f"{'':14}" + "".join(f"{one[:12]:>15}" for one in changes))
    for name in dict.fromkeys(row["job"] for row in rows):
        mine = {row["change"]: row for row in rows if row["job"] == name}
        cells = [_cell(mine.get(one, {})) for one in changes]
        print(f"{name:14}" + "".join(f"{one:>15}" for one in cells))
    for title, found in summary(rows).items():
        print(title, found)


def _cell(row: dict[str, Any]) -> str:
    return f"{100 * row['error']:+.1f} ({row['true'] / row['base']:.2f})" if "error" in row else "-"


def summary(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """By what the bars are of; `outside`: true peaks that no interval holds."""
    found = {}
    for title in ("others", "bf16-autocast", "zero"):
        mine = [row for row in rows if _title(row["change"]) == title]
        told = [row for row in mine if "error" in row]
        errors = [abs(row["error"]) for row in told]
        wrong = [row for row in told if row["mid"] < 0.99 * row["base"] and row["true"] >= row["base"]]
        found[title] = {
            "predicted": len(told),
            "not_predicted": len(mine) - len(told),
            "mean": round(sum(errors) / len(errors), 4) if errors else None,
            "worst": round(max(errors), 4) if errors else None,
            "called_a_saving_and_none": len(wrong),
        }
    return found


def _title(change: str) -> str:
    return "zero" if change.startswith("zero") else change if change == "bf16-autocast" else "others"


def write(rows: list[dict[str, Any]], device: str, of_aside: bool) -> None:
    """The table, beside that of the other jobs."""
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for row in rows:
        row |= {key: round(one, 4) for key, one in row.items() if isinstance(one, float)}
    mine = kept.setdefault(device, {})
    mine["kept_aside" if of_aside else "open"] = {"summary": summary(rows), "rows": rows}
    RESULTS.write_text(json.dumps(kept, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=("record", "score", "all"))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--runs", type=Path)
    parser.add_argument("--jobs")
    parser.add_argument("--changes", default="")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--at-once", type=int, default=1, help="processes that record beside each other")
    parser.add_argument(
        "--aside", action="store_true", help="the two jobs that were kept aside, and no others"
    )
    parser.add_argument("--write", action="store_true", help=f"keep the table in {RESULTS.name}")
    parser.add_argument("--within", type=float, default=inf, help="seconds, after which nothing is begun")
    parser.add_argument("--table", type=Path, help="write all rows there")
    given = parser.parse_args()
    names = given.jobs.split(",") if given.jobs else [one for one in NAMES if (one in aside()) == given.aside]
    if given.what in ("record", "all"):
        changes = [one for one in given.changes.split(",") if one]
        record(given.out, names, changes, given.device, given.at_once, given.within)
    if given.what == "record":
        return
    rows = score(given.runs or given.out, names)
    show(rows)
    if given.table:
        found = {**stamp(given.device), "summary": summary(rows), "rows": rows}
        given.table.write_text(json.dumps(found, indent=1) + "\n")
    if given.write:
        write(rows, given.device, given.aside)


if __name__ == "__main__":
    main()
