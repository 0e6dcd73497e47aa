"""Run the forward pass under autocast in bfloat16: matmuls on the tensor cores, activations in half
the bytes.

What it does:
Inside `torch.autocast("cuda", dtype=torch.bfloat16)` matmuls, convolutions and attention take
16-bit inputs; reductions, norms and losses stay in fp32. bfloat16 has fp32's range, so no loss
scaling is needed. Tensor cores are several times faster than the fp32 units and twice as fast as
TF32, and activations between matmuls take half the memory and half the bandwidth.

When it does not help:
The matmuls already run in 16 bits. Or the step waits for data, the host or communication: then the
device only waits longer. Convolutions that read the default layout (NCHW) lose what they gain to
reordering 16-bit images: use channels-last with it. Layer norms, losses, powers and embeddings
stay in fp32 under autocast and get no shorter. Chains of pointwise kernels on fp32 data that no matmul
feeds stay fp32 as well; such data must be made bfloat16 itself.

Risk:
8 bits of mantissa instead of 24 in what autocast covers. Most training is indifferent; check the
loss curve. GPUs without bfloat16 (V100, T4) need float16 and a scaler: fp16-autocast. Code that goes on with
what layers give in training, numpy first of all, may know no bfloat16: `.float()` before it.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from findwall.apply.applying import Effect
from findwall.facts.number_formats import SIXTEEN_BIT_BYTES_SHARE, math_times, on_wide_data
from findwall.facts.op_shapes import transforms_images
from findwall.facts.rewritten_step import (
    autocast_at_best,
    autocast_likely,
    no_shapes,
    sixteen_bit_format,
    turns_images_back,
    wide_matmuls,
)
from findwall.fixes import (
    CannotTell,
    Claim,
    Facts,
    Fix,
    NoUse,
    Outcome,
    Use,
    at_most,
    is_training,
    no_use,
    on_cores,
    time_of,
)
from findwall.fixes.precision.autocast_patch import autocast_lines
from findwall.fixes.precision.autocast_seen import narrow_seen
from findwall.fixes.precision.autocasting import autocast_models
from findwall.fixes.precision.precision_refusals import not_narrowed

MOVES = (
    "fast-path-off",
    "slow-kernels",
    "unfused-pointwise",
    "unfused-attention",
    "at-the-roof",
    "memory-roof",
)


def use(facts: Facts) -> Outcome:
    times = math_times(facts)
    if (wide := wide_matmuls(facts)) > 0:
        return _for_matmuls(facts, wide)
    chain = on_wide_data(facts, facts.atoms_of("unfused-pointwise"))
    if not times and time_of(facts, chain) > 0:
        return Use(
            Claim("bf16-autocast/data", {"pointwise_ms": time_of(facts, chain)}),
            at_most(facts, chain, SIXTEEN_BIT_BYTES_SHARE),
            ("unfused-pointwise",),
        )
    if not times:
        known = bool(facts.kernels.modelled.any())
        return no_use("matmuls/none") if known else CannotTell(no_shapes(facts))
    if next(iter(times)) == "fp64":
        return no_use("bf16-autocast/fp64")
    return no_use("matmuls/already-in", format=next(iter(times)))


def _for_matmuls(facts: Facts, wide: float) -> Outcome:
    if sixteen_bit_format(facts) == "fp16":
        return NoUse(Claim("bf16-autocast/fp16-only", names={"device": facts.ceilings.device}))
    if (refused := not_narrowed(facts)) is not None:
        return refused
    figures = {
        "wide_ms": wide,
        "trains": is_training(facts),
        "on_cores": on_cores(facts),
        "fewer_bytes": facts.spent_ms("unfused-pointwise") > wide,
        "turns_images_back": turns_images_back(facts) and not transforms_images(facts),
    }
    return Use(
        Claim("bf16-autocast/matmuls", figures),
        autocast_at_best(facts, "bf16"),
        likely=lambda made: autocast_likely(facts, "bf16", made),
    )


def apply(torch: Any, effect: Effect) -> None:
    autocast_models(torch, effect, torch.bfloat16)


FIX = Fix(
    MOVES,
    "changes-numerics",
    use,
    tried=2,
    plainer=("tf32",),
    apply=apply,
    live=apply,
    shows=narrow_seen,
    patch=partial(autocast_lines, dtype="bfloat16", arguments={"bf16": "True"}, precision="bf16"),
)
