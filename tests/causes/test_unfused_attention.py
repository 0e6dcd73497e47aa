"""Softmax(QK)V written out."""

from __future__ import annotations

from msgspec.structs import replace

from findwall.causes.bandwidth import unfused_attention
from findwall.facts.facts import Facts
from sketch import Drawn, facts_of, sketch
from speaking import in_words

STEPS = "|         |         |         "
CPU = "ooo       ooo       ooo"
GPU = "vvpppaa   vvpppaa   vvpppaa"
SCORES = [96, 2048, 2048]
HALF = "c10::BFloat16"
PRODUCT = Drawn("nvjet_sm90_tst_128x256_NNT", "aten::bmm")
SOFTMAX = Drawn("void softmax_warp_forward<float>", "aten::_softmax")
FUSED = Drawn("void flash_fwd_kernel<Flash_fwd_kernel_traits<64>>", "aten::_flash_attention_forward")


def fires() -> Facts:
    kernels = {
        "v": PRODUCT.given([96, 2048, 64], [96, 64, 2048], dtype=HALF),
        "p": SOFTMAX.given(SCORES, dtype=HALF),
        "a": PRODUCT.given(SCORES, [96, 2048, 64], dtype=HALF),
    }
    return facts_of(sketch(cpu=CPU, gpu=GPU, steps=STEPS, kernels=kernels))


def clear() -> Facts:
    qkv = [8, 2048, 12, 64]
    fused = {"p": FUSED.given(qkv, qkv, qkv, dtype=HALF)}
    return facts_of(sketch(cpu="o  o  o", gpu="p  p  p", steps="|  |  |  ", kernels=fused))


def cannot_tell() -> Facts:
    """Without shapes nobody knows that these kernels share a matrix."""
    return facts_of(sketch(cpu=CPU, gpu=GPU, steps=STEPS, kernels={"v": PRODUCT, "p": SOFTMAX, "a": PRODUCT}))


def test_names_the_matrix() -> None:
    text = in_words(unfused_attention.CAUSE, fires())
    assert "[96×2048×2048]" in text
    assert "scaled_dot_product_attention" in text


def test_a_call_that_takes_the_math_path_is_not_told_to_call() -> None:
    facts = fires()
    names = (*facts.timeline.names, unfused_attention.MATH_PATH)
    text = in_words(unfused_attention.CAUSE, replace(facts, timeline=replace(facts.timeline, names=names)))
    assert "on its math path" in text and "instead" not in text
