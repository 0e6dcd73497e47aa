"""Fixes that were really made in jobs kept aside: none is faster than its replay at best."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import recordings
from findwall.facts.facts import Facts
from findwall.fixes import Use, all_fixes
from findwall.fixes.at_best import together_at_best
from findwall.units import ms

TRACES = Path(__file__).resolve().parents[2] / "benchmarks" / "kept_aside" / "traces"
TRUTH = json.loads((TRACES / "truth.json").read_text())
BEATEN = 1.03  # times the measured step: a best above that would be beaten
# Jobs whose blocks differ by far less than that, with what was measured and the fixes that stand for it.
MEASURED = [
    ("resnet_default", "channels_last", ("channels-last",)),
    ("resnet_default", "bf16", ("bf16-autocast",)),
    ("resnet_default", "bf16_channels_last", ("bf16-autocast", "channels-last")),
    ("large_vocabulary", "no_upcast", ("fewer-casts",)),
    ("large_vocabulary", "compile_loss", ("torch-compile",)),
    ("large_vocabulary", "compile_loss", ("fused-loss",)),
    ("large_vocabulary", "fused", ("fused-optimizer",)),
    ("neural_ode", "cuda_graph", ("cuda-graphs",)),
    ("double_buffer", "bf16", ("bf16-autocast",)),
]


def facts(name: str) -> Facts:
    return recordings.facts(TRACES / f"{name}.json.gz", TRUTH[name]["step_ms"])


@pytest.mark.parametrize(("name", "change", "fixes"), MEASURED)
def test_no_fix_beats_its_replayed_best(name: str, change: str, fixes: tuple[str, ...]) -> None:
    said = {fix: all_fixes()[fix].advise(facts(name)) for fix in fixes}
    uses = {fix: outcome for fix, outcome in said.items() if isinstance(outcome, Use)}
    assert len(uses) == len(fixes)
    best = ms(together_at_best(uses, facts(name)))
    assert best <= BEATEN * TRUTH[name]["fixes"][change]["step_ms"]


def test_norms_before_their_activations_are_not_at_a_roof() -> None:
    """What fusion takes away is no floor: the network's batch norms stand before a ReLU or an addition."""
    found = facts("resnet_default")
    assert found.share("memory-roof") < 0.05
    assert (found.recoverable_ms("unfused-pointwise") or 0.0) > 0.25 * ms(found.step)


def test_the_loss_over_a_large_vocabulary_is_a_chain() -> None:
    found = facts("large_vocabulary")
    assert found.share("memory-roof") < 0.05
    gained = (found.recoverable_ms("unfused-pointwise") or 0.0) + (found.recoverable_ms("dtype-casts") or 0.0)
    measured = (
        TRUTH["large_vocabulary"]["step_ms"] - TRUTH["large_vocabulary"]["fixes"]["compile_loss"]["step_ms"]
    )
    assert gained >= measured
