"""Looks at running jobs as py-spy 0.4.3 dumped them (Python 3.11, torch 2.13, two cores), paths made neutral.

The jobs are those of the demo, `one_by_one` and `all_cores` of `benchmarks/watch_jobs.py` (here `compute`),
and `two_stages`, the demo's loader job with one loader worker. Each file holds 40 looks at the process that
trains, looks at its worker, and the text of the job's own lines.
"""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

from findwall.model.watched import SeenStack
from findwall.watch.spy import parse
from findwall.watch.watcher import training_stacks

FOLDER = Path(__file__).parent / "fixtures" / "watch"


@cache
def recorded(job: str) -> dict[str, Any]:
    return dict(json.loads(gzip.decompress((FOLDER / f"{job}.json.gz").read_bytes())))


def texts(job: str) -> dict[str, str]:
    return dict(recorded(job)["texts"])


def stacks(job: str, who: str = "dumps") -> tuple[SeenStack, ...]:
    """Of the thread that trains; `who`: "worker_dumps" for the loader worker's."""
    told = recorded(job)
    pid = told["pid"] if who == "dumps" else told["worker"][0]
    looks = [parse(json.dumps(dump).encode()) for dump in told[who]]
    return tuple(training_stacks(pid, [look for look in looks if look is not None])[0])
