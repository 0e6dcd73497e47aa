"""What the two fixes that rewrite most of a step make of it.

Autocast: products in 16 bits, the rest on half the bytes in part, and casts. A compiler: chains of passes
over memory as generated kernels, odd matmuls padded, images turned for convolutions.
"""

from __future__ import annotations

import msgspec
import numpy as np

from findwall.facts.beside_the_model import beside_the_model, rows_beside_the_model
from findwall.facts.best_changes import (
    as_chains,
    at_math,
    at_most,
    bare_convolutions,
    free_launches,
    knows_floor,
    left_out,
    to_floor,
)
from findwall.facts.best_changes import gone as dropped
from findwall.facts.facts import Facts, of_class, rows_of
from findwall.facts.likely_times import (
    batch_norms,
    compiles,
    host_ns,
    layout_with,
    narrowed_ns,
    narrows,
    products_ns,
    to_likely,
    turned,
)
from findwall.facts.number_formats import (
    SIXTEEN_BIT_BYTES_SHARE,
    cast_ns,
    likely_under_autocast,
    math_times,
    under_autocast,
)
from findwall.facts.op_shapes import channels_last, convolves, on_images, padding_ns, under_convolution
from findwall.facts.step_traits import on_cores
from findwall.facts.waiting_rounds import waiting_rounds
from findwall.model.catalogue import MATRIX_CLASSES, SMALL_PART
from findwall.model.claims import Claim
from findwall.model.events import Bool
from findwall.model.intervals import F64, I64
from findwall.model.machine import MATH_TYPES
from findwall.replay.change import Change, Drop, Issue, Replace
from findwall.replay.curves import curves
from findwall.step.kernel_names.name_parts import of_library
from findwall.step.step_facts import StepFacts
from findwall.units import NS_PER_S
from findwall.work.fusion import BATCH_NORM, chains, fetches, is_fusable
from findwall.work.work_facts import WorkFacts, ops_named

WIDE_FORMATS = ("fp32", "tf32")  # autocast leaves fp64 as it is
PRODUCTS_A_LAYER = 3  # one forward, two backward: what the measured cost of casts is shared out over


def no_shapes(facts: StepFacts) -> Claim:
    """Why nobody knows what 16 bits would give."""
    return Claim("autocast/no-shapes", {"option": facts.timeline.header.shapes_option})


def wide_matmuls(facts: Facts) -> float:
    """What matmuls of 32 bits take, in ms a step; nothing where it is not worth a change of type."""
    times = math_times(facts)
    wide = sum(times.get(name, 0.0) for name in WIDE_FORMATS)
    return wide if wide > SMALL_PART * sum(times.values()) else 0.0


def sixteen_bit_format(facts: WorkFacts) -> str | None:
    """What this device multiplies 16-bit numbers in: bfloat16 where it can."""
    return next((name for name in ("bf16", "fp16") if name in facts.ceilings.flops), None)


def why_not_known(facts: WorkFacts) -> Claim | None:
    """Why nobody can tell what 16 bits would give; None where it is known."""
    if sixteen_bit_format(facts) is None and on_cores(facts):
        return Claim("autocast/cores-unmeasured")
    if not facts.ceilings.flops:
        return Claim("autocast/unknown-device")
    return None if knows_floor(facts, multiply_wide(facts)) else no_shapes(facts)


def faster_narrow(facts: WorkFacts) -> bool:
    """Whether this device multiplies 16-bit numbers faster than fp32 ones."""
    flops = facts.ceilings.flops
    return flops.get(sixteen_bit_format(facts) or "", 0.0) > flops.get("fp32", 0.0)


def turns_images_back(facts: Facts) -> bool:
    """Whether its convolutions would have their images turned for each of them: in 16 bits they want
    channels-last ones."""
    return convolves(facts) and not channels_last(facts) and on_images(facts)


def multiply_wide(facts: WorkFacts) -> I64:
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


def _is_covered(facts: StepFacts, op: int, kernel: int) -> bool:
    """Whether torch's op that a job called, around the one that did the work, leaves its argument alone.
    Without one, as in a replayed graph, a library's kernel was called by torch."""
    around = [op, *facts.links.ancestors(op)] if op >= 0 else []
    called = [name for one in around if (name := facts.timeline.name_of(one)).startswith("aten::")]
    if not called:
        return op < 0 and of_library(facts.timeline.names[kernel])
    return not called[-1].endswith("_")


