"""16-bit matmuls with a dimension that is not a multiple of 8."""

from __future__ import annotations

from findwall.causes.compute import misaligned_shapes
from findwall.facts.facts import Facts
from sketch import Drawn, facts_of, sketch
from speaking import evidence_of, in_words

STEPS = "|        |        |        "
CPU = "o        o        o"
GPU = "mmmmmm   mmmmmm   mmmmmm"
FALLBACK = "void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_tn_align1>(Params)"


def drawn(columns: int | None) -> Facts:
    kernel = Drawn(FALLBACK, "aten::mm")
    if columns is not None:
        kernel = kernel.given([8192, 768], [768, columns], dtype="c10::BFloat16")
    return facts_of(sketch(cpu=CPU, gpu=GPU, steps=STEPS, kernels={"m": kernel}))


def fires() -> Facts:
    return drawn(50257)


def clear() -> Facts:
    return drawn(50304)


def cannot_tell() -> Facts:
    """An unaligned kernel's name alone proves nothing."""
    return drawn(None)


def test_says_what_to_pad_to_what() -> None:
    assert "Pad 50257 to 50304" in in_words(misaligned_shapes.CAUSE, fires())
    first = evidence_of(misaligned_shapes.CAUSE, fires())[0]
    assert "[8192×768]·[768×50257] bf16" in first
    assert "cutlass_75_tensorop_bf16" in first
