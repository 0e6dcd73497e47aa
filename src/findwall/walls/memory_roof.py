"""Kernels already move only what they must: the step runs at the memory's speed.

What it finds:
Norms, softmax and reductions that stand alone, fused optimizers, memsets, and matmuls with so few rows that
reading the weights is all their time (decoding one token at a time). It says how wide the values are that
they move: a roof in fp32 is another one in 16 bits.

Why it costs:
Bytes over bytes per second. No fusion makes a single pass over a tensor shorter; narrower values do.

How it is told apart:
By regime: bytes at the achievable bandwidth exceed FLOPs at the achievable rate, and the kernel reaches at
least 40 % of that bandwidth; one that does not is slow-kernels, or launch-bound where it is too small. It is
the verdict only where less than 10 % of the step has no known cause, and no other cause recovers 5 % of it,
or all that do recover less than a tenth of the time up here. Chains that could be fused, with the norms and
losses inside them, are unfused-pointwise. Copies, at whatever speed, are layout-copies. What 16-bit values
would take off is what autocast really narrows: layer norms, losses, gathers of fp32 tables and the
optimizer's state stay fp32 under it.

What helps:
Fewer bytes: bf16-autocast (fp16-autocast before Ampere) where the values are fp32 (with channels-last where
images are convolved: in NCHW 16-bit values cost layout copies again), lower-precision where they are fp64,
int8-weights (8 or 4 bits, for decoding), fused-loss over a large vocabulary, larger-batch (the weights are
read once for more rows), smaller-model, custom-kernels that keep more on chip, better-hardware
(bandwidth, not FLOP/s). Where much of the step is forward work without gradients, evaluate-less-often before
all of these.
"""

from __future__ import annotations

import numpy as np

from findwall.attribute.carriers import carriers, kernel_evidence
from findwall.attribute.device_kind import device_word, on_cores, pieces
from findwall.attribute.facts import Facts
from findwall.attribute.figures import no_other, opening
from findwall.attribute.layouts import channels_last, convolves
from findwall.attribute.widths import NARROW_BYTES, WIDE_BYTES, WIDTH_WORDS, under_autocast, value_bytes
from findwall.attribute.without_gradients import told_without_gradients
from findwall.model.catalogue import MAJORITY_SHARE, SMALL_PART
from findwall.model.diagnosis import Evidence
from findwall.units import format_ms, ms

CAUSE = "memory-roof"


def evidence(facts: Facts) -> list[Evidence]:
    return kernel_evidence(facts, CAUSE, "the memory ceiling")


def sentence(facts: Facts) -> str:
    found = carriers(facts, CAUSE)
    thin = bool(found) and facts.kernel_class(found[0].atom) == "matmul"
    width, beside = _width(facts), told_without_gradients(facts)
    values = f"{WIDTH_WORDS[width]} " if width in WIDTH_WORDS else ""
    why = (
        f"matmuls that mostly read their {values}weights"
        if thin
        else f"{pieces(facts)} that move only the {values + 'values' if values else 'bytes'} they must"
    )
    return (
        f"{opening(facts, CAUSE)} goes to {why}, and {no_other(facts)}.{beside} Only fewer bytes "
        f"({_fewer(facts, thin, width)}) or a {device_word(facts)} with more bandwidth shortens "
        f"{'the rest' if beside else 'it'}."
    )


def _width(facts: Facts) -> int:
    """Bytes of the values that most of this time moves; 0 where no width has most of it."""
    atoms = facts.atoms.of(CAUSE)
    total = np.bincount(value_bytes(facts, atoms), facts.own[atoms], minlength=1)
    most = int(np.argmax(total))
    return most if total[most] > MAJORITY_SHARE * total.sum() else 0


def _fewer(facts: Facts, thin: bool, width: int) -> str:
    """What would make the values narrower, and what that takes off."""
    if thin:
        return (
            "a larger batch, fp8 or int8 weights"
            if width <= NARROW_BYTES
            else "a larger batch, 16-bit weights"
        )
    if width == NARROW_BYTES:
        return "8-bit tensors"
    if width != WIDE_BYTES:
        return "16-bit or smaller tensors"
    atoms = facts.atoms.of(CAUSE)
    saved = float((facts.own[atoms] * (1.0 - under_autocast(facts)[atoms])).sum())
    if on_cores(facts):
        return "16-bit tensors"
    if saved < SMALL_PART * facts.spent()[CAUSE]:
        return "16-bit tensors that you convert yourself: autocast leaves these ops in fp32"
    turned = convolves(facts) and not channels_last(facts)
    layout = "; use channels-last with them, or NCHW costs layout copies again" if turned else ""
    return f"16-bit values under autocast would save up to {format_ms(ms(saved))}{layout}"
