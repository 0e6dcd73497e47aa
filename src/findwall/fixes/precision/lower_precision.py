"""Go below the format at hand where the hardware can: from fp64 or whole numbers to fp32, or int8 products.

What it does:
Matrices of whole numbers (counts, masks, labels) are multiplied number by number: no library has such a
product. `(a.float() @ b.float())` gives the same wherever no sum reaches 2**24, and `.double()` below 2**53.

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

from math import sqrt

import numpy as np

from findwall.facts.best_changes import at_math
from findwall.facts.number_formats import (
    FASTER_FORMAT_RATIO,
    in_fp64,
    in_whole_numbers,
    math_times,
    narrow_products,
)
from findwall.facts.user_lines import line_of
from findwall.fixes import (
    Claim,
    Facts,
    Figures,
    Fix,
    NoUse,
    Outcome,
    Use,
    at_most,
    cannot_tell,
    device_word,
    is_training,
    lines,
    no_use,
    of_class,
    time_of,
)
from findwall.fixes.less_work.removed_work import causes_of
from findwall.model.catalogue import MATRIX_CLASSES, WORTH_IT
from findwall.model.intervals import I64
from findwall.model.machine import SIXTEEN_BITS
from findwall.work.work_facts import WorkFacts

HALF_THE_BYTES = 0.5


def use(facts: Facts) -> Outcome:
    doubles = in_fp64(facts)
    if float(facts.own[doubles].sum()) > WORTH_IT * facts.step:
        return _from_fp64(facts, doubles)
    whole = in_whole_numbers(facts)
    if float(facts.own[whole].sum()) > WORTH_IT * facts.step:
        return _from_whole_numbers(facts, whole)
    times = math_times(facts)
    if not times:
        return no_use("lower-precision/none")
    first = next(iter(times))
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


def _from_whole_numbers(facts: Facts, whole: I64) -> Use:
    """As floats they are multiplied by a library's product."""
    figures: Figures = {"spent_ms": time_of(facts, whole), "device_word": device_word(facts)}
    return Use(
        Claim("lower-precision/from-whole", figures, places=lines(line_of(facts, _longest(facts, whole)))),
        at_math(facts, whole, "fp32", HALF_THE_BYTES),
        causes_of(facts, whole, MOVES) or MOVES,
        uncurved=True,
        condition="sums-below-24-bits",
    )


def _from_fp64(facts: Facts, doubles: I64) -> Outcome:
    """Half the bytes; products as fast as the units for fp32 have them, or half as long at least."""
    flops = facts.ceilings.flops
    now = flops.get("fp64")
    faster = [name for name in ("fp32", "tf32", "bf16") if now and flops.get(name, 0.0) > now]
    figures: Figures = {
        "doubles_ms": time_of(facts, doubles),
        "device_word": device_word(facts),
        **{f"{name}_times": flops[name] / now for name in faster if now},
    }
    multiplies = of_class(facts, *MATRIX_CLASSES)[doubles]
    products, others = doubles[multiplies], doubles[~multiplies]
    half = at_most(facts, others, HALF_THE_BYTES)
    fastest = max(("fp32", "tf32"), key=lambda name: flops.get(name, 0.0))
    best = half + at_math(facts, products, fastest, HALF_THE_BYTES)
    # What is likely lies between both, in the logarithm.
    least = min((now or 0.0) / max(flops.get(fastest, 0.0), 1.0), HALF_THE_BYTES) or HALF_THE_BYTES
    return Use(
        Claim("lower-precision/from-fp64", figures, places=lines(line_of(facts, _longest(facts, doubles)))),
        best,
        causes_of(facts, doubles, MOVES) or MOVES,
        likely=lambda made: half + at_most(facts, products, sqrt(HALF_THE_BYTES * least)),
        may=(lambda made: best, lambda made: at_most(facts, doubles, HALF_THE_BYTES)),
        uncurved=True,
        condition="digits-not-needed",
    )


def _longest(facts: WorkFacts, atoms: I64) -> int:
    return facts.op_row(int(atoms[np.argmax(facts.atoms.own[atoms])]))


MOVES = (
    *("at-the-roof", "memory-roof", "fast-path-off"),
    *("slow-kernels", "unfused-pointwise", "dtype-casts", "layout-copies"),
)
FIX = Fix(MOVES, "changes-numerics", use)
