"""Predictions from the probes that were made on an H200, against the fixes really made there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from findwall.fixes import Use, all_fixes
from findwall.fixes.predict import predict
from findwall.model.probes import Probes
from fixes.recorded import TRUTH, job

RESULTS: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "benchmarks" / "results" / "probes.json").read_text()
)["jobs"]
MEASURED = [
    (name, row["fix"], row["measured_ms"])
    for name, one in RESULTS.items()
    if name in TRUTH
    for row in one["pairs"]
    if row["basis"] == "probed"
]


def error(name: str, fix: str, measured_ms: float) -> float:
    facts = job(name)
    facts = replace(facts, run=replace(facts.run, probes=msgspec.convert(RESULTS[name]["probes"], Probes)))
    use = all_fixes()[fix].advise(facts)
    found = predict(facts, {fix: use}) if isinstance(use, Use) else None
    assert found is not None and found.basis == "probed"
    return found.mid / 1e6 / measured_ms - 1


def test_probed_predictions_are_near_what_was_measured() -> None:
    errors = [abs(error(*pair)) for pair in MEASURED]
    assert len(errors) >= 7
    assert sum(errors) / len(errors) <= 0.08
    assert max(errors) <= 0.15


@pytest.mark.parametrize("name", RESULTS)
def test_a_probe_takes_seconds(name: str) -> None:
    assert RESULTS[name]["seconds"] <= 20
