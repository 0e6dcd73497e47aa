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
fewer-casts: keep weights in bf16 where that is acceptable, keep activations in one format, let the loss
take 16-bit logits; torch-compile fuses casts into their neighbours (as does reduce-overhead, the same with
graphs around it), fused-loss those of a large vocabulary.
"""

from __future__ import annotations

from findwall.attribute.carriers import Carrier, as_evidence, carriers, name_carrier
from findwall.attribute.facts import Facts
from findwall.attribute.figures import calls_text, opening, told
from findwall.attribute.shapes import shape, short_type, tensors_of
from findwall.model.diagnosis import Evidence
from findwall.units import format_ms

CAUSE = "dtype-casts"


def evidence(facts: Facts) -> list[Evidence]:
    found = []
    for carrier in carriers(facts, CAUSE):
        what = _cast(facts, carrier) or name_carrier(facts, carrier)
        text = f"{what}: {calls_text(carrier.calls)}, {format_ms(carrier.ms)}"
        found.append(as_evidence(facts, carrier, text))
    return found


def sentence(facts: Facts) -> str:
    first = next((text for text in (_cast(facts, one) for one in carriers(facts, CAUSE)) if text), None)
    which = f"; the longest cast is {first}" if first else ""
    compiler = "" if "torch-compile" in facts.refused else ", or let torch.compile fuse the casts"
    fact = f"{opening(facts, CAUSE)} only converts tensors between number formats{which}"
    return told(facts, CAUSE, fact, f"keep tensors in one format{compiler}")


def _cast(facts: Facts, carrier: Carrier) -> str | None:
    """ "bf16 to fp32 of [8192×50257]"; None where the types were not recorded."""
    tensors = tensors_of(facts, carrier.op_row)
    if len(tensors) < 2 or not (carrier.op or "").endswith("copy_"):
        return None
    target, source = tensors[0], tensors[1]  # argument 0 of copy_ is the destination
    return f"{short_type(source.dtype)} to {short_type(target.dtype)} of {shape(target)}"
