"""The replay against jobs whose step was timed before it was traced: what it misses is said, and small."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import recordings
from captures import FIXTURES, SHARED
from findwall.facts.facts import Facts
from findwall.fixes import Use, all_fixes
from findwall.fixes.at_best import step_at_best
from findwall.replay.calibrate import Calibration, play_with
from findwall.units import ms

WITHIN = 0.03  # of the true step
ON_THE_MEAN = 0.015
BEATEN = 1.03  # times the measured step: a best above that would be beaten
FIX_OF = {
    "bf16": "bf16-autocast",
    "compile": "torch-compile",
    "cuda_graph": "cuda-graphs",
    "fused": "fused-optimizer",
    "no_io": "move-io-off-step",
    "no_item": "remove-sync",
    "pad_vocab": "pad-shapes",
    "pin": "pin-memory",
    "sdpa": "sdpa",
    "tf32": "tf32",
    "workers8": "loader-workers",
    "workers16_pin": "loader-workers",
}


def truths(folder: Path) -> dict[str, dict[str, Any]]:
    if not (folder / "truth.json").exists():
        return {}
    found: dict[str, dict[str, Any]] = json.loads((folder / "truth.json").read_text())
    return {name: truth for name, truth in found.items() if (folder / f"{name}.json.gz").exists()}


FOLDERS = (FIXTURES / "jobs", SHARED / "zoo")
JOBS = [(folder, name) for folder in FOLDERS for name in truths(folder)]
MEASURED = [
    (name, change)
    for name, truth in truths(SHARED / "zoo").items()
    for change in truth["fixes"]
    if change in FIX_OF
]


def facts(folder: Path, name: str) -> Facts:
    return recordings.facts(folder / f"{name}.json.gz", truths(folder)[name]["step_ms"])


@pytest.mark.parametrize(("folder", "name"), JOBS, ids=[name for _, name in JOBS])
def test_the_true_step_comes_out(folder: Path, name: str) -> None:
    """Where the true step itself was seen to vary by more than the bar, by no more than that.

    A step that is longer than the recorded ones is not explained by scaling them up: the rest is left over.
    """
    job, truth = facts(folder, name), truths(folder)[name]
    recorded = play_with(job.graph, Calibration()).step
    if truth["step_ms"] * 1e6 > (1 + WITHIN) * recorded:
        assert job.reading.likely.gaps.replay.step <= recorded * (1 + 1e-6)
        assert job.reading.likely.left_over > 0
    else:
        assert abs(job.reading.replay_error) <= max(WITHIN, truth["spread"])


def test_on_the_mean_it_is_nearer() -> None:
    errors = [abs(facts(folder, name).reading.replay_error) for folder, name in JOBS]
    assert sum(errors) / len(errors) <= ON_THE_MEAN


@pytest.mark.parametrize(("name", "change"), MEASURED)
def test_no_fix_of_the_zoo_beats_its_replayed_best(name: str, change: str) -> None:
    job = facts(SHARED / "zoo", name)
    fix = all_fixes()[FIX_OF[change]]
    outcome = fix.advise(job)
    assert isinstance(outcome, Use)
    measured = truths(SHARED / "zoo")[name]["fixes"][change]["step_ms"]
    assert ms(step_at_best(fix, outcome, job)) <= BEATEN * measured
