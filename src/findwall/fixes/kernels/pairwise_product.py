"""Take distances of all pairs from a matrix product instead of writing every difference down.

What it does:
`(a[:, None] - b[None]).pow(2).sum(-1)` writes n × m × d differences to memory, reads them to square them,
and again to add them up; the backward pass goes through them as often. |a - b|² is |a|² + |b|² - 2ab, and
that is one product and a few passes over n × m numbers:

    a, b = a / scale, b / scale                                     # where differences are scaled
    d2 = a.square().sum(-1)[..., :, None] + b.square().sum(-1)[..., None, :] - 2 * a @ b.mT
    d2 = d2.clamp(min=0)

`torch.cdist(a, b)` does the same and takes the root.

Products of all pairs that are only added up are one product of matrices as well, forward and backward:

    pooled = (f[:, :, :, None] * f[:, :, None]).sum(1)              # positions × channels × channels
    pooled = f.mT @ f                                               # or torch.einsum("bpc,bpd->bcd", f, f)

When it does not help:
The differences themselves are read by something else, or d is so small that n × m × d is hardly more than
n × m.

Risk:
The product loses digits where a and b are far from zero and close to each other: take their mean off first,
or multiply in float32 without TF32. The gradient of a distance of zero is zero here too; that of its root is
not.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy as np

from findwall.facts.best_changes import as_one_pass
from findwall.facts.called_atoms import called_by, passes, read_behind, reading
from findwall.facts.facts import causes_of, kernels_ns
from findwall.facts.likely_times import in_few_kernels, pass_ns
from findwall.facts.user_lines import line_of
from findwall.facts.written_out.summed_products import SummedProduct, summed_products
from findwall.fixes import (
    CannotTell,
    Claim,
    Facts,
    Fix,
    Outcome,
    Use,
    cannot_tell,
    lacks_rates,
    no_ceilings,
    no_use,
    on_cores,
    rows_of,
    time_of,
)
from findwall.model.events import Kind
from findwall.model.intervals import F64, I64
from findwall.model.probes import Draw, Rewrite
from findwall.replay.change import Change
from findwall.replay.curves import curves
from findwall.step.step_facts import StepFacts
from findwall.units import NS_PER_S
from findwall.work.op_arguments import Arguments, Tensor, broadcast, is_floating
from findwall.work.work_facts import WorkFacts

MOVES = ("unfused-pointwise", "memory-roof", "layout-copies")
SUB = "aten::sub"
SCALES = ("aten::div", "aten::mul")
SQUARES = ("aten::pow", "aten::square")
SUMS = ("aten::sum", "aten::linalg_vector_norm")
# Over the n × m numbers: the product writes them; they are doubled, taken off the sums that are written for
# all pairs, and clamped. Backward the clamp, the doubling, both products and both sums read or write them.
FORWARD_PASSES, BACKWARD_PASSES = 9, 9
FORWARD_KERNELS, BACKWARD_KERNELS = 10, 12
MATH = "fp32"  # of the product, in which no digits are lost


def plain(torch: Any, a: Any, b: Any, scale: Any = None) -> Any:
    """As it is written today: [..., n, d] and [..., m, d] to [..., n, m]."""
    difference = a.unsqueeze(-2) - b.unsqueeze(-3)
    if scale is not None:
        difference = difference / scale
    return difference.pow(2).sum(-1)


def cheaper(torch: Any, a: Any, b: Any, scale: Any = None) -> Any:
    """The same by a product."""
    if scale is not None:
        a, b = a / scale, b / scale
    squares = a.square().sum(-1).unsqueeze(-1) + b.square().sum(-1).unsqueeze(-2)
    return (squares - 2 * a @ b.mT).clamp(min=0)


class _Pairs(msgspec.Struct, frozen=True):
    """The differences of all pairs, and what makes a number of each."""

    rows: tuple[int, ...]  # the ops, from the subtraction to the sum
    left: Tensor
    right: Tensor
    shape: tuple[int, ...]  # [..., n, m, d]
    scaled: bool

    @property
    def pairs(self) -> int:
        return math.prod(self.shape[:-1])


class _Found(msgspec.Struct, frozen=True):
    pairs: _Pairs
    forward: I64  # atoms
    backward: I64

    @property
    def atoms(self) -> I64:
        return np.concatenate([self.forward, self.backward])


def use(facts: Facts) -> Outcome:
    differences = _differences(facts)
    return differences if isinstance(differences, Use) else _products(facts) or differences


def _products(facts: Facts) -> Use | None:
    """Of all pairs, that are only added up; None where there is none that a product would do sooner."""
    if lacks_rates(facts):
        return None
    found = [one for one in summed_products(facts) if _product_ns(facts, one) < kernels_ns(facts, one.atoms)]
    if not found:
        return None
    every = np.concatenate([one.atoms for one in found])
    largest = max(found, key=lambda one: one.pairs)
    places = dict.fromkeys(line for one in found if (line := line_of(facts, one.rows[0])) is not None)
    best = Change()
    for one in found:
        for atoms in (one.forward, one.backward):
            best += as_one_pass(facts, atoms, one.results * one.left.size)
    return Use(
        Claim(
            "pairwise-product/sum",
            {"spent_ms": time_of(facts, every), "pairs": largest.pairs, "results": largest.results},
            places=list(places),
        ),
        best,
        causes_of(facts, every, MOVES),
        likely=lambda made: in_few_kernels(
            [
                (rows_of(facts, atoms), kernels, kernels * _product_ns(facts, one, once=True))
                for one in found
                for atoms, kernels in ((one.forward, 1), (one.backward, 2))
            ]
        ),
    )


def _product_ns(facts: WorkFacts, one: SummedProduct, once: bool = False) -> float:
    """ns of the products of matrices that give the same: of one of them, or of it and its gradients."""
    flops = 2.0 * one.pairs / facts.ceilings.flops.get(MATH, np.inf) * NS_PER_S
    products = 1 if once else 1 + 2 * (len(one.backward) > 0)
    if on_cores(facts):
        return products * flops
    return products * float(curves().likely_ns(f"matmul/{MATH}", np.array([max(flops, 1.0)]))[0])


def _differences(facts: Facts) -> Outcome:
    found_at = _subtractions(facts)
    readers = {shape: reading(facts, shape) for shape in set(found_at.values())}
    seen = [_chain(facts, row, found_at, readers[shape]) for row, shape in found_at.items()]
    if not seen:
        return no_use("pairwise-product/none")
    chains = [one for one in seen if isinstance(one, _Pairs)]
    if not chains:
        unclear = next((one for one in seen if isinstance(one, CannotTell)), None)
        return unclear or no_use("pairwise-product/none")
    if lacks_rates(facts):
        return no_ceilings(facts)
    found = [_with_atoms(facts, one) for one in chains]
    found = [one for one in found if len(one.forward)]
    if not on_cores(facts):
        found = [one for one in found if _then(facts, one).sum() < kernels_ns(facts, one.atoms)]
    if not found:
        return no_use("pairwise-product/short")
    every = np.concatenate([one.atoms for one in found])
    largest = max(found, key=lambda one: one.pairs.pairs)
    *_, n, m, d = largest.pairs.shape
    claim = Claim(
        "pairwise-product/multiply",
        {
            "spent_ms": time_of(facts, every),
            "left": n,
            "right": m,
            "width": d,
            "scaled": largest.pairs.scaled,
        },
        places=list(
            dict.fromkeys(line for one in found if (line := line_of(facts, one.pairs.rows[0])) is not None)
        ),
    )
    return Use(
        claim,
        _best(facts, found),
        causes_of(facts, every, MOVES),
        likely=lambda made: _likely(facts, found),
        rewrites=_rewrites(facts, found),
    )


def _subtractions(facts: StepFacts) -> dict[int, tuple[int, ...]]:
    """Subtractions of the job's own that widen both sides, rows of one against rows of the other, with the
    shape of what they give; in their order."""
    events = facts.timeline.events
    names = [at for at, name in enumerate(facts.timeline.names) if name == SUB]
    rows = facts.timeline.rows(Kind.OP)
    rows = rows[np.isin(events.name[rows], names) & ~facts.links.backward[rows]]
    rows = rows[np.argsort(events.start[rows], kind="stable")]
    shapes: dict[int, tuple[int, ...] | None] = {}
    for kind, first in zip(*np.unique(events.inputs[rows], return_index=True), strict=True):
        sides = _sides(Arguments(facts.timeline.inputs_of(int(rows[first]))))
        shapes[int(kind)] = broadcast([one.dims for one in sides]) if sides is not None else None
    found = {row: shapes[int(events.inputs[row])] for row in rows.tolist()}
    return {row: shape for row, shape in found.items() if shape is not None}


def _sides(given: Arguments) -> tuple[Tensor, Tensor] | None:
    """[..., n, 1, d] and [..., 1, m, d], with n and m more than one."""
    left, right = given.tensor(0), given.tensor(1)
    if left is None or right is None or min(len(left.dims), len(right.dims)) < 2:
        return None
    rank = max(len(left.dims), len(right.dims))
    if rank < 3 or not is_floating(left.dtype):
        return None
    one, other = ((1,) * (rank - len(side.dims)) + side.dims for side in (left, right))
    across = (one[-2] == 1) != (other[-2] == 1) and (one[-3] == 1) != (other[-3] == 1)
    apart = (one[-2] == 1) != (one[-3] == 1)
    same = one[-1] == other[-1] > 1 and one[:-3] == other[:-3]
    return (left, right) if across and apart and same else None


def _chain(
    facts: StepFacts, row: int, found_at: dict[int, tuple[int, ...]], readers: I64
) -> _Pairs | CannotTell | None:
    """From a subtraction to the sum of squares, where nothing else reads such a tensor in its step.

    The trace does not say which tensor an op reads, so their shapes tell."""
    sides, shape = _sides(Arguments(facts.timeline.inputs_of(row))), found_at[row]
    assert sides is not None
    start = facts.timeline.events.start
    again = [int(start[one]) for one, other in found_at.items() if other == shape and start[one] > start[row]]
    rows, scaled, squared, summed = [row], False, False, False
    for one in read_behind(facts, row, readers, min(again, default=None)):
        name, given = facts.timeline.name_of(one), Arguments(facts.timeline.inputs_of(one))
        if summed:
            return cannot_tell("pairwise-product/read-otherwise")
        if name in SCALES and not squared and _is_scale(given, shape):
            scaled = True
        elif not squared and _squares(name, given):
            squared = True
        elif name in SUMS and _sums(name, given, len(shape)) and squared == (name == SUMS[0]):
            summed = True
        else:
            return cannot_tell("pairwise-product/read-otherwise")
        rows.append(one)
    return _Pairs(tuple(rows), *sides, shape, scaled) if summed else None


def _is_scale(given: Arguments, shape: tuple[int, ...]) -> bool:
    """Whether the differences are scaled by one number, or one for each of their last dimension."""
    tensors = given.tensors()
    others = [one for one in tensors if one.dims != shape]
    if len(tensors) - len(others) != 1:
        return False
    return all(one.dims[-1] in (1, shape[-1]) and math.prod(one.dims[:-1]) == 1 for one in others)


def _squares(name: str, given: Arguments) -> bool:
    """Whether the differences are squared. A product of two such tensors may be one with weights."""
    return name == SQUARES[1] or (name == SQUARES[0] and given.number(1) == 2)


def _sums(name: str, given: Arguments, rank: int) -> bool:
    """Whether it sums over the last dimension alone: sum(x, dims, …), vector_norm(x, 2, dims, …)."""
    norm = name == SUMS[1]
    axes = given.numbers(2 if norm else 1)
    return (
        axes is not None
        and [axis % rank for axis in axes] == [rank - 1]
        and (not norm or given.number(1) == 2)
    )


def _with_atoms(facts: WorkFacts, pairs: _Pairs) -> _Found:
    """All that these ops launched, and what their backward pass did."""
    below = list(pairs.rows)
    for one in below:
        below += called_by(facts, one)
    return _Found(pairs, *passes(facts).atoms_of(below))


def _then(facts: WorkFacts, one: _Found) -> F64:
    """ns of the passes over all pairs, forward and backward; the products have few numbers to add up, and
    write or read the pairs too."""
    numbers = float(one.pairs.pairs)
    flops = 2 * numbers * one.pairs.shape[-1] / facts.ceilings.flops.get(MATH, np.inf) * NS_PER_S
    a_pass = pass_ns(facts, numbers * one.pairs.left.size)
    a_product = max(float(curves().likely_ns(f"matmul/{MATH}", np.array([max(flops, 1.0)]))[0]) - a_pass, 0.0)
    back = (BACKWARD_PASSES * a_pass + 2 * a_product) if len(one.backward) else 0.0
    return np.array([FORWARD_PASSES * a_pass + a_product, back])


def _best(facts: WorkFacts, found: list[_Found]) -> Change:
    """The pairs written once, and read once in the backward pass."""
    change = Change()
    for one in found:
        for atoms in (one.forward, one.backward):
            change += as_one_pass(facts, atoms, one.pairs.pairs * one.pairs.left.size)
    return change


def _likely(facts: WorkFacts, found: list[_Found]) -> Change:
    """As many kernels as the other form launches, and no more than there are today."""
    parts = []
    for one in found:
        ahead, back = _then(facts, one).tolist()
        parts.append((rows_of(facts, one.forward), FORWARD_KERNELS, ahead))
        parts.append((rows_of(facts, one.backward), BACKWARD_KERNELS, back))
    return in_few_kernels(parts)


def _rewrites(facts: WorkFacts, found: list[_Found]) -> tuple[Rewrite, ...]:
    """One for each shape."""
    by_given: dict[tuple[object, ...], list[_Found]] = {}
    for one in found:
        key = (one.pairs.shape, one.pairs.left.dtype, one.pairs.scaled, len(one.backward) > 0)
        by_given.setdefault(key, []).append(one)
    return tuple(_rewrite(facts, mine) for mine in by_given.values())


def _rewrite(facts: WorkFacts, mine: list[_Found]) -> Rewrite:
    pairs, backward = mine[0].pairs, len(mine[0].backward) > 0
    *batch, n, m, d = pairs.shape
    down, across, learned = _given(facts, mine[0])
    sides = [
        Draw((*batch, size, d), pairs.left.dtype, has_gradient=has) for size, has in ((n, down), (m, across))
    ]
    scale = Draw((d,), pairs.left.dtype, has_gradient=learned) if pairs.scaled else None
    rows = np.unique(rows_of(facts, np.concatenate([one.atoms for one in mine])))
    return Rewrite("pairwise-product", (*sides, scale), rows, len(mine), backward)


def _given(facts: WorkFacts, one: _Found) -> tuple[bool, bool, bool]:
    """Which get gradients: the side with rows down, the side with rows across, and the scale.

    The gradient of each side is a sum over the other, and that of what is taken off is turned round first; a
    scale that is learned takes several ops, one that is not a single one."""
    ops = np.unique(facts.kernels.op[facts.atoms.index[one.backward]])
    of = facts.links.forward[ops]
    names = [facts.timeline.name_of(int(row)) for row in ops[of == one.pairs.rows[0]]]
    taken_off = "aten::neg" in names
    kept = names.count("aten::sum") > taken_off
    scales = [row for row in one.pairs.rows[1:] if facts.timeline.name_of(row) in SCALES]
    learned = any(int((of == row).sum()) > 1 for row in scales)
    left_is_down = one.pairs.left.dims[-2] == 1
    return (kept, taken_off, learned) if left_is_down else (taken_off, kept, learned)


FIX = Fix(MOVES, "changes-numerics", use, removes=True)
