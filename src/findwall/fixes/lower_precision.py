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

from findwall.attribute.device_kind import device_word
from findwall.attribute.device_time import time_of
from findwall.attribute.facts import Facts
from findwall.attribute.figures import a_step
from findwall.attribute.job import is_training
from findwall.attribute.number_formats import FASTER_FORMAT_RATIO, SIXTEEN_BITS, math_times, narrow_products
from findwall.fixes import CannotTell, Fix, NoUse, Outcome, use

MOVES = ("at-the-roof", "memory-roof", "fast-path-off")


def advise(facts: Facts) -> Outcome:
    times = math_times(facts)
    if not times:
        return NoUse("there are no matmuls in this step")
    first = next(iter(times))
    if first == "fp64":
        return _from_fp64(facts, times[first])
    if first not in SIXTEEN_BITS:
        return NoUse(f"the matmuls run in {first}; move to 16 bits first")
    flops = facts.ceilings.flops
    if not flops:
        return CannotTell(f"what this {device_word(facts)} can do below 16 bits is not known")
    if flops.get("fp8", 0.0) > FASTER_FORMAT_RATIO * flops.get(first, 0.0):
        return NoUse("this device has fp8 for products, which comes before other narrow formats")
    if is_training(facts):
        return NoUse(f"{facts.ceilings.device} trains in nothing narrower than 16 bits")
    if flops.get("int8", 0.0) <= FASTER_FORMAT_RATIO * flops.get(first, 0.0):
        return NoUse(f"{facts.ceilings.device} is no faster below 16 bits")
    compute = narrow_products(facts, "compute")
    if time_of(facts, compute) <= 0:
        return NoUse("no 16-bit matmul is held up by arithmetic")
    return use(
        f"Quantise activations and weights to int8 (torchao, TensorRT): this {device_word(facts)} does "
        f"{flops['int8'] / flops[first]:.1f} times as many products in it as in {first}, and such matmuls "
        f"take {a_step(time_of(facts, compute))}.",
        moves=("at-the-roof",),
    )


def _from_fp64(facts: Facts, spent: float) -> Outcome:
    flops, device = facts.ceilings.flops, device_word(facts)
    now = flops.get("fp64")
    if not now:
        return CannotTell(f"how fast this {device} multiplies fp64 numbers is not known")
    faster = [name for name in ("fp32", "tf32", "bf16") if flops.get(name, 0.0) > FASTER_FORMAT_RATIO * now]
    if not faster:
        return NoUse(f"{facts.ceilings.device} is no faster in narrower formats than in fp64")
    rates = ", ".join(f"{flops[name] / now:.1f} times as fast in {name}" for name in faster)
    switch = " and `torch.set_float32_matmul_precision('high')`" if "tf32" in faster else ""
    return use(
        f"Convert model and data to fp32 (`.float()`){switch}: fp64 matmuls take {a_step(spent)}, and this "
        f"{device} multiplies {rates}. Do so only if fp64's 16 digits are not needed: fp32 keeps 7."
    )


FIX = Fix(MOVES, "changes-numerics", advise)
