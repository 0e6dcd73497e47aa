"""Chains of pointwise kernels read and write whole tensors that a fused kernel would keep in registers.

What it finds:
Pointwise kernels (and reductions inside such chains): activations, additions, masks, dropout, residuals,
hand-written norms and rotary embeddings.

Why it costs:
A pointwise kernel does an operation or two for every number it loads: it is over when the bytes have
moved. A chain of n of them moves the same tensor n times. Fused, it is read once and written once.

How it is told apart:
By class and by following tensors from op to op: what one op of a chain writes and the next one reads
need not be moved at all, and that is the recoverable part. Casts alone are dtype-casts, plain copies
layout-copies, optimizer arithmetic unfused-optimizer. Kernels that move only what they must are at the
memory-roof.

What helps:
torch-compile (fuses chains by itself), builtin-ops (layer_norm, rms_norm, gelu, cross_entropy instead of
formulas written out), bf16-autocast (half the bytes), channels-last where convolutions stand between. CUDA
graphs do not help: they save launches, not bytes.
"""

from __future__ import annotations

from findwall.attribute.carriers import carriers, kernel_evidence, ops_named
from findwall.attribute.device_kind import pieces
from findwall.attribute.facts import Facts
from findwall.attribute.figures import gain, opening
from findwall.model.diagnosis import Evidence

CAUSE = "unfused-pointwise"


def evidence(facts: Facts) -> list[Evidence]:
    return kernel_evidence(facts, CAUSE)


def sentence(facts: Facts) -> str:
    calls = len(facts.atoms.of(CAUSE)) / facts.steps.count
    names = ops_named(facts, CAUSE)
    which = f", most of it in {names}," if names else ""
    return (
        f"{opening(facts, CAUSE)} go to {calls:,.0f} pointwise {pieces(facts)}{which} because each of them "
        "moves "
        "whole tensors "
        f"through memory; {_advice(facts)}: {gain(facts, CAUSE)}."
    )


def _advice(facts: Facts) -> str:
    compiled = any(carrier.kernel.startswith("triton_") for carrier in carriers(facts, CAUSE))
    if compiled:
        return "torch.compile runs already: look for graph breaks that cut these chains"
    return "torch.compile fuses such chains into one kernel"