def autocast_at_best(facts: WorkFacts, narrow: str) -> Change:
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


# -- compiled ------------------------------------------------------------------------------------------

FUSES = ("unfused-pointwise", "dtype-casts", "layout-copies")
# Causes that generated kernels move, whoever issues them.
COMPILED_AWAY = (*FUSES, "unfused-attention", "misaligned-shapes", "gather-scatter")
# Classes whose kernels the compiler folds into what comes before and after them.
MERGED = ("norm", "softmax", "reduce", "gather", "copy")
# Classes whose kernels need all of their input before they write: each keeps a kernel of its own in a chain.
REDUCING = ("norm", "reduce", "softmax")
LEAST_NS = 2_000.0  # a generated kernel over a few numbers, on an H200


def compiled_at_best(facts: Facts) -> Change:
    """Chains, norms, losses and gathers become parts of their neighbours, odd matmuls are padded, and images
    lie as convolutions like them. What is computed twice in a graph, or read by nobody, is not generated, and
    what is picked of passes over memory is worked out for itself.

    The host issues the model for nothing; the optimizer is not part of the model, nor is what runs beside it.
    """
    beside = beside_the_model(facts)
    model = np.flatnonzero(~of_class(facts, "optimizer") & ~beside)
    moved = [cause for cause in COMPILED_AWAY if cause != "gather-scatter"]
    merged = np.flatnonzero(of_class(facts, *MERGED) & ~_twice_through_memory(facts) & ~beside)
    kernels = sum((_moved(facts, cause) for cause in moved), Change())
    if turns_layouts(facts):
        kernels += bare_convolutions(facts) + dropped(facts, facts.atoms.of("layout-copies"))
    needless = _not_generated(facts)
    kernels += left_out(facts, needless[~beside[needless]])
    return kernels + at_most(facts, merged, 0.0) + free_launches(facts, model)


def _not_generated(facts: Facts) -> I64:
    products = of_class(facts, *MATRIX_CLASSES)
    found = [
        one.atoms if one.kind != "dropped" else one.atoms[~products[one.atoms]]
        for one in facts.unneeded
        if one.kind in ("twice", "unread", "dropped")
    ]
    return np.unique(np.concatenate([np.zeros(0, np.int64), *found]))


def _moved(facts: WorkFacts, cause: str) -> Change:
    atoms = facts.atoms.of(cause)
    atoms = atoms[~beside_the_model(facts)[atoms]]
    return as_chains(facts, atoms) if cause in FUSES else to_floor(facts, atoms)


def _twice_through_memory(facts: WorkFacts) -> Bool:
    """Batch norms over more than the cache holds: no kernel that they become part of reads less."""
    named = batch_norms(facts, np.arange(len(facts.atoms.index)))
    large = facts.kernels.bytes[facts.atoms.index] > (facts.ceilings.l2_bytes or 0)
    return named & large & ~np.isnan(facts.atoms.floor)


class Generated(msgspec.Struct, frozen=True):
    """What a compiler makes of the step's passes over memory, by device row."""

    rows: I64  # that become generated kernels
    ns: F64  # how long each takes then
    gone: I64  # that become part of another


