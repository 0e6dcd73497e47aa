"""Run the forward pass under autocast in bfloat16: matmuls on the tensor cores, activations in half
the bytes.

What it does:
Inside `torch.autocast("cuda", dtype=torch.bfloat16)` matmuls, convolutions and attention take
16-bit inputs; reductions, norms and losses stay in fp32. bfloat16 has fp32's range, so no loss
scaling is needed. Tensor cores are several times faster than the fp32 units and twice as fast as
TF32, and activations between matmuls take half the memory and half the bandwidth.

When it does not help:
The matmuls already run in 16 bits. Or the step waits for data, the host or communication: then the
device only waits longer. Chains of pointwise kernels on fp32 data that no matmul feeds stay fp32
under autocast; such data must be made bfloat16 itself.

Risk:
8 bits of mantissa instead of 24 in what autocast covers. Most training is indifferent; check the
loss curve. On GPUs without bfloat16 (V100, T4) it is float16 with a GradScaler.
"""

from __future__ import annotations

import numpy as np

from findwall.attribute.device_kind import on_cores
from findwall.attribute.device_time import gains, of_class, time_of
from findwall.attribute.facts import Facts
from findwall.attribute.figures import a_step
from findwall.attribute.job import is_training
from findwall.attribute.number_formats import math_times
from findwall.attribute.workmodel.arguments import Arguments
from findwall.model.advice import Advice, cannot_tell, no_use, use
from findwall.model.catalogue import MATRIX_CLASSES
from findwall.model.intervals import I64
from findwall.model.machine import MATH_TYPES
from findwall.units import ms

MOVES = ("fast-path-off", "slow-kernels", "unfused-pointwise", "unfused-attention", "at-the-roof")
SAFETY = "changes-numerics"
WIDE = ("fp32", "tf32")  # autocast leaves fp64 as it is
LEAST = 0.1  # of the time in matmuls: less in fp32 than this is not worth a change of type


def advise(facts: Facts) -> Advice:
    times = math_times(facts)
    wide = sum(times.get(name, 0.0) for name in WIDE)
    if wide > LEAST * sum(times.values()):
        return _for_matmuls(facts, wide)
    chain = _wide_pointwise(facts)
    if not times and time_of(facts, chain) > 0:
        return use(
            f"Keep the data in bfloat16 (`x.to(torch.bfloat16)`): {a_step(time_of(facts, chain))} of "
            f"pointwise "
            "kernels on fp32 data would move half the bytes.",
            min(gains(facts, chain), 0.5 * time_of(facts, chain)),
            ("unfused-pointwise",),
        )
    if not times:
        known = bool(facts.kernels.modelled.any())
        return no_use("there is no matmul in this step") if known else cannot_tell(_MISSING)
    if next(iter(times)) == "fp64":
        return no_use("autocast leaves the fp64 matmuls as they are: fp32 comes first")
    return no_use(f"the matmuls already run in {next(iter(times))}")


_MISSING = "what 16 bits would give is not known: the trace has no shapes (record_shapes=True)"


def _for_matmuls(facts: Facts, wide: float) -> Advice:
    flops = facts.ceilings.flops
    narrow = next((name for name in ("bf16", "fp16") if name in flops), None)
    if narrow is None and on_cores(facts):
        return cannot_tell("how fast this CPU multiplies 16-bit numbers is unknown: `findwall ceilings`")
    if not flops:
        return cannot_tell("this GPU is not in the table, so it is not known how fast its 16-bit matmuls are")
    if narrow is None or flops[narrow] <= flops.get("fp32", 0.0):
        return no_use(f"{facts.ceilings.device} multiplies 16-bit numbers no faster")
    gain = _gain(facts, flops[narrow])
    if gain is None:
        return cannot_tell(_MISSING)
    training = is_training(facts)
    dtype = "bfloat16" if narrow == "bf16" else "float16"
    scaler = (
        "no GradScaler is needed" if narrow == "bf16" else "with a GradScaler, as this GPU has no bfloat16"
    )
    return use(
        f"Run the {'forward pass and loss' if training else 'model'} under "
        f"`torch.autocast('{'cpu' if on_cores(facts) else 'cuda'}', dtype=torch.{dtype})`: {a_step(wide)} of "
        f"matmuls run in {'fp32' if on_cores(facts) else 'fp32 or TF32'} now"
        f"{'; ' + scaler if training else ''}.",
        gain,
    )


def _gain(facts: Facts, ceiling: float) -> float | None:
    """Matmuls at the 16-bit ceiling, and half the bytes of pointwise work and scores on fp32 data."""
    index = facts.atoms.index
    multiplies = of_class(facts, *MATRIX_CLASSES)
    formats = np.isin(facts.kernels.math_index[index], [MATH_TYPES.index(name) for name in WIDE])
    matmuls = np.flatnonzero(multiplies & formats)
    # Without shapes the floor that the kernel's name told stands in for the FLOPs.
    least = np.fmin(
        1e9 * facts.kernels.flops[index[matmuls]] / ceiling, facts.kernels.better_floor[index[matmuls]]
    )
    share = facts.own[matmuls] / np.maximum(facts.kernels.duration[index[matmuls]], 1)
    left = facts.own[matmuls] - least * share
    if len(left) and np.isnan(left).all():
        return None
    scores = facts.atoms_of("unfused-attention")
    moved = np.concatenate([_wide_pointwise(facts), scores[~multiplies[scores]]])
    halved = min(gains(facts, moved), 0.5 * time_of(facts, moved))
    return ms(float(np.nansum(np.maximum(left, 0.0)))) + halved


def _wide_pointwise(facts: Facts) -> I64:
    """Atoms of unfused chains whose op's first tensor is fp32."""
    atoms = facts.atoms_of("unfused-pointwise")
    inputs = facts.timeline.events.inputs[np.maximum(facts.kernels.op[facts.atoms.index[atoms]], 0)]
    distinct, inverse = np.unique(inputs, return_inverse=True)
    is_wide = np.array([_is_wide(facts, at) for at in distinct.tolist()], bool)
    found: I64 = atoms[is_wide[inverse.reshape(-1)]]
    return found


def _is_wide(facts: Facts, inputs_id: int) -> bool:
    inputs = facts.timeline.details.inputs_of(inputs_id)
    tensors = Arguments(inputs).tensors() if inputs is not None else []
    return bool(tensors) and tensors[0].dtype.lower() == "float"
