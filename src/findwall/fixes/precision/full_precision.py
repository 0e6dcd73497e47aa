"""Multiply in fp32 on a CPU that has no fast path for 16-bit numbers.

What it does:
Most cores have vector arithmetic for fp32 alone. torch then converts every 16-bit number on its way, or, in
float16, takes a plain loop: a product takes several times as long as in fp32, up to a hundred times. A model
that was saved in 16 bits for a GPU is made fp32 once, when it is loaded, and its inputs are left as they are:

    model = model.float()

In training on such a CPU `torch.autocast("cpu", dtype=torch.bfloat16)` goes for the same reason, and with it
its casts. `findwall ceilings --device cpu` measures how fast the cores multiply in each format.

When it does not help:
CPUs with AMX or AVX512-BF16 multiply bfloat16 faster than fp32, and some have fp16 as well. Products that
mostly read their weights have half as much to read in 16 bits. Weights take twice the memory.

Risk:
Results are closer to those of the model that was trained, not further from them; they are other ones all the
same. Inputs that the job converts to 16 bits itself must be left in fp32 too, or torch refuses to mix them.
"""

from __future__ import annotations

from math import sqrt

import numpy as np

from findwall.facts.host_cores import cores_in_use
from findwall.facts.number_formats import NARROW_BYTES, WIDE_BYTES, value_bytes
from findwall.facts.user_lines import line_of
from findwall.fixes import (
    Claim,
    Facts,
    Fix,
    Outcome,
    Use,
    cannot_tell,
    gone,
    lines,
    no_use,
    of_class,
    on_cores,
    rows_of,
    time_of,
    to_floor,
    unless,
)
from findwall.model.catalogue import MAJORITY_SHARE, MATRIX_CLASSES
from findwall.model.intervals import I64
from findwall.model.machine import MATH_TYPES, SIXTEEN_BITS
from findwall.replay.change import Change, Scale
from findwall.step.called_ops import head_of, heads_of
from findwall.step.step_facts import StepFacts
from findwall.work.op_arguments import Arguments
from findwall.work.work_facts import WorkFacts, fast_format

TWICE_THE_BYTES = WIDE_BYTES / NARROW_BYTES
# Times the floor that an fp32 product of a layer may take: it is smaller than those that ceilings are
# measured with. Twelve steps on a busy Xeon took 1.1 to 4 times it.
SMALL_PRODUCT_LOSS = 3.0


def use(facts: Facts) -> Outcome:
    narrow = _narrow_products(facts)
    if time_of(facts, narrow) <= 0:
        return no_use("full-precision/none")
    slow, casts = facts.atoms_of("fast-path-off"), facts.atoms_of("dtype-casts")
    longest = _longest(facts, slow if time_of(facts, slow) > 0 else narrow)
    now, flops = facts.math(longest) or "", facts.ceilings.flops
    is_slow = fast_format(facts.ceilings, now) == "fp32"
    # Without autocast a weight is read once, where its cast reads it, writes it, and has it read again.
    under_autocast = _under_autocast(facts, narrow) and time_of(facts, casts) > 0
    if not is_slow or (time_of(facts, slow) <= 0 and not under_autocast):
        return _reason(facts, now)
    figures = {
        "moved_ms": time_of(facts, slow) or None,
        "casts_ms": time_of(facts, casts) if under_autocast else None,
        "format": now,
        "times": flops["fp32"] / flops[now],
        "bf16_times": _faster_bf16(flops),
    }
    dropped = gone(facts, casts)
    best = to_floor(facts, slow) + dropped
    used = cores_in_use(facts)
    floor = facts.atoms.floor[slow] / (used.share if used is not None else 1.0)  # on the threads it has
    likely = to_floor(facts, slow, sqrt(SMALL_PRODUCT_LOSS) * floor) + dropped
    wider = np.setdiff1d(np.union1d(narrow, _others(facts)), np.union1d(slow, casts))
    wider = np.unique(rows_of(facts, wider))
    worst = to_floor(facts, slow, SMALL_PRODUCT_LOSS * floor)
    worst += Change((Scale(wider, np.full(len(wider), TWICE_THE_BYTES)),))
    worst += dropped if under_autocast else Change()
    return Use(
        Claim("full-precision/float", figures, places=lines(line_of(facts, facts.op_row(longest)))),
        best,
        likely=lambda made: likely,
        may=(lambda made: best, lambda made: worst),
        uncurved=True,
    )


def _narrow_products(facts: WorkFacts) -> I64:
    formats = [MATH_TYPES.index(name) for name in SIXTEEN_BITS]
    narrow = np.isin(facts.kernels.math_index[facts.atoms.index], formats)
    return np.flatnonzero(narrow & of_class(facts, *MATRIX_CLASSES))


def _longest(facts: Facts, atoms: I64) -> int:
    return int(atoms[np.argmax(facts.own[atoms])])


def _reason(facts: Facts, now: str) -> Outcome:
    """Why 16-bit products are best left as they are; unknown where a rate is."""
    if not {now, "fp32"} <= facts.ceilings.flops.keys():
        return cannot_tell("full-precision/unmeasured", format=now)
    if fast_format(facts.ceilings, now) is None:
        return no_use("full-precision/as-fast", format=now)
    return no_use("full-precision/no-arithmetic", format=now)


def _faster_bf16(flops: dict[str, float]) -> float | None:
    """How many times as fast as fp32 this CPU multiplies bf16, where that is worth the format."""
    ratio = flops.get("bf16", 0.0) / flops["fp32"]
    return ratio if ratio >= 1 + MAJORITY_SHARE else None


def _under_autocast(facts: Facts, atoms: I64) -> bool:
    """Whether most of these products were given fp32 numbers and cast them themselves."""
    op = facts.kernels.op[facts.atoms.index[atoms]]
    head = np.where(op >= 0, head_of(facts, heads_of(facts))[np.maximum(op, 0)], -1)
    own = facts.own[atoms]
    distinct, inverse = np.unique(head, return_inverse=True)
    is_cast = np.array([row >= 0 and _takes_wide(facts, row) for row in distinct.tolist()], bool)[inverse]
    forward = float(own[head >= 0].sum())
    return forward > 0 and float(own[is_cast].sum()) > MAJORITY_SHARE * forward


def _takes_wide(facts: StepFacts, row: int) -> bool:
    return any(one.dtype.lower() == "float" for one in Arguments(facts.timeline.inputs_of(row)).tensors())


def _others(facts: WorkFacts) -> I64:
    """What moves 16-bit numbers and multiplies none."""
    others = np.flatnonzero(~of_class(facts, *MATRIX_CLASSES))
    found: I64 = others[value_bytes(facts, others) == NARROW_BYTES]
    return found


FIX = Fix(
    ("fast-path-off", "dtype-casts"),
    "changes-numerics",
    use,
    (unless("full-precision/gpu", lambda facts: not on_cores(facts), obvious=True),),
)
