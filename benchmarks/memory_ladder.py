"""Whether the peak that findwall predicts for a change is the peak that the changed job has.

    python benchmarks/memory_ladder.py record --out DIR [--jobs a,b] [--device cuda]
    python benchmarks/memory_ladder.py score --runs DIR [--jobs a,b] [--write]

`record` trains each job of `memory_jobs` as it is, and with each change in a fresh process; on a CPU
torch.profiler notes what the allocator did, on a GPU a snapshot. `score` predicts every peak from the first
recording alone. Two jobs, drawn by lot before any rule was written, are left out unless `--aside` asks for
them: they are looked at once, at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import traceback
from pathlib import Path

HERE = Path(__file__).resolve().parent
SEED, ASIDE = 34, 2
NAMES = ("classifier", "graphs", "pair", "perceptron", "ranker", "recurrent", "transformer", "unet")


def aside() -> set[str]:
    return set(random.Random(SEED).sample(NAMES, ASIDE))


def record(out: Path, names: list[str], changes: list[str], device: str) -> None:
    """Each in a process of its own: forked where nothing has run yet, else torch is imported every time."""
    from memory_jobs.dense_nets import JOBS as DENSE
    from memory_jobs.image_nets import JOBS as IMAGES
    from memory_jobs.sequence_nets import JOBS as SEQUENCES
    from memory_jobs.training import CHANGES
    from memory_jobs.training import record as record_one

    jobs = {**DENSE, **IMAGES, **SEQUENCES}
    out.mkdir(parents=True, exist_ok=True)
    for name in names:
        for change in changes or CHANGES:
            file = out / f"{name}.{change}.{'pickle' if device == 'cuda' else 'json'}"
            child = os.fork()
            if child == 0:
                try:
                    peak = record_one(jobs[name], change, device, file, stacks=change == "base")
                    (out / f"{name}.{change}.peak").write_text(str(peak))
                    if change != "base":
                        file.unlink()
                except BaseException:
                    traceback.print_exc()
                finally:
                    sys.stdout.flush()
                    os._exit(0)
            os.waitpid(child, 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=("record", "score"))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--runs", type=Path)
    parser.add_argument("--jobs")
    parser.add_argument("--changes", default="")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--aside", action="store_true", help="the two jobs that were kept aside, and no others")
    given = parser.parse_args()
    names = given.jobs.split(",") if given.jobs else [one for one in NAMES if (one in aside()) == given.aside]
    if given.what == "record":
        record(given.out, names, [one for one in given.changes.split(",") if one], given.device)


if __name__ == "__main__":
    main()
