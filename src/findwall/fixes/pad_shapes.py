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

from typing import Any

from findwall.attribute.carriers import CARRIERS_SEARCHED, carriers
from findwall.attribute.facts import Facts
from findwall.attribute.figures import a_step
from findwall.attribute.job import has_shapes
from findwall.attribute.likely import in_format, layout_with
from findwall.attribute.number_formats import SIXTEEN_BITS, math_times
from findwall.attribute.shapes import ALIGNED_MULTIPLE, PAD_MULTIPLES, odd_dims, padded
from findwall.attribute.whatif import ideal
from findwall.fixes import CannotTell, Fix, Made, NoUse, Outcome, use
from findwall.measure.applying import Effect
from findwall.measure.padding import pad_linear
from findwall.replay.change import Change

MOVES = ("misaligned-shapes",)
DIMS_NAMED = 4  # in one sentence
OPS_NAMED = 3


def advise(facts: Facts) -> Outcome:
    if facts.spent_ms("misaligned-shapes") <= 0:
        return _why_not(facts)
    ops: dict[int, list[str]] = {}
    for carrier in carriers(facts, "misaligned-shapes", CARRIERS_SEARCHED):
        for extent in odd_dims(facts, carrier.op_row):
            ops.setdefault(extent, [])
            if carrier.op and carrier.op not in ops[extent]:
                ops[extent].append(carrier.op)
    changes = [f"{extent} → {padded(extent)} {_next_multiple(extent)}" for extent in list(ops)[:DIMS_NAMED]]
    where = sorted({op for names in ops.values() for op in names})[:OPS_NAMED]
    return use(
        f"Pad {', '.join(changes)} in {', '.join(where) or 'the matmuls'}: "
        f"{a_step(facts.spent_ms('misaligned-shapes'))} runs on fallback kernels today."
        if changes
        else "Pad the dimensions of the 16-bit matmuls to a multiple of 64 (at least 8).",
        ideal(facts, *MOVES),
        likely=lambda made: _likely(facts, made),
    )


def _likely(facts: Facts, made: Made) -> Change:
    """The products as fast as aligned ones run; padding adds next to nothing to them."""
    odd = facts.atoms.of("misaligned-shapes")
    math = next((name for name in SIXTEEN_BITS if name in math_times(facts)), "bf16")
    return in_format(facts, odd, math, layout=layout_with(facts, made), aligned=True)


def _next_multiple(extent: int) -> str:
    multiple = next(size for size in (*PAD_MULTIPLES, ALIGNED_MULTIPLE) if padded(extent) % size == 0)
    return f"(next multiple of {multiple})"


def _why_not(facts: Facts) -> Outcome:
    if not has_shapes(facts):
        return CannotTell("the trace has no shapes (record_shapes=True)")
    first = next(iter(math_times(facts)), None)
    if first is not None and first not in SIXTEEN_BITS:
        return NoUse(f"the matmuls run in {first}, where odd dimensions cost nothing yet")
    return NoUse("no 16-bit matmul has dimensions that keep it off the fast kernels")


def stand_in(torch: Any, effect: Effect) -> None:
    """Padding inside the layers: a lower bound, as it copies what the edit pads once."""
    pad_linear(torch, effect, padded)


FIX = Fix(MOVES, "needs-review", advise, stand_in=stand_in)
