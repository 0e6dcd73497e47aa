"""Kernels that move only what they must."""

from __future__ import annotations

from findwall.attribute.facts import Facts
from findwall.walls import memory_roof
from sketch import KERNELS, Drawn, facts_of, sketch

STEPS = "|   |   |   "
CPU = "o   o   o"
NORM = "void at::native::vectorized_layer_norm_kernel<float, float>"


def fires() -> Facts:
    return facts_of(sketch(cpu=CPU, gpu="w   w   w", steps=STEPS))


def clear() -> Facts:
    return facts_of(sketch(cpu=CPU, gpu="m   m   m", steps=STEPS))


def cannot_tell() -> Facts:
    return facts_of(sketch(cpu=CPU, gpu="w   w   w", steps=STEPS, kernels={"w": Drawn(NORM, "my::norm")}))


def test_decoding_is_told_to_grow_its_batch() -> None:
    thin = KERNELS["m"].given([1, 32768], [32768, 65536], dtype="c10::BFloat16")
    facts = facts_of(sketch(cpu=CPU, gpu="m   m   m", steps=STEPS, kernels={"m": thin}))
    assert facts.spent_ms("memory-roof") > 0
    assert "a larger batch" in memory_roof.sentence(facts)
