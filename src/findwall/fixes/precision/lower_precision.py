"""Go below the format at hand where the hardware can: from fp64 to fp32, or int8 products for inference.

What it does:
At the roof only fewer bits or fewer FLOPs help. A job in fp64 has the most to gain: most GPUs multiply fp32
or, on the tensor cores, TF32 many times as fast. GPUs that have int8 but no fp8 (A100, T4) do twice the
products of 16 bits in it, for inference (torchao's int8 activations and weights, TensorRT).

When it does not help:
Matmuls are still far from the ceiling in the format they have, or they are not what fills the step. Where the
GPU has fp8 that is the format for products (fp8), and where memory is the roof the weights are what should be
narrower (int8-weights).

Risk:
Accuracy: int8 needs calibration; check the model's quality. Whoever chose fp64 may need its 16 digits:
solvers, simulations, sums with large cancellations. fp32 keeps 7, TF32 and bf16 3.
"""

from __future__ import annotations

from findwall.facts.number_formats import FASTER_FORMAT_RATIO, SIXTEEN_BITS, math_times, narrow_products
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
    no_use,
    time_of,
)
from findwall.work.work_facts import WorkFacts


def use(facts: Facts) -> Outcome:
    times = math_times(facts)
    if not times:
        return no_use("lower-precision/none")
    first = next(iter(times))
    if first == "fp64":
        return _from_fp64(facts, times[first])
    if first not in SIXTEEN_BITS:
        return no_use("lower-precision/wide", format=first)
    flops, device = facts.ceilings.flops, {"device": facts.ceilings.device}
    if not flops:
        return cannot_tell("matmuls/unknown-below-16", device_word=device_word(facts))
    if flops.get("fp8", 0.0) > FASTER_FORMAT_RATIO * flops.get(first, 0.0):
        return no_use("lower-precision/has-fp8")
    if is_training(facts):
        return NoUse(Claim("lower-precision/trains", names=device))
    if flops.get("int8", 0.0) <= FASTER_FORMAT_RATIO * flops.get(first, 0.0):
        return NoUse(Claim("lower-precision/no-faster", names=device))
    compute = narrow_products(facts, "compute")
    if time_of(facts, compute) <= 0:
        return no_use("matmuls/none-at-arithmetic")
    figures: Figures = {
        "device_word": device_word(facts),
        "times_as_many": flops["int8"] / flops[first],
        "format": first,
        "matmuls_ms": time_of(facts, compute),
    }
    return Use(Claim("lower-precision/int8", figures), moves=("at-the-roof",))


def _from_fp64(facts: WorkFacts, spent: float) -> Outcome:
    flops = facts.ceilings.flops
    now = flops.get("fp64")
    if not now:
        return cannot_tell("lower-precision/unknown-fp64", device_word=device_word(facts))
    faster = [name for name in ("fp32", "tf32", "bf16") if flops.get(name, 0.0) > FASTER_FORMAT_RATIO * now]
    if not faster:
        return NoUse(Claim("lower-precision/fp64-no-slower", names={"device": facts.ceilings.device}))
    figures: Figures = {
        "matmuls_ms": spent,
        "device_word": device_word(facts),
        **{f"{name}_times": flops[name] / now for name in faster},
    }
    return Use(Claim("lower-precision/from-fp64", figures), condition="digits-not-needed")


FIX = Fix(("at-the-roof", "memory-roof", "fast-path-off"), "changes-numerics", use)
