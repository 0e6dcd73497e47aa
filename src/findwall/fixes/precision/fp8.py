"""Multiply in fp8 where arithmetic is the roof and the GPU has it.

What it does:
The tensor cores of Ada, Hopper, Blackwell and MI300 do about twice the products in fp8 as in bf16. At the
roof of arithmetic that is what is left. Weights and activations are scaled, by tensor, row or block, and
multiplied in fp8; sums, norms and the optimizer stay as they are. torchao (`convert_to_float8_training`) and
Transformer Engine do it for training, torchao for inference; both want torch.compile, which
folds the scaling into other kernels.

When it does not help:
Matmuls are far from the ceiling in the format they have: mend that first. Small matmuls (below some 4096 on a
side) lose to the scaling what they gain. Where memory is the roof, as in decoding, narrower weights help, not
faster products: int8-weights.

Risk:
Accuracy: 3 or 2 bits of mantissa. Keep the first and last layers in bf16, and check the model's quality, not
only its loss.
"""

from __future__ import annotations

import numpy as np

from findwall.facts.best_changes import at_math
from findwall.facts.number_formats import FASTER_FORMAT_RATIO, narrow_products
from findwall.fixes import (
    Claim,
    Facts,
    Figures,
    Fix,
    NoUse,
    Outcome,
    Use,
    cannot_tell,
    device_word,
    is_training,
    not_here,
    time_of,
)


def use(facts: Facts) -> Outcome:
    compute = narrow_products(facts, "compute")
    if time_of(facts, compute) <= 0:
        return not_here(facts, "matmuls/none-at-arithmetic")
    flops = facts.ceilings.flops
    if not flops:
        return cannot_tell("matmuls/unknown-below-16", device_word=device_word(facts))
    first = facts.math(int(compute[np.argmax(facts.own[compute])])) or ""
    if flops.get("fp8", 0.0) <= FASTER_FORMAT_RATIO * flops.get(first, 0.0):
        return NoUse(Claim("fp8/no-faster", names={"device": facts.ceilings.device}))
    figures: Figures = {
        "trains": is_training(facts),
        "device_word": device_word(facts),
        "times_as_many": flops["fp8"] / flops[first],
        "format": first,
        "matmuls_ms": time_of(facts, compute),
    }
    return Use(Claim("fp8/multiply", figures), at_math(facts, compute, "fp8"))


FIX = Fix(("at-the-roof",), "changes-numerics", use)
