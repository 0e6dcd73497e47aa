"""Store weights in 8 or 4 bits where reading them is what takes the time.

What it does:
A decoding step multiplies a few rows with every weight of the model: it takes as long as memory needs to hand
the weights over. Stored in 8 bits they are read in half the time, in 4 bits in a quarter; each kernel widens
them again on the way to the tensor cores.

    from torchao.quantization import quantize_, Int8WeightOnlyConfig
    quantize_(model, Int8WeightOnlyConfig())
    model = torch.compile(model, mode="max-autotune")

vLLM, TensorRT-LLM and llama.cpp load weights that were narrowed before (GPTQ, AWQ, fp8).

When it does not help:
Batches or prompts are so large that arithmetic is the roof: there the widening costs time. In training the
weights change. Without torch.compile or a kernel made for it the wide weights are written out first, and the
step is slower than before.

Risk:
Accuracy: little is lost with 8 bits, with 4 it needs calibration. Check the model's answers.
"""

from __future__ import annotations

from findwall.facts.number_formats import narrow_products
from findwall.fixes import Claim, Facts, Fix, Outcome, Use, at_most, is_training, not_here, time_of, unless
from findwall.model.catalogue import MENTION_SHARE
from findwall.units import ms

EIGHT_BITS_SHARE = 0.5  # of the bytes of a 16-bit weight


def use(facts: Facts) -> Outcome:
    read = narrow_products(facts, "bandwidth")
    spent = time_of(facts, read)
    if spent <= MENTION_SHARE * ms(facts.step):
        return not_here(facts, "int8-weights/none")
    return Use(Claim("int8-weights/store", {"matmuls_ms": spent}), at_most(facts, read, EIGHT_BITS_SHARE))


FIX = Fix(("memory-roof",), "changes-numerics", use, (unless("int8-weights/trains", is_training),))
