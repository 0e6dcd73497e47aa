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
vocabulary, bf16-autocast (half the bytes), channels-last where convolutions stand between. CUDA graphs alone
do not help: they save launches, not bytes.
Where much of it is forward work without gradients: evaluate-less-often.
"""

from __future__ import annotations

from findwall.attribute.carriers import carriers, kernel_evidence, ops_named
from findwall.attribute.device_kind import pieces
from findwall.attribute.device_time import of_class, time_of
from findwall.attribute.facts import Facts
from findwall.attribute.figures import opening, told
from findwall.attribute.layouts import channels_last
from findwall.model.catalogue import MENTION_SHARE, SMALL_PART
from findwall.model.diagnosis import Evidence

CAUSE = "unfused-pointwise"
# Kernel class -> how it is called in a sentence.
KIND_WORDS = {"pointwise": "pointwise", "norm": "norm", "softmax": "softmax", "reduce": "reduction"}


def evidence(facts: Facts) -> list[Evidence]:
    return kernel_evidence(facts, CAUSE)


def sentence(facts: Facts) -> str:
    calls = len(facts.atoms.of(CAUSE)) / facts.steps.count
    names = ops_named(facts, CAUSE)
    which = f", mostly {names}" if names else ""
    fact = (
        f"{opening(facts, CAUSE)} goes to {calls:,.0f} {_kinds(facts)} {pieces(facts)}{which}, each of which "
        "moves whole tensors through memory"
    )
    return told(facts, CAUSE, fact, _advice(facts))


def _kinds(facts: Facts) -> str:
    """What kernels these are; a kind that takes little of the time is not told."""
    found = []
    atoms = facts.atoms.of(CAUSE)
    total = time_of(facts, atoms)
    for name, word in KIND_WORDS.items():
        if time_of(facts, atoms[of_class(facts, name)[atoms]]) > SMALL_PART * total:
            found.append(word)
    return " and ".join([", ".join(found[:-1]), found[-1]] if len(found) > 1 else found or ["pointwise"])


def _advice(facts: Facts) -> str:
    compiled = any(carrier.kernel.startswith("triton_") for carrier in carriers(facts, CAUSE))
    if compiled:
        return "look for graph breaks that cut these chains, as torch.compile is in use already"
    convolved = float(facts.own[of_class(facts, "conv")].sum())
    if convolved > MENTION_SHARE * facts.step and not channels_last(facts):
        return "use torch.compile, which fuses each chain into one kernel and makes images channels-last"
    return "use torch.compile, which fuses each chain into one kernel"
