"""What autocast does to a step: products in 16 bits, the rest on half the bytes in part, and casts."""

from __future__ import annotations

import numpy as np

from findwall.attribute.facts import Facts
from findwall.attribute.likely_times import (
    compiles,
    host_ns,
    layout_with,
    narrowed_ns,
    products_ns,
    to_likely,
)
from findwall.attribute.number_formats import SIXTEEN_BIT_BYTES_SHARE, cast_ns, math_times, under_autocast
from findwall.attribute.shapes import channels_last, convolves, on_images
from findwall.attribute.step_traits import of_class, on_cores, rows_of
from findwall.attribute.whatif import at_math, knows_floor, to_floor
from findwall.model.catalogue import MATRIX_CLASSES, SMALL_PART
from findwall.model.claims import Claim
from findwall.model.intervals import I64
from findwall.model.machine import MATH_TYPES
from findwall.replay.change import Change, Issue
from findwall.structure.classes import of_library

WIDE_FORMATS = ("fp32", "tf32")  # autocast leaves fp64 as it is
PRODUCTS_A_LAYER = 3  # one forward, two backward: what the measured cost of casts is shared out over


def no_shapes(facts: Facts) -> Claim:
    """Why nobody knows what 16 bits would give."""
    return Claim("autocast/no-shapes", {"option": facts.timeline.header.shapes_option})


def wide_matmuls(facts: Facts) -> float:
    """What matmuls of 32 bits take, in ms a step; nothing where it is not worth a change of type."""
    times = math_times(facts)
    wide = sum(times.get(name, 0.0) for name in WIDE_FORMATS)
    return wide if wide > SMALL_PART * sum(times.values()) else 0.0


def sixteen_bit_format(facts: Facts) -> str | None:
    """What this device multiplies 16-bit numbers in: bfloat16 where it can."""
    return next((name for name in ("bf16", "fp16") if name in facts.ceilings.flops), None)


def why_not_known(facts: Facts) -> Claim | None:
    """Why nobody can tell what 16 bits would give; None where it is known."""
    if sixteen_bit_format(facts) is None and on_cores(facts):
        return Claim("autocast/cores-unmeasured")
    if not facts.ceilings.flops:
        return Claim("autocast/unknown-device")
    return None if knows_floor(facts, multiply_wide(facts)) else no_shapes(facts)


def faster_narrow(facts: Facts) -> bool:
    """Whether this device multiplies 16-bit numbers faster than fp32 ones."""
    flops = facts.ceilings.flops
    return flops.get(sixteen_bit_format(facts) or "", 0.0) > flops.get("fp32", 0.0)


def turns_images_back(facts: Facts) -> bool:
    """Whether its convolutions would have their images turned for each of them: in 16 bits they want
    channels-last ones."""
    return convolves(facts) and not channels_last(facts) and on_images(facts)


def multiply_wide(facts: Facts) -> I64:
    """Atoms that multiply 32-bit numbers, by an op that autocast knows: it leaves those that a job calls in
    place, as `addmm_`, as they are, and kernels of the job's own."""
    formats = [MATH_TYPES.index(name) for name in WIDE_FORMATS]
    wide = np.isin(facts.kernels.math_index[facts.atoms.index], formats)
    atoms = np.flatnonzero(wide & of_class(facts, *MATRIX_CLASSES))
    index = facts.atoms.index[atoms]
    pairs = np.stack([facts.kernels.op[index], facts.timeline.events.name[facts.kernels.row[index]]])
    distinct, inverse = np.unique(pairs, axis=1, return_inverse=True)
    covered = np.array([_is_covered(facts, op, kernel) for op, kernel in distinct.T.tolist()], bool)
    return atoms[covered[inverse.reshape(-1)]] if len(atoms) else atoms


def _is_covered(facts: Facts, op: int, kernel: int) -> bool:
    """Whether torch's op that a job called, around the one that did the work, leaves its argument alone.
    Without one, as in a replayed graph, a library's kernel was called by torch."""
    around = [op, *facts.links.ancestors(op)] if op >= 0 else []
    called = [name for one in around if (name := facts.timeline.name_of(one)).startswith("aten::")]
    if not called:
        return op < 0 and of_library(facts.timeline.names[kernel])
    return not called[-1].endswith("_")


def autocast_at_best(facts: Facts, narrow: str) -> Change:
    """Matmuls at the 16-bit ceiling on half the bytes, and as much of everything else as autocast leaves: its
    kernels are the same in another type."""
    wide = multiply_wide(facts)
    left = under_autocast(facts)
    rest = np.setdiff1d(np.flatnonzero(~of_class(facts, *MATRIX_CLASSES)), wide)
    return at_math(facts, wide, narrow, SIXTEEN_BIT_BYTES_SHARE) + to_floor(
        facts, rest, facts.atoms.own[rest] * left[rest]
    )


def autocast_likely(facts: Facts, narrow: str, made: frozenset[str]) -> Change:
    """Products as fast as they run in 16 bits, the rest on what autocast leaves of its bytes, and the casts
    that come with it: of each weight, forward and back, before the product that needs it."""
    wide = multiply_wide(facts)
    layout = layout_with(facts, made)
    ns = products_ns(facts, wide, narrow, layout, SIXTEEN_BIT_BYTES_SHARE) + cast_ns(facts, wide)
    products = to_likely(facts, wide, ns)
    if compiles(made):  # which folds casts into its kernels, and knows how wide their values are
        return products
    rest = np.setdiff1d(np.flatnonzero(~of_class(facts, *MATRIX_CLASSES)), wide)
    casts = np.array(host_ns(facts, "autocast") / PRODUCTS_A_LAYER)
    more = Issue(np.unique(rows_of(facts, wide)), casts, besides=True)
    return products + to_likely(facts, rest, narrowed_ns(facts, rest, layout)) + Change((more,))