def generated(facts: Facts, narrow: bool = False) -> Generated:
    """Chains of passes over memory as generated kernels, at the speed that such kernels reach.

    `narrow`: under autocast.

    A chain is what lies between two products. It becomes one kernel, and one more for each further reduction.
    """
    table = facts.kernels
    index, step, fused = chains(facts)
    kept = np.maximum(table.bytes[index] - fused.saved, 0.0) + fused.again
    if narrow:
        kept *= _bytes_left(facts)[index]
    mine = ~np.isin(table.row[index], _out_of_reach(facts))
    at = np.flatnonzero(is_fusable(facts.timeline, table, index) & ~np.isnan(kept) & mine)
    if len(at) == 0 or not facts.ceilings.bandwidth:
        return Generated(table.row[:0], np.zeros(0), table.row[:0])
    part = np.concatenate(([0], np.cumsum((np.diff(at) > 1) | (np.diff(step[at]) != 0))))
    stands = _stands(kept[at], part, table.is_class(*REDUCING)[index[at]])
    # What one of the chain moves beside those that stand for a kernel is moved by the one that follows it.
    group = np.cumsum(stands[::-1])[::-1]
    group = group.max() - group
    moved = np.bincount(group, kept[at], minlength=int(group.max()) + 1)
    done = np.bincount(group, np.nan_to_num(table.flops[index[at]]), minlength=len(moved))
    floor = moved / facts.ceilings.bandwidth * NS_PER_S
    floor = np.maximum(floor, done / facts.ceilings.flops.get("fp32", np.inf) * NS_PER_S)[group[stands]]
    row = table.row[index[at]]
    floor = np.maximum(floor, 1.0)
    norms = ops_named(facts.timeline, table.op[index[at]][stands], BATCH_NORM)
    ns = np.where(
        norms, curves().likely_ns("fused/batch_norm", floor), curves().likely_ns("fused/chain", floor)
    )
    return Generated(row[stands], np.maximum(ns, LEAST_NS), row[~stands])


def compiled_kernels(facts: Facts, made: frozenset[str]) -> tuple[Change, I64]:
    """The step's kernels as a compiler makes them, and the rows that are gone: chains as generated kernels,
    odd matmuls padded, images turned for convolutions."""
    code = generated(facts, narrow=narrows(made))
    gone = code.gone
    change = Change((Replace(code.rows, code.ns),))
    change += _fetched(facts)
    if "pad-shapes" not in made:
        odd = facts.atoms.of("misaligned-shapes")
        padded = products_ns(facts, odd, "bf16", aligned=True) + padding_ns(facts, odd)
        change += to_likely(facts, odd, np.fmin(padded, facts.kernels.duration[facts.atoms.index[odd]]))
    if turns_layouts(facts):
        beside = np.flatnonzero(under_convolution(facts) & ~of_class(facts, *MATRIX_CLASSES))
        gone = np.union1d(gone, rows_of(facts, beside))
        change += turned(facts) if not narrows(made) else Change()
    return change + Change((Drop(gone),)), gone


def _fetched(facts: Facts) -> Change:
    """Rows fetched and added up in generated kernels, as fast as others of them and no slower than today: on
    an H200 a gather of 4.8 ms and an add of 3.9 became one kernel of 1.7."""
    table, (index, step, _) = facts.kernels, chains(facts)
    places, kept = fetches(facts.timeline, table, index, step)
    if len(places) == 0 or not facts.ceilings.bandwidth:
        return Change()
    mine = index[places]
    floor = np.maximum(kept / facts.ceilings.bandwidth * NS_PER_S, 1.0)
    return Change(
        (Replace(table.row[mine], np.fmin(curves().likely_ns("fused/chain", floor), table.duration[mine])),)
    )


def turns_layouts(facts: Facts) -> bool:
    """Whether a compiler would make images channels-last: it does so where convolutions read others."""
    return convolves(facts) and not channels_last(facts)


def _bytes_left(facts: WorkFacts) -> F64:
    """Of each kernel's bytes what autocast leaves."""
    left = np.ones(len(facts.kernels.row))
    left[facts.atoms.index] = likely_under_autocast(facts)
    return left


def _stands(kept: F64, part: I64, reduces: Bool) -> Bool:
    """Which kernels of each chain stay as generated ones: the last that moves anything, and reductions."""
    moves = kept > 0
    found = moves & reduces
    last = np.full(int(part.max()) + 1, -1, np.int64)
    np.maximum.at(last, part, np.where(moves, np.arange(len(part)), -1))
    found[last[last >= 0]] = True
    return found


def model_rows(facts: WorkFacts) -> I64:
    """Device rows of the model itself: not the optimizer's or others beside it, nor copies from and to the
    host."""
    rows = rows_of(facts, np.flatnonzero(~of_class(facts, "optimizer", "memcpy")))
    return np.setdiff1d(rows, _out_of_reach(facts))


def _out_of_reach(facts: WorkFacts) -> I64:
    """Device rows that no compiler gets: what lies beside the model, and loops in which each round asks for a
    size, where its graph ends again and again."""
    found = waiting_rounds(facts)
    beside = rows_beside_the_model(facts)
    return beside if found is None else np.union1d(beside, rows_of(facts, found.atoms))
