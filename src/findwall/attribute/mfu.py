"""Model and hardware FLOPs utilisation, from the work model, against a stated peak."""

from __future__ import annotations

import msgspec
import numpy as np

from findwall.attribute.facts import Facts
from findwall.model.catalogue import KERNEL_CLASSES, MATRIX_CLASSES, SMALL_PART
from findwall.model.machine import MATH_TYPES
from findwall.units import NS_PER_S, format_share


class Utilisation(msgspec.Struct, frozen=True):
    """None where it cannot be told; `source` says against what, or why not."""

    mfu: float | None
    hfu: float | None
    peak: float | None  # FLOP/s
    flops: float | None  # a step, without recomputation
    source: str


def utilisation(facts: Facts) -> Utilisation:
    """FLOPs of matmuls, convolutions and attention in one step over the step's time and the peak."""
    kernels, index = facts.kernels, facts.atoms.index
    matrix = np.isin(kernels.class_index[index], [KERNEL_CLASSES.index(name) for name in MATRIX_CLASSES])
    if not matrix.any():
        return Utilisation(None, None, None, None, "no matmul, convolution or attention in the step")
    flops = kernels.flops[index]
    blind = float(facts.own[matrix & np.isnan(flops)].sum()) / max(float(facts.own[matrix].sum()), 1.0)
    if blind > SMALL_PART:
        why = f"{format_share(blind)} of the matrix time has no shapes to count FLOPs from"
        return Utilisation(None, None, None, None, why)
    counted = matrix & ~np.isnan(flops)
    weighed = flops * facts.weight / facts.steps.count
    hardware = float(weighed[counted].sum())
    model = float(weighed[counted & ~kernels.recompute[index]].sum())
    peak, named = _peak(facts, counted)
    if peak is None:
        return Utilisation(None, None, None, model, "no peak is known for this device")
    seconds = facts.step / NS_PER_S
    mfu, hfu = model / seconds / peak, hardware / seconds / peak
    if hfu > 1.0:
        return Utilisation(None, None, peak, model, f"refused: it comes out above 100 % of the {named} peak")
    return Utilisation(
        mfu, hfu, peak, model, f"work model over the recorded shapes, against the dense {named} peak"
    )


def _peak(facts: Facts, counted: np.ndarray) -> tuple[float | None, str]:
    """The spec peak of 16-bit matrix math, or of the narrower type that does most of the FLOPs."""
    spec = facts.ceilings.spec_flops
    maths = facts.kernels.math_index[facts.atoms.index][counted]
    flops = facts.kernels.flops[facts.atoms.index][counted]
    totals = np.bincount(np.maximum(maths, 0), flops, minlength=len(MATH_TYPES))
    most = MATH_TYPES[int(np.argmax(totals))]
    named = most if most in ("fp8", "int8", "fp4", "fp64") else "bf16" if "bf16" in spec else "fp16"
    return spec.get(named), named
