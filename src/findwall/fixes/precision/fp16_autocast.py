"""Run the forward pass under autocast in float16, with a GradScaler, where the GPU has no bfloat16.

What it does:
GPUs before Ampere (V100, T4, RTX 20) have tensor cores for float16 alone: eight times the products of
their fp32 units. Inside autocast matmuls and convolutions take float16 inputs; reductions, norms and losses
stay in fp32. Small gradients would become zero in float16, so the loss is scaled up before the backward pass
and the gradients back down before the update:

    scaler = torch.amp.GradScaler("cuda")
    with torch.autocast("cuda", dtype=torch.float16):
        loss = loss_of(model(x))
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()

When it does not help:
The GPU has bfloat16: use that, it needs no scaler. The matmuls already run in 16 bits, or the step waits for
data, the host or communication.

Risk:
float16 overflows beyond 65504: the scaler then leaves out an update and lowers its scale, and it looks at
all gradients before each step. Models trained in bfloat16 may not fit float16's range. Clip gradients only
after `scaler.unscale_(optimizer)`.
"""

from __future__ import annotations

from findwall.facts.op_shapes import transforms_images
from findwall.facts.rewritten_step import (
    autocast_at_best,
    autocast_likely,
    sixteen_bit_format,
    turns_images_back,
    wide_matmuls,
)
from findwall.fixes import Claim, Facts, Fix, Outcome, Use, is_training, unless
from findwall.fixes.precision.precision_refusals import not_narrowed


def use(facts: Facts) -> Outcome:
    figures = {
        "wide_ms": wide_matmuls(facts),
        "trains": is_training(facts),
        "turns_images_back": turns_images_back(facts) and not transforms_images(facts),
    }
    return Use(
        Claim("fp16-autocast/matmuls", figures),
        autocast_at_best(facts, "fp16"),
        likely=lambda made: autocast_likely(facts, "fp16", made),
    )


FIX = Fix(
    ("fast-path-off", "slow-kernels", "at-the-roof", "memory-roof"),
    "changes-numerics",
    use,
    (
        unless("fp16-autocast/none-wide", lambda facts: wide_matmuls(facts) <= 0),
        unless("fp16-autocast/has-bf16", lambda facts: sixteen_bit_format(facts) == "bf16", obvious=True),
        not_narrowed,
    ),
    plainer=("tf32",),
)
