"""Tensors are converted from one number format to another and back.

What it finds:
Copy kernels whose source and destination differ in type: autocast's casts of weights and activations,
.float() before a loss or a norm, .to(dtype) in a loop.

Why it costs:
A cast does no arithmetic; it reads the tensor in one format and writes it in another. Logits cast to
fp32 for a loss are often the largest tensor of the model.

How it is told apart:
By the types that the copy's op records. Where a cast sits in a chain of pointwise kernels a fused
kernel would do it on the way, and that part is recoverable. A copy that keeps the type is
layout-copies.

What helps:
fewer-casts: keep weights in bf16 where that is acceptable, keep activations in one format, let the loss take
16-bit logits; torch-compile fuses casts into their neighbours (as does reduce-overhead, the same with graphs
around it), fused-loss those of a large vocabulary. One-hot rows that are cast to be multiplied with need no
cast but a lookup: lookup-not-onehot. Comparisons of all pairs that are cast to be added up need no pairs:
builtin-ops. Inference needs its weights converted once: cast-once. Casts to fp64 are seldom meant:
lower-precision. Weights that are scaled for each sample and cast then need no more than one:
scale-activations. A CPU that has no arithmetic in 16 bits needs none at all: full-precision.
"""

from __future__ import annotations

from findwall.causes import Cause, Claim, Evidence, Facts, Told, carriers
from findwall.facts.cause_kernels import Carrier, as_evidence
from findwall.facts.op_shapes import shape, short_type, tensors_of
from findwall.step.step_facts import StepFacts

NAME = "dtype-casts"


def shows(facts: Facts) -> list[Evidence]:
    return [
        as_evidence(facts, one, "evidence/kernel", {"calls": one.calls, "ms": one.ms}, _cast(facts, one))
        for one in carriers(facts, NAME)
    ]


def says(facts: Facts) -> Told:
    casts = [cast for one in carriers(facts, NAME) for cast in _cast(facts, one)]
    compiler = [] if "torch-compile" in facts.refused else [Claim("advise/torch-compile/casts")]
    return Told(Claim("dtype-casts/converts", parts=casts[:1]), Claim("advise/fewer-casts", parts=compiler))


def _cast(facts: StepFacts, carrier: Carrier) -> list[Claim]:
    """From what to what; nothing where the types were not recorded."""
    tensors = tensors_of(facts, carrier.op_row)
    if len(tensors) < 2 or not (carrier.op or "").endswith("copy_"):
        return []
    target, source = tensors[0], tensors[1]  # argument 0 of copy_ is the destination
    types = {"from_type": short_type(source.dtype), "to_type": short_type(target.dtype)}
    return [Claim("cast", names={**types, "shapes": shape(target)})]


CAUSE = Cause(NAME, says, shows, kernels=False)
