"""A CPU job seen as a device job."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from findwall.attribute.cores import core_ceilings
from findwall.attribute.facts import Facts
from findwall.fixes import fix_modules
from findwall.model.events import Kind, Timeline
from findwall.model.machine import Ceilings
from findwall.walls.verdict import decide
from sketch import Drawn, facts_of, sketch

# Each op is drawn a millisecond long. A matmul of 2 GFLOP then runs at 2 TFLOP/s.
MATMUL = Drawn("", "aten::mm").given([1000, 1000], [1000, 1000])
LAYER_NORM = Drawn("", "aten::native_layer_norm").given([1000, 1000], [1000])


def ceilings(fp32: float, bf16: float | None = None) -> Ceilings:
    flops = {"fp32": fp32, "tf32": 9e12} | ({} if bf16 is None else {"bf16": bf16})
    return Ceilings(device="Some CPU, 8 cores", source="measured", flops=flops, bandwidth=1e11, sm_count=7)


def on_cores(drawn: Drawn, known: Ceilings) -> Facts:
    """Three steps of one kind of op, nothing between them."""
    timeline = sketch(cpu="oooo" * 3, gpu="kKkK" * 3, steps="|   " * 3, kernels={"k": drawn}, device="")
    return facts_of(hosts_own(timeline), ceilings=known, device_kind="cpu")


def hosts_own(timeline: Timeline) -> Timeline:
    """The same without its device rows and the calls that launched them."""
    kept = np.flatnonzero(timeline.events.is_kind(Kind.OP, Kind.ANNOTATION))
    return replace(timeline, events=timeline.events.take(kept))


def test_what_was_measured_of_the_cores_is_kept() -> None:
    kept = core_ceilings(ceilings(2.5e12, 8e12))
    assert kept.flops == {"fp32": 2.5e12, "bf16": 8e12} and kept.sm_count is None


def test_bf16_on_cores_has_a_floor() -> None:
    drawn = Drawn("", "aten::mm").given([1000, 1000], [1000, 1000], dtype="c10::BFloat16")
    facts = on_cores(drawn, ceilings(0.5e12, 2.2e12))
    assert decide(facts).cause == "at-the-roof"
    slow = on_cores(drawn, ceilings(0.5e12, 8e12))
    assert decide(slow).cause == "slow-kernels"


def test_fp32_on_cores_left_no_fast_path_off_however_fast_bf16_is() -> None:
    facts = on_cores(MATMUL, ceilings(2.2e12, 16e12))
    assert decide(facts).cause == "at-the-roof" and facts.spent_ms("fast-path-off") == 0


def test_what_bf16_would_give_on_cores_is_known_where_it_was_measured() -> None:
    advise = fix_modules()["bf16-autocast"].advise
    fast = advise(on_cores(MATMUL, ceilings(2.2e12, 16e12)))
    assert fast.applies and "torch.autocast('cpu', dtype=torch.bfloat16)" in fast.how
    assert advise(on_cores(MATMUL, ceilings(2.2e12, 1e12))).why_not.endswith("16-bit numbers no faster")
    assert "`findwall ceilings`" in advise(on_cores(MATMUL, ceilings(2.2e12))).why_not


def test_a_norm_is_at_the_memorys_roof_and_no_slow_kernel() -> None:
    """One core cannot fill the memory's width: that is no fault of the op."""
    facts = on_cores(LAYER_NORM, ceilings(2.2e12))
    assert decide(facts).cause == "memory-roof"
    assert facts.spent_ms("slow-kernels") == 0 and not facts.recoverable_ms("memory-roof")
