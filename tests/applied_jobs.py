"""Runs a toy job with fixes made in its process."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import warm
from findwall.model.applied import APPLIED_FILE
from findwall.model.arms import REPORT

# Of the compiler's graphs no code is made, which takes longest. It stands on the empty line that a job begins
# with, so that all others keep their numbers.
GRAPHS_ALONE = (
    "import torch._inductor.compile_fx as made, torch._dynamo.backends.debugging as there; "
    "made.compile_fx = lambda graph, inputs, **_: there.aot_eager(graph, inputs)"
)


def run(folder: Path, fixes: str, job: str, *more: str) -> tuple[dict[str, Any], str]:
    """What the fixes did, and what the job printed. No fix: the job as it is."""
    script = folder / "job.py"
    script.write_text(job)
    words = ["-m", "findwall", "run", "--no-trace", "--out", str(folder / "out")]
    apply = ["--apply", fixes] if fixes else []
    words += [*apply, *more, str(script)]
    done = subprocess.run(
        warm.command(*words),
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, REPORT: str(folder / "report.json")},  # without a verdict, which takes longest
    )
    assert done.returncode == 0, done.stderr
    told = folder / "out" / "rank0" / APPLIED_FILE
    return json.loads(told.read_text())["fixes"] if fixes else {}, done.stdout
