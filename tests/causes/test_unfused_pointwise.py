"""Chains of pointwise kernels over the same tensor."""

from __future__ import annotations

from findwall.causes.bandwidth import unfused_pointwise
from findwall.facts.facts import Facts
from sketch import Drawn, facts_of, sketch
from speaking import in_words

STEPS = "|        |        |        "
CPU = "oooo     oooo     oooo"
GPU = "kkKKkkKK kkKKkkKK kkKKkkKK"


def fires() -> Facts:
    return facts_of(sketch(cpu=CPU, gpu=GPU, steps=STEPS))


def clear() -> Facts:
    return facts_of(sketch(cpu="o        o        o", gpu="m        m        m", steps=STEPS))


def cannot_tell() -> Facts:
    """How much of it a fused kernel saves takes the memory's speed."""
    return facts_of(sketch(cpu=CPU, gpu=GPU, steps=STEPS, device=""))


def test_the_intermediates_need_not_be_moved() -> None:
    facts = fires()
    first = facts_of(sketch(cpu="o  o  o", gpu="kk kk kk", steps="|  |  |  "))
    alone = first.recoverable_ms("unfused-pointwise")
    chained = facts.recoverable_ms("unfused-pointwise")
    assert alone is not None and chained is not None and chained > 4 * alone
    assert "mul" in in_words(unfused_pointwise.CAUSE, facts)


def test_unknown_is_said() -> None:
    assert "unknown because this GPU's ceilings are unknown" in in_words(
        unfused_pointwise.CAUSE, cannot_tell()
    )


def test_norms_in_the_chain_are_named() -> None:
    facts = facts_of(sketch(cpu="ooo      " * 3, gpu="mwwwkkkkk" * 3, steps=STEPS))
    text = in_words(unfused_pointwise.CAUSE, facts)
    assert "pointwise and norm kernels" in text and "layer_norm" in text
    assert "channels-last" not in text  # nothing is convolved


def test_where_images_are_convolved_their_layout_is_told_too() -> None:
    kernels = {
        "v": Drawn(
            "sm90_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nhwc", "aten::cudnn_convolution"
        )
    }
    facts = facts_of(sketch(cpu="ooo      " * 3, gpu="vwwwkkkkk" * 3, steps=STEPS, kernels=kernels))
    assert "makes images channels-last" in in_words(unfused_pointwise.CAUSE, facts)


def test_a_convolution_that_hardly_takes_time_is_not_told() -> None:
    kernels = {"v": Drawn("implicit_convolve_sgemm<float, 128>", "aten::cudnn_convolution")}
    steps, wide = "|" + " " * 119, "v" + "kkkkKKKK" * 14 + "k" * 7
    facts = facts_of(sketch(cpu=("o" * 29 + " " * 91) * 3, gpu=wide * 3, steps=steps * 3, kernels=kernels))
    assert "channels-last" not in in_words(unfused_pointwise.CAUSE, facts)
