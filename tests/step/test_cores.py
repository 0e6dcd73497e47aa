"""A CPU job seen as a device job."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from findwall.causes.compute import fast_path_off
from findwall.causes.verdict import decide
from findwall.examine.traced_document import diagnose_device
from findwall.facts.facts import Facts
from findwall.fixes import Use, all_fixes
from findwall.model.events import Kind
from findwall.model.machine import UNKNOWN_CEILINGS, Ceilings
from findwall.model.measured_run import StepTimes
from findwall.report.words import spoken
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


HALF, BFLOAT = "c10::Half", "c10::BFloat16"


def in_sixteen_bits(rates: dict[str, float], dtype: str = HALF, op: str = "aten::mm") -> Facts:
    """Products of 2 GFLOP, a millisecond each; attention of a tenth of that."""
    given = [[1000, 1000], [1000, 1000]] if op == "aten::mm" else [[1, 4, 512, 50]] * 3
    known = Ceilings("Some CPU, 8 cores", "measured", flops=rates, bandwidth=1e12)
    return on_cores(Drawn("", op).given(*given, dtype=dtype), known)


@pytest.mark.parametrize(("name", "dtype"), [("fp16", HALF), ("bf16", BFLOAT)])
def test_a_format_that_the_cores_are_slow_in_is_no_fast_path(name: str, dtype: str) -> None:
    slow = in_sixteen_bits({"fp32": 16e12, name: 2.2e12}, dtype)
    assert decide(slow).cause == "fast-path-off"
    assert slow.recoverable_ms("fast-path-off") == pytest.approx(4 * (1 - 1 / 8), rel=0.02)
    text = in_words(fast_path_off.CAUSE, slow)
    assert f"matmuls of {name} numbers, and this CPU multiplies fp32 ones 7.3 times as fast" in text
    assert "Keep the model and what it is given in fp32" in text


@pytest.mark.parametrize("fp32", [1e12, 2.2e12, 3e12])
def test_sixteen_bits_that_are_about_as_fast_left_no_fast_path(fp32: float) -> None:
    facts = in_sixteen_bits({"fp32": fp32, "fp16": 2.2e12})
    assert facts.spent_ms("fast-path-off") == 0 and decide(facts).cause == "at-the-roof"


def test_a_format_that_nobody_measured_is_named() -> None:
    facts = in_sixteen_bits({"fp32": 16e12, "bf16": 2e12})
    assert facts.spent_ms("fast-path-off") == 0
    text = spoken(diagnose_device(facts.run, [facts]).wall.claim)
    assert "how fast this CPU multiplies fp16 numbers" in text and "`findwall ceilings" in text


def test_attention_faster_than_its_format_allows_multiplies_in_fp32() -> None:
    attention = "aten::_scaled_dot_product_flash_attention_for_cpu"  # 0.21 GFLOP
    in_fp32 = in_sixteen_bits({"fp32": 16e12, "fp16": 0.1e12}, op=attention)
    assert in_fp32.spent_ms("fast-path-off") == 0
    assert in_sixteen_bits({"fp32": 16e12, "fp16": 0.3e12}, op=attention).spent_ms("fast-path-off") > 0


def test_odd_sizes_are_nothing_to_cores() -> None:
    odd = Drawn("", "aten::mm").given([1001, 1001], [1001, 1001], dtype=BFLOAT)
    facts = on_cores(odd, ceilings(0.5e12, 16e12))
    assert facts.spent_ms("misaligned-shapes") == 0 and decide(facts).cause == "slow-kernels"


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


@pytest.mark.parametrize(("fp32", "cause"), [(2.8e12, "at-the-roof"), (16e12, "slow-kernels")])
def test_a_factorisation_is_held_up_by_its_arithmetic_and_by_no_bytes(fp32: float, cause: str) -> None:
    factored = Drawn("", "aten::linalg_cholesky_ex").given([2000, 2000])  # 2.7 GFLOP
    facts = on_cores(factored, ceilings(fp32))
    assert decide(facts).cause == cause and facts.spent_ms("memory-roof") == 0


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


def computes(around: str, copies: str) -> list[str]:
    """The ops that compute where an op of that name runs a copy first, as long as it is drawn."""
    bias, ops = Drawn("", "aten::copy_").given([64, 64], [64, 64]), {"p": (Kind.OP, around)}
    host = "pppppppp  " * 3 + "\n" + copies.ljust(10) * 3
    drawn = sketch(host, " ", "|         " * 3, {"k": bias}, ops | {"c": (Kind.OP, "aten::copy_")}, device="")
    return [drawn.name_of(row) for row in computing(drawn).tolist()]


def test_an_op_that_works_on_behind_a_copy_is_one_op() -> None:
    """Most of its time is the copy's; what comes then is its own work, and no silence."""
    assert computes("aten::own", "ccccc") == ["aten::own"] * 3
    assert computes("aten::own", "ccccccc") == ["aten::copy_"] * 3


@pytest.mark.parametrize(
    "routine", ["addmm", "baddbmm", "linalg_cholesky_ex", "_linalg_svd", "cholesky_solve", "linalg_lu_factor"]
)
def test_a_routine_that_copies_for_itself_is_one_op_however_long_it_copies(routine: str) -> None:
    assert computes(f"aten::{routine}", "ccccccc") == [f"aten::{routine}"] * 3


@pytest.mark.parametrize("other", ["contiguous", "linalg_vector_norm", "_linalg_check_errors", "matmul"])
def test_what_copies_on_somebodys_behalf_is_none(other: str) -> None:
    assert computes(f"aten::{other}", "ccccccc") == ["aten::copy_"] * 3
