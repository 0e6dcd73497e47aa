"""Copies that change the type."""

from __future__ import annotations

from findwall.causes.bandwidth import dtype_casts
from findwall.facts.facts import Facts
from sketch import BIG, H200, Drawn, facts_of, sketch
from speaking import in_words

STEPS = "|        |        |        "
CPU = "o        o        o"
GPU = "qqq      qqq      qqq"
COPY = "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda>"


def drawn(target: str, source: str, device: str = H200) -> Facts:
    cast = Drawn(COPY, "aten::copy_", (BIG, BIG), (target, source))
    return facts_of(sketch(cpu=CPU, gpu=GPU, steps=STEPS, kernels={"q": cast}, device=device))


def fires() -> Facts:
    return drawn("float", "c10::BFloat16")


def clear() -> Facts:
    return drawn("float", "float")


def cannot_tell() -> Facts:
    return drawn("float", "c10::BFloat16", device="")


def test_names_both_types() -> None:
    assert "bf16 to fp32 of [32768×8192]" in in_words(dtype_casts.CAUSE, fires())
