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
int8-weights (8 or 4 bits, for decoding), fused-loss over a large vocabulary, pairwise-product for distances
of all pairs, builtin-ops where all pairs are compared to be counted, product-order, separable-filter,
lookup-not-onehot where one-hot rows are multiplied with, sparse-embedding where an optimizer walks over
tables of which few rows are looked up, larger-batch (the weights are read once for more rows), smaller-model,
custom-kernels that keep more on chip, better-hardware (bandwidth, not FLOP/s).
Where much of the step is forward work without gradients, evaluate-less-often before all of these.
On a CPU large tensors may go back to the system and come again: keep-freed-memory.
"""

from __future__ import annotations

import numpy as np

from findwall.causes import Cause, Claim, Facts, Figure, carriers
from findwall.facts.figures import amounts, no_other
from findwall.facts.gradient_free_work import beside_gradients
from findwall.facts.number_formats import NARROW_BYTES, WIDE_BYTES, under_autocast, value_bytes
from findwall.facts.op_shapes import channels_last, convolves
from findwall.facts.step_traits import on_cores
from findwall.model.catalogue import MAJORITY_SHARE, SMALL_PART
from findwall.units import ms

NAME = "memory-roof"


def says(facts: Facts) -> Claim:
    found = carriers(facts, NAME)
    thin = bool(found) and facts.kernel_class(found[0].atom) == "matmul"
    width = _width(facts)
    figures: dict[str, Figure] = {**amounts(facts, NAME), "thin": thin, "each_bytes": width}
    parts = [no_other(facts), _fewer(facts, thin, width), *beside_gradients(facts)]
    return Claim("memory-roof/fills", figures, parts=parts)


def _width(facts: Facts) -> int:
    """Bytes of the values that most of this time moves; 0 where no width has most of it."""
    atoms = facts.atoms.of(NAME)
    total = np.bincount(value_bytes(facts, atoms), facts.own[atoms], minlength=1)
    most = int(np.argmax(total))
    return most if total[most] > MAJORITY_SHARE * total.sum() else 0


def _fewer(facts: Facts, thin: bool, width: int) -> Claim:
    """What would make the values narrower, and what that takes off."""
    if thin:
        return Claim("fewer-bytes/weights", {"narrow": width <= NARROW_BYTES})
    if width == NARROW_BYTES:
        return Claim("fewer-bytes/8-bit")
    if width != WIDE_BYTES:
        return Claim("fewer-bytes/any")
    if on_cores(facts):
        return Claim("fewer-bytes/16-bit")
    atoms = facts.atoms.of(NAME)
    saved = float((facts.own[atoms] * (1.0 - under_autocast(facts)[atoms])).sum())
    if saved < SMALL_PART * facts.spent()[NAME]:
        return Claim("fewer-bytes/by-hand")
    turned = convolves(facts) and not channels_last(facts)
    return Claim("fewer-bytes/autocast", {"narrower_ms": ms(saved), "turned": turned})


CAUSE = Cause(NAME, says, reached="memory")
