"""Matmuls run at the ceiling: the happy wall.

What it finds:
Matmuls, convolutions and attention that reach 75 % or more of the FLOP/s this GPU achieves in their
number format.

Why it costs:
It costs what the arithmetic costs. There is no waste here to remove; only less or cheaper arithmetic
makes the step shorter.

How it is told apart:
By floor over time: FLOPs at the achievable ceiling (measured where a measurement is given, else a
table's) against the kernel's duration. It is the verdict only where less than 10 % of the step has no known
cause, and no other cause recovers 5 % of it, or all that do recover less than a tenth of the time up here.

What helps:
Less or cheaper arithmetic: fp8 (on Hopper and later), lower-precision (int8 for inference; fp32 and TF32
where fp64 is in use and its digits are not needed), bf16-autocast where TF32 is in use (fp16-autocast on
older GPUs), smaller-model, custom-kernels for the last tenths, better-hardware. Where much of the step is
forward work without gradients, evaluate-less-often before all of these.
"""

from __future__ import annotations

from findwall.attribute.budget import ROOF_SHARE
from findwall.attribute.carriers import carriers, kernel_evidence, named_work
from findwall.attribute.device_kind import device_word
from findwall.attribute.facts import Facts
from findwall.attribute.figures import no_other, opening
from findwall.attribute.number_formats import FASTER_FORMAT_RATIO
from findwall.attribute.without_gradients import told_without_gradients
from findwall.model.diagnosis import Evidence
from findwall.units import format_share

CAUSE = "at-the-roof"
FORMATS_NAMED = 2  # in one sentence
# The next formats down from each, and what is said of them.
NARROWER = {
    "fp64": ("fp32", "tf32", "bf16", "fp16"),
    "fp32": ("tf32", "bf16", "fp16"),
    "tf32": ("bf16", "fp16"),
    "fp16": ("fp8", "int8"),
    "bf16": ("fp8", "int8"),
}
SPOKEN_FORMATS = {"tf32": "TF32", "fp8": "fp8 matmuls"}


def evidence(facts: Facts) -> list[Evidence]:
    return kernel_evidence(facts, CAUSE, "its ceiling")


def sentence(facts: Facts) -> str:
    lower = _lower(facts)
    beside = told_without_gradients(facts)
    advice = f"lower precision ({lower}), " if lower else ""
    return (
        f"{opening(facts, CAUSE)} goes to {named_work(facts, CAUSE)} that already run at "
        f"{format_share(ROOF_SHARE)} or more of this {device_word(facts)}'s ceiling, and "
        f"{no_other(facts)}.{beside} Only {advice}a smaller model or faster hardware shortens "
        f"{'the rest' if beside else 'it'}."
    )


def _lower(facts: Facts) -> str:
    """The format to go to from the one that the longest of these kernels has; empty if none is faster."""
    now = next((facts.math(carrier.atom) for carrier in carriers(facts, CAUSE)), None)
    flops = facts.ceilings.flops
    if now is None or now not in flops:
        return ""
    faster = [
        name for name in NARROWER.get(now, ()) if flops.get(name, 0.0) > FASTER_FORMAT_RATIO * flops[now]
    ]
    if not faster:
        return ""
    if now == "fp64":  # somebody chose it: solvers and simulations may need it
        named = " or ".join(SPOKEN_FORMATS.get(name, name) for name in faster[:FORMATS_NAMED])
        return f"{named} instead of fp64, if its digits are not needed"
    return SPOKEN_FORMATS.get(faster[0], faster[0])
