"""Matmuls at the ceiling."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from findwall.causes.compute import at_the_roof
from findwall.causes.verdict import decide
from findwall.facts.facts import Facts
from findwall.model.causes import cause_index
from sketch import Drawn, facts_of, sketch
from speaking import evidence_of, in_words

STEPS = "|     |     |     "
CPU = "oooo  oooo  oooo"


def fires() -> Facts:
    return facts_of(sketch(cpu=CPU, gpu="mMmMmMmMmMmMmMmMmM", steps=STEPS))


def clear() -> Facts:
    return facts_of(sketch(cpu=CPU, gpu="mmm   mmm   mmm", steps=STEPS))


def cannot_tell() -> Facts:
    return facts_of(sketch(cpu=CPU, gpu="mMmMmMmMmMmMmMmMmM", steps=STEPS, device=""))


def test_says_what_is_left() -> None:
    assert "fp8" in in_words(at_the_roof.CAUSE, fires())
    assert "of its ceiling" in evidence_of(at_the_roof.CAUSE, fires())[0]


def test_from_each_format_the_next_one_down_is_named() -> None:
    for device, dtype, said in (
        ("NVIDIA H200", "double", "(TF32 or bf16 instead of fp64, if its digits are not needed)"),
        ("Tesla V100-SXM2-32GB", "double", "(fp32 or fp16 instead of fp64, if its digits are not needed)"),
        ("NVIDIA H200", "c10::Half", "(fp8 matmuls)"),
        ("NVIDIA A100-SXM4-80GB", "c10::BFloat16", "(int8)"),
        ("Tesla V100-SXM2-32GB", "c10::Half", "Only a smaller model"),
    ):
        text = in_words(at_the_roof.CAUSE, matmuls(dtype, device))
        assert said in text, text
        assert dtype != "double" or "fp8" not in text


def matmuls(dtype: str, device: str) -> Facts:
    """Matmuls of 5.6 TFLOP in a millisecond: whatever the device, they are given to the roof."""
    name = "cutlass_80_tensorop_d884gemm" if dtype == "double" else "nvjet_sm90_tst_256x128"
    drawn = {"m": Drawn(name, "aten::mm").given([8192, 8192], [8192, 5632], dtype=dtype)}
    facts = facts_of(sketch(cpu=CPU, gpu="mMmMmMmMmMmMmMmMmM", steps=STEPS, device=device, kernels=drawn))
    cause = np.full(len(facts.atoms.index), cause_index("at-the-roof"), np.int64)
    return replace(facts, atoms=replace(facts.atoms, cause=cause))


def test_several_that_are_each_too_small_are_no_wall() -> None:
    """A step at the roof with copies, chains and norms beside it, of which none gives back 5 %."""
    device = "mM" * 18 + "lKwTl"
    facts = facts_of(
        sketch(
            steps=("|" + " " * (len(device) - 1)) * 3 + "|",
            cpu="o" * len(device) * 3,
            gpu="  " + device * 3,
        )
    )
    gain = facts.recoverable()
    small = [cause for cause in gain.ranked() if gain[cause] > 0]
    assert len(small) > 1 and max(gain[cause] for cause in small) < 0.05 * facts.step
    assert facts.saved(tuple(small)) > 0.1 * facts.spent()["at-the-roof"]
    assert decide(facts).cause == "at-the-roof"
