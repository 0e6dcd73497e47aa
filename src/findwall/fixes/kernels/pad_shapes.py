"""Pad odd dimensions to a multiple of 64 (at least 8), so that 16-bit matmuls reach the fast kernels.

What it does:
Tensor-core kernels load rows in pieces of 16 bytes: 8 numbers of 16 bits. A vocabulary of 50257 or
a hidden size of 1001 makes every second row start elsewhere, and the library falls back to kernels
that are several times slower. Padding the vocabulary, a layer's width, the sequence or the batch to
the next multiple removes that; the extra columns are never looked at. `findwall try` shows the gain
without the edit: linear layers pad their operands inside. That copies them at every call, so the edit
gives more. Products written as `@` or `bmm` stay as they are.

When it does not help:
All dimensions of the large matmuls are multiples of 8 already, or the matmuls run in fp32 or TF32,
where the fast path needs another change first.

Risk:
Parameters change their shape: old checkpoints need a padded copy, and an output layer over a padded
vocabulary must not be sampled from beyond the real one (mask it, or slice the logits).
"""

from __future__ import annotations

from functools import partial

from findwall.facts.cause_kernels import CARRIERS_SEARCHED, carriers
from findwall.facts.likely_times import in_format, layout_with
from findwall.facts.number_formats import math_times
from findwall.facts.op_shapes import ALIGNED_MULTIPLE, PAD_MULTIPLES, odd_dims, padded
from findwall.facts.step_traits import has_shapes
from findwall.fixes import Claim, Facts, Fix, Made, Outcome, Use, cannot_tell, no_use
from findwall.fixes.kernels.padded_layers import pad_linear
from findwall.model.machine import SIXTEEN_BITS
from findwall.replay.change import Change


def use(facts: Facts) -> Outcome:
    if facts.spent_ms("misaligned-shapes") <= 0:
        return _why_not(facts)
    ops: dict[int, list[str]] = {}
    for carrier in carriers(facts, "misaligned-shapes", CARRIERS_SEARCHED):
        for extent in odd_dims(facts, carrier.op_row):
            ops.setdefault(extent, [])
            if carrier.op and carrier.op not in ops[extent]:
                ops[extent].append(carrier.op)
    return Use(
        _claim(facts, list(ops), sorted({op for names in ops.values() for op in names})),
        likely=lambda made: _likely(facts, made),
        parameters={str(extent): padded(extent) for extent in ops},
    )


def _claim(facts: Facts, extents: list[int], ops: list[str]) -> Claim:
    if not extents:
        return Claim("pad-shapes/sixteen-bit")
    sizes = [
        Claim("size/pad", {"from": extent, "to": padded(extent), "multiple": _multiple(extent)})
        for extent in extents
    ]
    named = [Claim("op/name", names={"op": op}) for op in ops]
    spent = {"spent_ms": facts.spent_ms("misaligned-shapes"), "sizes": len(sizes)}
    return Claim("pad-shapes/to", spent, parts=[*sizes, *named])


def _likely(facts: Facts, made: Made) -> Change:
    """The products as fast as aligned ones run; padding adds next to nothing to them."""
    odd = facts.atoms.of("misaligned-shapes")
    math = next((name for name in SIXTEEN_BITS if name in math_times(facts)), "bf16")
    return in_format(facts, odd, math, layout=layout_with(facts, made), aligned=True)


def _multiple(extent: int) -> int:
    return next(size for size in (*PAD_MULTIPLES, ALIGNED_MULTIPLE) if padded(extent) % size == 0)


def _why_not(facts: Facts) -> Outcome:
    if not has_shapes(facts):
        return cannot_tell("pad-shapes/no-shapes")
    first = next(iter(math_times(facts)), None)
    if first is not None and first not in SIXTEEN_BITS:
        return no_use("pad-shapes/wide", format=first)
    return no_use("pad-shapes/none")


# A trial pads inside the layers: a lower bound, as it copies what the edit pads once.
FIX = Fix(("misaligned-shapes",), "needs-review", use, stand_in=partial(pad_linear, padded=padded))
