"""Matmuls run at the ceiling: the happy wall.

What it finds:
Matmuls, convolutions and attention that reach 75 % or more of the FLOP/s this GPU achieves in their
number format.

Why it costs:
It costs what the arithmetic costs. There is no waste here to remove; only less or cheaper arithmetic
makes the step shorter.

How it is told apart:
By floor over time: FLOPs at the achievable ceiling (measured where a measurement is given, else a
table's) against the kernel's duration. It is the verdict only where no cause recovers 5 % of the step.

What helps:
Less or cheaper arithmetic: lower-precision (fp8 on Hopper and later, int8 for inference), bf16-autocast where
TF32 is in use, smaller-model, custom-kernels for the last tenths, better-hardware.
"""

from __future__ import annotations

from findwall.attribute.facts import Facts
from findwall.model.diagnosis import Evidence
from findwall.walls.evidence import device_word, kernel_evidence, opening

CAUSE = "at-the-roof"


def evidence(facts: Facts) -> list[Evidence]:
    return kernel_evidence(facts, CAUSE, "its ceiling")


def sentence(facts: Facts) -> str:
    lower = (
        "fp8 matmuls" if "fp8" in facts.ceilings.flops else "int8" if "int8" in facts.ceilings.flops else ""
    )
    advice = f"lower precision ({lower}), " if lower else ""
    return (
        f"{opening(facts, CAUSE)} are matmuls that already run at 75 % or more of this "
        f"{device_word(facts)}'s ceiling and "
        "no other "
        f"cause recovers 5 %, so only {advice}a smaller model or faster hardware makes it shorter."
    )
