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
older GPUs), lookup-not-onehot where one-hot rows are multiplied with, product-order where three matrices are
multiplied the long way, separable-filter where a fixed filter has a large window, smaller-model,
custom-kernels for the last tenths, better-hardware. Where much of the step is forward work without gradients,
evaluate-less-often before all of these.
On a CPU large tensors may go back to the system and come again: keep-freed-memory.
"""

from __future__ import annotations

from findwall.causes import Cause, Claim, Facts, Figure, carriers
from findwall.facts.cause_kernels import work_classes
from findwall.facts.figures import amounts, no_other
from findwall.facts.gradient_free_work import beside_gradients
from findwall.facts.number_formats import FASTER_FORMAT_RATIO
from findwall.model.catalogue import NEAR

NAME = "at-the-roof"
FORMATS_NAMED = 2  # in one sentence
# The next formats down from each.
NARROWER = {
    "fp64": ("fp32", "tf32", "bf16", "fp16"),
    "fp32": ("tf32", "bf16", "fp16"),
    "tf32": ("bf16", "fp16"),
    "fp16": ("fp8", "int8"),
    "bf16": ("fp8", "int8"),
}


def says(facts: Facts) -> Claim:
    figures: dict[str, Figure] = {
        **amounts(facts, NAME),
        **work_classes(facts, NAME),
        "roof_share": NEAR,
        **_lower(facts),
    }
    return Claim("at-the-roof/fills", figures, parts=[no_other(facts), *beside_gradients(facts)])


def _lower(facts: Facts) -> dict[str, Figure]:
    """The formats to go to from the one that the longest of these kernels has; empty if none is faster."""
    now = next((facts.math(carrier.atom) for carrier in carriers(facts, NAME)), None)
    flops = facts.ceilings.flops
    if now is None or now not in flops:
        return {}
    faster = [
        name for name in NARROWER.get(now, ()) if flops.get(name, 0.0) > FASTER_FORMAT_RATIO * flops[now]
    ]
    # Somebody chose fp64: solvers and simulations may need it, so more than one way is named.
    most = FORMATS_NAMED if now == "fp64" else 1
    return {"now": now, **{f"lower{at}": name for at, name in enumerate(faster[:most], 1)}}


CAUSE = Cause(NAME, says, reached="ceiling")
