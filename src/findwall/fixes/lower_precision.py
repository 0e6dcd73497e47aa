"""Go below 16 bits where the hardware can: fp8 matmuls, int8 or 4-bit weights; from fp64 to fp32 first.

What it does:
At the roof only fewer bits or fewer FLOPs help. fp8 tensor cores (Ada, Hopper, Blackwell, MI300) do
twice the products of bf16; weights stored in 8 or 4 bits are read in half or a quarter of the time,
which is what a decoding step waits for. torchao and Transformer Engine provide both. A job in fp64 has
the most to gain: most GPUs multiply fp32 or, on the tensor cores, TF32 many times as fast.

When it does not help:
Matmuls are still far from the ceiling in the format they have, or they are not what fills the step.

Risk:
Accuracy: fp8 needs scaling by tensor or block, int8 and int4 need calibration. Check the model's
quality, not only its loss. Whoever chose fp64 may need its 16 digits: solvers, simulations, sums
with large cancellations. fp32 keeps 7, TF32 and bf16 3.
"""

from __future__ import annotations

from findwall.attribute.device_kind import device_word
from findwall.attribute.facts import Facts
from findwall.attribute.figures import a_step
from findwall.attribute.job import is_training
from findwall.attribute.number_formats import FASTER_FORMAT_RATIO, SIXTEEN_BITS, math_times
from findwall.fixes import CannotTell, Fix, NoUse, Outcome, use
from findwall.model.catalogue import ROOFS

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
    narrow = next(
        (
            name
            for name in ("fp8", "int8")
            if flops.get(name, 0.0) > FASTER_FORMAT_RATIO * flops.get(first, 0.0)
        ),
        None,
    )
    if narrow is None:
        return NoUse(f"{facts.ceilings.device} is no faster below 16 bits")
    way = (
        "torchao.float8 or Transformer Engine"
        if is_training(facts)
        else "torchao: quantised weights, fp8 matmuls"
    )
    return use(
        f"Use {narrow} ({way}): this {device_word(facts)} does {flops[narrow] / flops[first]:.1f} times as "
        "many "
        f"products in it as in {first}, and {first} matmuls take {a_step(times[first])}. Weights of 8 or 4 "
        "bits are also read faster.",
        moves=ROOFS,
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
