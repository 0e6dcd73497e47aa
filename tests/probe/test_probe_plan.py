"""Which ops are probed, in which variants, and what predictions make of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from findwall.facts.facts import Facts
from findwall.fixes import Use, all_fixes
from findwall.fixes.predict import Prediction, predict
from findwall.model.probes import AS_IS, ATTENTION, OPTIMIZER, UPLOAD, Probes
from findwall.probe.probe_plan import as_is, far_off, plan, probed, units, variant
from fixes.recorded import job

PLANNED = {
    "conv_fp32": {
        "aten::cudnn_convolution": {AS_IS, "bf16", "tf32", "nhwc", "bf16+nhwc", "tf32+nhwc"},
        "aten::convolution_backward": {AS_IS, "bf16", "tf32", "nhwc", "bf16+nhwc", "tf32+nhwc"},
        "aten::cudnn_batch_norm": {AS_IS, "bf16", "nhwc", "bf16+nhwc"},
        "aten::cudnn_batch_norm_backward": {AS_IS, "bf16", "nhwc", "bf16+nhwc"},
    },
    "odd_widths": {"aten::addmm": {AS_IS, "padded"}, "aten::mm": {AS_IS, "padded"}},
    "bias_attention": {ATTENTION: {"sdpa"}},
    "accelerate_fp32": {"aten::mm": {AS_IS, "bf16", "tf32"}, "aten::addmm": {AS_IS, "bf16", "tf32"}},
    # Its products run in TF32 already: that is how they are.
    "plain_adamw": {OPTIMIZER: {"fused"}, "aten::mm": {"tf32", "bf16"}},
    "pageable_batches": {UPLOAD: {"pinned"}},
}


@pytest.mark.parametrize("name", PLANNED)
def test_the_plan_names_the_ops_that_fixes_change(name: str) -> None:
    found: dict[str, set[str]] = {}
    for probe in plan(job(name)):
        found.setdefault(probe.op, set()).add(probe.variant)
    for op, variants in PLANNED[name].items():
        assert found[op] == variants


@pytest.mark.parametrize("name", PLANNED)
def test_most_of_what_fixes_change_is_planned(name: str) -> None:
    facts = job(name)
    keys = {probe.key for probe in plan(facts)}
    assert len(keys) == len(plan(facts))
    for kind in {unit.kind for unit in units(facts)}:
        mine = [unit for unit in units(facts) if unit.kind == kind and _is_moved(facts, unit)]
        covered = sum(unit.ns for unit in mine if _is_planned(facts, unit, keys))
        assert covered >= 0.94 * sum(unit.ns for unit in mine) - 1e-3 * len(mine) * facts.step


def _is_moved(facts: Facts, unit: Any) -> bool:
    return any(variant(facts, unit, frozenset({fix})) != as_is(facts, unit) for fix in all_fixes())


def _is_planned(facts: Facts, unit: Any, keys: set[str]) -> bool:
    from findwall.model.probes import probe_key

    return any(
        probe_key(unit.op, unit.inputs, variant(facts, unit, frozenset({fix}))) in keys for fix in all_fixes()
    )


def test_odd_extents_are_padded_where_they_lie() -> None:
    run = [probe.run for probe in plan(job("odd_widths")) if probe.variant == "padded"]
    assert all(one is not None for one in run)
    shapes = {extent for one in run if one for dims in one.dims for extent in dims}
    assert shapes == {1024, 4096, 32768}


def test_attention_is_told_from_its_products() -> None:
    for probe in plan(job("bias_attention")):
        query, key, mask = probe.inputs.dims
        assert (query, key, mask) == ([8, 16, 2048, 64], [8, 16, 2048, 64], [1, 16, 2048, 2048])
        assert probe.inputs.types[0] == "c10::Half"
    assert {probe.inputs.concrete[0] for probe in plan(job("bias_attention"))} == {"forward", "backward"}


def test_the_optimizer_is_probed_on_its_own_tensors() -> None:
    (found,) = (probe for probe in plan(job("plain_adamw")) if probe.op == OPTIMIZER)
    assert found.inputs.dims == [[[8192, 8192]] * 8]
    assert found.inputs.concrete[0] == "AdamW"


# -- predictions -----------------------------------------------------------------------------------


def with_probes(facts: Facts, ns: dict[str, float]) -> Facts:
    return replace(facts, run=replace(facts.run, probes=Probes("NVIDIA H200", "", "", "", ns)))


def drawn(facts: Facts, factor: float, pace: float = 1.0) -> dict[str, float]:
    """Probes of every planned op: as recorded (times `pace`) as it is, times `factor` as fixes run it."""
    found = {}
    for unit in units(facts):
        each = float(facts.timeline.events.duration[unit.rows].sum()) / unit.calls * pace
        for probe in plan(facts):
            if (probe.op, probe.inputs) == (unit.op, unit.inputs):
                found[probe.key] = each if probe.variant == as_is(facts, unit) else each * factor
    return found


def predicted(facts: Facts, *names: str) -> Prediction:
    uses = {name: all_fixes()[name].advise(facts) for name in names}
    found = predict(facts, {name: one for name, one in uses.items() if isinstance(one, Use)})
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("accelerate_fp32", "tf32"),
        ("accelerate_fp32", "bf16-autocast"),
        ("conv_fp32", "tf32"),
        ("odd_widths", "pad-shapes"),
        ("bias_attention", "sdpa"),
        ("plain_adamw", "fused-optimizer"),
        ("pageable_batches", "pin-memory"),
    ],
)
def test_a_prediction_follows_what_was_probed(name: str, fix: str) -> None:
    facts = job(name)
    curved = predicted(facts, fix)
    slow, fast = (predicted(with_probes(facts, drawn(facts, factor)), fix) for factor in (0.9, 0.3))
    assert curved.basis != "probed"
    assert slow.basis == fast.basis == "probed"
    assert fast.mid < slow.mid


@pytest.mark.parametrize("pace", [0.6, 1.0, 1.7])
def test_the_pace_of_the_probed_device_cancels_out(pace: float) -> None:
    facts = job("accelerate_fp32")
    found = predicted(with_probes(facts, drawn(facts, 0.4, pace)), "tf32")
    assert found.mid == pytest.approx(predicted(with_probes(facts, drawn(facts, 0.4)), "tf32").mid, rel=1e-3)
    assert far_off(with_probes(facts, drawn(facts, 0.4, pace))) == []


def test_a_probe_far_from_the_job_counts_as_it_is() -> None:
    facts = with_probes(job("accelerate_fp32"), drawn(job("accelerate_fp32"), 0.4, pace=3.0))
    assert set(far_off(facts)) == {"aten::mm", "aten::addmm"}
    told = probed(facts, frozenset({"tf32"}))
    assert float(told.ns.sum()) == pytest.approx(
        1.2 * float(facts.timeline.events.duration[told.rows].sum()), rel=1e-3
    )


def test_a_fix_that_was_probed_slower_is_predicted_slower() -> None:
    facts = job("accelerate_fp32")
    assert predicted(with_probes(facts, drawn(facts, 1.3)), "tf32").mid > 1.2 * facts.step


def test_probes_of_other_ops_change_nothing() -> None:
    facts = job("odd_widths")
    other = with_probes(facts, drawn(job("accelerate_fp32"), 0.1))
    assert predicted(other, "pad-shapes") == predicted(facts, "pad-shapes")


def test_what_nobody_probed_together_rests_on_curves() -> None:
    facts = job("conv_fp32")
    alone = {key: ns for key, ns in drawn(facts, 0.4).items() if '"bf16+nhwc"' not in key}
    both = predicted(with_probes(facts, alone), "bf16-autocast", "channels-last")
    assert both.basis == "curves"
    assert both.mid == pytest.approx(predicted(facts, "bf16-autocast", "channels-last").mid)
    assert np.isfinite(both.mid)
