"""What a compiler makes of the step: chains as generated kernels, odd matmuls padded, images turned."""

from __future__ import annotations

import msgspec
import numpy as np

from findwall.attribute.beside_the_model import beside_the_model, rows_beside_the_model
from findwall.attribute.facts import Facts
from findwall.attribute.fusion import BATCH_NORM, fetches, is_fusable
from findwall.attribute.kernels import ops_named
from findwall.attribute.likely_times import batch_norms, narrows, products_ns, to_likely, turned
from findwall.attribute.number_formats import likely_under_autocast
from findwall.attribute.shapes import channels_last, convolves, padding_ns, under_convolution
from findwall.attribute.step_traits import of_class, rows_of
from findwall.attribute.whatif import as_chains, at_most, bare_convolutions, free_launches, to_floor
from findwall.attribute.whatif import gone as dropped
from findwall.model.catalogue import MATRIX_CLASSES
from findwall.model.events import Bool
from findwall.model.intervals import F64, I64
from findwall.replay.change import Change, Drop, Replace
from findwall.replay.curves import curves
from findwall.units import NS_PER_S

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
    lie as convolutions like them.

    The host issues the model for nothing; the optimizer is not part of the model, nor is what runs beside it.
    """
    beside = beside_the_model(facts)
    model = np.flatnonzero(~of_class(facts, "optimizer") & ~beside)
    moved = [cause for cause in COMPILED_AWAY if cause != "gather-scatter"]
    merged = np.flatnonzero(of_class(facts, *MERGED) & ~_twice_through_memory(facts) & ~beside)
    kernels = sum((_moved(facts, cause) for cause in moved), Change())
    if turns_layouts(facts):
        kernels += bare_convolutions(facts) + dropped(facts, facts.atoms.of("layout-copies"))
    return kernels + at_most(facts, merged, 0.0) + free_launches(facts, model)


def _moved(facts: Facts, cause: str) -> Change:
    atoms = facts.atoms.of(cause)
    atoms = atoms[~beside_the_model(facts)[atoms]]
    return as_chains(facts, atoms) if cause in FUSES else to_floor(facts, atoms)


def _twice_through_memory(facts: Facts) -> Bool:
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
    index, step, chains = facts.chains
    kept = np.maximum(table.bytes[index] - chains.saved, 0.0) + chains.again
    if narrow:
        kept *= _bytes_left(facts)[index]
    mine = ~np.isin(table.row[index], rows_beside_the_model(facts))
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
    table, (index, step, _) = facts.kernels, facts.chains
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


def _bytes_left(facts: Facts) -> F64:
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


def model_rows(facts: Facts) -> I64:
    """Device rows of the model itself: not the optimizer's or others beside it, nor copies from and to the
    host."""
    rows = rows_of(facts, np.flatnonzero(~of_class(facts, "optimizer", "memcpy")))
    return np.setdiff1d(rows, rows_beside_the_model(facts))
