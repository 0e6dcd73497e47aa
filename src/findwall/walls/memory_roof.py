"""Kernels already move only what they must: the step stands at the memory's speed.

What it finds:
Norms, softmax, reductions, fused optimizers, memsets, and matmuls with so few rows that reading the
weights is all their time (decoding one token at a time).

Why it costs:
Bytes over bytes per second. No fusion makes a single pass over a tensor shorter.

How it is told apart:
By regime: bytes at the achievable bandwidth exceed FLOPs at the achievable rate, and the kernel reaches at
least 40 % of that bandwidth; one that does not is slow-kernels, or launch-bound where it is too small. It is
the verdict only where no cause recovers 5 % of the step and less than 10 % of it is of unknown cause; chains
that could be fused are unfused-pointwise.

What helps:
Fewer bytes: lower-precision (16-bit activations, fp8 or int8 weights for decoding), larger-batch (the
weights are read once for more rows), smaller-model, custom-kernels that keep more on chip, better-hardware
(bandwidth, not FLOP/s).
"""

from __future__ import annotations

from findwall.attribute.carriers import carriers, kernel_evidence
from findwall.attribute.device_kind import device_word, pieces
from findwall.attribute.facts import Facts
from findwall.attribute.figures import opening
from findwall.model.diagnosis import Evidence

CAUSE = "memory-roof"


def evidence(facts: Facts) -> list[Evidence]:
    return kernel_evidence(facts, CAUSE, "the memory ceiling")


def sentence(facts: Facts) -> str:
    found = carriers(facts, CAUSE)
    thin = bool(found) and facts.kernel_class(found[0].atom) == "matmul"
    advice = "a larger batch, fp8 or int8 weights" if thin else "16-bit or smaller tensors"
    why = (
        "matmuls that mostly read their weights"
        if thin
        else f"{pieces(facts)} that move only the bytes they must"
    )
    return (
        f"{opening(facts, CAUSE)} are {why} and no other cause recovers 5 %, so only fewer bytes "
        f"({advice}) or a {device_word(facts)} "
        f"with more bandwidth makes it shorter."
    )
