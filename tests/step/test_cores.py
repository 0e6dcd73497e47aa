"""A CPU job seen as a device job."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from findwall.causes.verdict import decide
from findwall.facts.facts import Facts
from findwall.fixes import Use, all_fixes
from findwall.model.events import Kind
from findwall.model.machine import UNKNOWN_CEILINGS, Ceilings
from findwall.model.measured_run import StepTimes
from findwall.step.cores import computing, core_ceilings
from sketch import Drawn, facts_of, hosts_own, sketch
from speaking import in_words

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


def test_what_was_measured_of_the_cores_is_kept() -> None:
    kept = core_ceilings(ceilings(2.5e12, 8e12))
    assert kept.flops == {"fp32": 2.5e12, "bf16": 8e12, "fp64": 1.25e12} and kept.sm_count is None


def test_fp64_on_cores_is_half_of_fp32_where_nobody_measured_it() -> None:
    drawn = Drawn("", "aten::mm").given([1000, 1000], [1000, 1000], dtype="double")
    assert decide(on_cores(drawn, ceilings(4.4e12))).cause == "at-the-roof"
    assert decide(on_cores(drawn, ceilings(16e12))).cause == "slow-kernels"


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
    advise = all_fixes()["bf16-autocast"].advise
    fast = advise(on_cores(MATMUL, ceilings(2.2e12, 16e12)))
    assert isinstance(fast, Use) and "torch.autocast('cpu', dtype=torch.bfloat16)" in in_words(fast)
    assert in_words(advise(on_cores(MATMUL, ceilings(2.2e12, 1e12)))).endswith("is no faster in 16 bits")
    assert "`findwall ceilings`" in in_words(advise(on_cores(MATMUL, ceilings(2.2e12))))


def test_a_norm_near_the_memorys_roof_is_no_slow_kernel() -> None:
    facts = on_cores(LAYER_NORM, replace(ceilings(2.2e12), bandwidth=0.9e10))
    assert decide(facts).cause == "memory-roof"
    assert facts.spent_ms("slow-kernels") == 0 and not facts.recoverable_ms("memory-roof")


def test_one_at_a_twelfth_of_the_memorys_speed_is() -> None:
    facts = on_cores(LAYER_NORM, ceilings(2.2e12))
    assert decide(facts).cause == "slow-kernels"
    assert facts.spent_ms("memory-roof") == 0


def cores(cpu: str, step: str, us: float = 1000, drawn: Drawn = MATMUL, **run: Any) -> Facts:
    """Three steps as drawn, every `o` such an op; ceilings known where they are given."""
    known = run.pop("known", UNKNOWN_CEILINGS)
    timeline = sketch(
        cpu * 3, ("kK" * (2 * len(cpu)))[: 3 * len(cpu)], step * 3, {"k": drawn}, device="", us=us
    )
    return facts_of(hosts_own(timeline), ceilings=known, device_kind="cpu", **run)


def test_the_way_to_an_ops_work_is_overhead() -> None:
    """An op on a few numbers takes microseconds and moves next to nothing: fewer bytes would not help it."""
    few = Drawn("", "aten::mul").given([16], [16])
    timed = StepTimes((24e-6,) * 20, "measured")
    facts = cores("oooooooo", "|       ", us=3, drawn=few, known=ceilings(2.2e12), step_times=timed)
    assert decide(facts).cause == "launch-bound"
    assert facts.spent_ms("launch-bound") > 0.9 * facts.step / 1e6
    long = cores("oooooooo", "|       ", us=300, drawn=few, known=ceilings(2.2e12))
    assert long.spent_ms("launch-bound") < 0.05 * long.step / 1e6


def test_on_cores_the_loader_takes_what_it_was_timed_to_take() -> None:
    """The traced steps hardly waited, others did; meanwhile nothing else can have run."""
    timed = StepTimes((0.010,) * 20, "measured", loader_s=0.008)
    facts = cores("doooo", "|    ", step_times=timed, known=ceilings(2.2e12))
    assert facts.spent_ms("loader-starved") == pytest.approx(8, abs=0.01)
    assert facts.spent().total == pytest.approx(facts.step)
    assert decide(facts).cause == "loader-starved"


def test_a_longer_true_step_on_cores_is_not_all_gaps() -> None:
    timed = StepTimes((0.012,) * 20, "measured")
    facts = cores("oooooooo.", "|        ", step_times=timed, known=ceilings(2.2e12))
    assert facts.spent_ms("at-the-roof") == pytest.approx(11, rel=0.01)  # the gap is no longer than traced


def test_rare_slow_steps_on_cores_leave_the_others_as_they_were() -> None:
    timed = StepTimes((0.008,) * 18 + (0.048,) * 2, "measured")
    facts = cores("oooooooo", "|       ", step_times=timed, known=ceilings(2.2e12))
    assert facts.spent_ms("unstable-steps") == pytest.approx(4)
    assert facts.spent_ms("at-the-roof") == pytest.approx(8, rel=0.01)


def test_a_product_that_copies_its_bias_out_first_is_one_op() -> None:
    """Most of its time is the copy's; the product that comes then is its own work, and no silence."""
    inner = (Kind.OP, "aten::copy_")
    bias, product = Drawn("", "aten::copy_").given([64, 64], [64, 64]), {"p": (Kind.OP, "aten::addmm")}
    timeline = sketch(
        "pppppppp  " * 3 + "\n" + "ccccc     " * 3,
        " ",
        "|         " * 3,
        {"k": bias},
        product | {"c": inner},
        device="",
    )
    names = [timeline.name_of(row) for row in computing(timeline).tolist()]
    assert names == ["aten::addmm"] * 3
    short = sketch(
        "pppppppp  " * 3 + "\n" + "ppppppp   ".replace("p", "c") * 3,
        " ",
        "|         " * 3,
        {"k": bias},
        product | {"c": inner},
        device="",
    )
    assert [short.name_of(row) for row in computing(short).tolist()] == ["aten::copy_"] * 3
