"""Chains of pointwise kernels read and write whole tensors that a fused kernel would keep in registers.

What it finds:
Pointwise kernels, and the norms, softmaxes and reductions inside their chains: activations, additions,
masks, dropout, residuals, a batch norm before its ReLU, a log-softmax before its loss, hand-written norms
and rotary embeddings.

Why it costs:
A pointwise kernel does an operation or two for every number it loads: it is over when the bytes have
moved. A chain of n of them moves the same tensor n times. Fused, it is read once and written once.

How it is told apart:
By class and by following tensors from op to op: what one op of a chain writes and the next one reads
need not be moved at all, and that is the recoverable part. A batch norm has its statistics only after a
whole pass, so in the best of chains it reads its tensor twice. Casts alone are dtype-casts, plain copies
layout-copies, optimizer arithmetic unfused-optimizer. A norm or softmax that stands alone between two
matmuls moves only what it must: it is at the memory-roof.

What helps:
torch-compile (fuses chains by itself; reduce-overhead is the same with graphs around it), builtin-ops
(layer_norm, rms_norm, gelu, cross_entropy instead of formulas written out), fused-loss over a large
vocabulary, pairwise-product where differences of all pairs are squared and summed, bf16-autocast (half the
bytes), lower-precision where numbers are fp64, product-order where what scales a product is written out
before the next one, scale-activations where a weight is scaled for each sample, channels-last where
convolutions stand between. CUDA graphs alone do not help: they save launches, not bytes.
On a CPU small ops of a loop take their time themselves: vectorise-loop, foreach-checks, averages-in-lists.
Where much of it is forward work without gradients: evaluate-less-often.
On a CPU large tensors may go back to the system and come again: keep-freed-memory.
"""

from __future__ import annotations

from findwall.causes import Cause, Claim, Facts, Told, carriers, carrying
from findwall.facts.facts import of_class, time_of
from findwall.facts.op_shapes import channels_last
from findwall.model.catalogue import MENTION_SHARE, SMALL_PART

NAME = "unfused-pointwise"
TOLD = ("pointwise", "norm", "softmax", "reduce")  # classes of kernels, as they are told


def says(facts: Facts) -> Told:
    atoms = facts.atoms.of(NAME)
    least = SMALL_PART * time_of(facts, atoms)  # a class that takes less of the time is not told
    classes = {name: time_of(facts, atoms[of_class(facts, name)[atoms]]) > least for name in TOLD}
    figures = {"kernels": len(atoms) / facts.steps.count, **classes}
    return Told(Claim("unfused-pointwise/moves", figures, carrying(facts, NAME)), _advice(facts))


def _advice(facts: Facts) -> Claim:
    if any(carrier.kernel.startswith("triton_") for carrier in carriers(facts, NAME)):
        return Claim("advise/fewer-graph-breaks/chains")
    convolved = float(facts.own[of_class(facts, "conv")].sum())
    turns = convolved > MENTION_SHARE * facts.step and not channels_last(facts)
    return Claim("unfused-pointwise/compile", {"turns": turns})


CAUSE = Cause(NAME, says)
