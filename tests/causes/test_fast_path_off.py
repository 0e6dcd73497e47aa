"""fp32 matmuls where tensor cores could serve."""

from __future__ import annotations

import pytest

from findwall.causes.compute import fast_path_off
from findwall.causes.verdict import decide
from findwall.facts.facts import Facts
from sketch import Drawn, facts_of, sketch
from speaking import evidence_of, in_words

STEPS = "|        |        |        "


def fires() -> Facts:
    return facts_of(sketch(cpu="o        o        o", gpu="tttttttt ttttttttt ttttttt", steps=STEPS))


def clear() -> Facts:
    return facts_of(sketch(cpu="o        o        o", gpu="m        m        m", steps=STEPS))


def cannot_tell() -> Facts:
    """On a GPU nobody knows there is no ceiling to fall short of."""
    return facts_of(
        sketch(cpu="o        o        o", gpu="tttttttt ttttttttt ttttttt", steps=STEPS, device="")
    )


def test_names_the_setting() -> None:
    text = in_words(fast_path_off.CAUSE, fires())
    assert 'set_float32_matmul_precision("high")' in text
    assert "[8192×8192]·[8192×512] fp32" in evidence_of(fast_path_off.CAUSE, fires())[0]


def test_a_card_without_tf32_gets_fp16() -> None:
    old = facts_of(sketch(cpu="o  o  o", gpu="tt tt tt", steps="|  |  |  ", device="Tesla V100-SXM2-32GB"))
    assert "fp16 autocast with a GradScaler" in in_words(fast_path_off.CAUSE, old)


def test_fp64_goes_to_fp32_first_and_only_if_it_may() -> None:
    drawn = {"t": Drawn("volta_dgemm_128x64_nn", "aten::mm").given([8192, 8192], [8192, 512], dtype="double")}
    text = in_words(
        fast_path_off.CAUSE, facts_of(sketch(cpu="o  o  o", gpu="tt tt tt", steps="|  |  |  ", kernels=drawn))
    )
    assert "goes to fp64 matmuls" in text
    assert "Make the data fp32 (.float()) if fp64's digits are not needed, then set torch." in text


def unshaped(kernel: str, device: str, op: str = "aten::mm") -> Facts:
    """Steps of one kernel, recorded without shapes; the host is far ahead of the device."""
    kernels = {"t": Drawn(kernel, op)}
    gpu = "ttttttttTTTTTTTTttttttttTTTTTTTT"
    return facts_of(sketch("oooo", gpu, "||||", kernels, device=device))


SGEMM = "ampere_sgemm_128x64_nn"


@pytest.mark.parametrize(
    ("device", "advice"),
    [
        ("NVIDIA A100-SXM4-80GB", 'set_float32_matmul_precision("high")'),
        ("NVIDIA GeForce RTX 3090", "under bf16 autocast (TF32 is no faster"),
        ("NVIDIA GeForce RTX 4090", "under bf16 autocast (TF32 is no faster"),
        ("Tesla V100-SXM2-16GB", "under fp16 autocast with a GradScaler"),
        ("Tesla T4", "under fp16 autocast with a GradScaler"),
    ],
)
def test_names_tell_fp32_without_shapes_on_every_card(device: str, advice: str) -> None:
    for op in ("aten::mm", "my::replayed"):
        facts = unshaped(SGEMM, device, op)
        assert decide(facts).cause == "fast-path-off"
        assert advice in in_words(fast_path_off.CAUSE, facts)


@pytest.mark.parametrize(
    ("kernel", "op"),
    [
        ("void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 4, 4>", "aten::mv"),
        ("volta_fp16_sgemm_fp16_128x128_ldg8_relu_nn", "aten::mm"),  # 16-bit data already
        ("volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nn", "aten::mm"),  # on tensor cores
        ("void sgemm_warptiling<float>(float*)", "my::gemm"),  # the job's own: no switch reaches it
        ("matmul_kernel_fp32", "my::gemm"),
    ],
)
def test_what_no_fast_path_would_serve_is_not_told_by_name(kernel: str, op: str) -> None:
    facts = unshaped(kernel, "Tesla V100-SXM2-16GB", op)
    assert facts.spent_ms("fast-path-off") == 0
    assert decide(facts).cause is None
