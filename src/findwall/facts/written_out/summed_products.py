"""Products of all pairs that are only added up: a product of matrices, written out.

`(a[:, :, None] * b[:, None]).sum(0)` widens both sides, so that every pair of numbers is multiplied and
written, and read again for the sum. The trace does not say which tensor an op reads, so their shapes tell.
"""

from __future__ import annotations

import math

import msgspec
import numpy as np

from findwall.facts.called_atoms import called_by, passes, read_behind, reading
from findwall.model.events import Kind
from findwall.model.intervals import I64
from findwall.step.step_facts import StepFacts
from findwall.work.op_arguments import Arguments, Tensor, broadcast, is_floating
from findwall.work.work_facts import WorkFacts

PRODUCT = "aten::mul"
SUMS = frozenset({"aten::sum", "aten::mean"})


class SummedProduct(msgspec.Struct, frozen=True):
    """One of them, in the forward pass."""

    rows: tuple[int, int]  # the product and its sum
    left: Tensor
    right: Tensor
    shape: tuple[int, ...]  # of all pairs
    axes: tuple[int, ...]  # that are summed
    forward: I64  # atoms
    backward: I64

    @property
    def atoms(self) -> I64:
        return np.concatenate([self.forward, self.backward])

    @property
    def pairs(self) -> int:
        return math.prod(self.shape)

    @property
    def results(self) -> int:
        return self.pairs // math.prod(self.shape[axis] for axis in self.axes)


def summed_products(facts: WorkFacts) -> list[SummedProduct]:
    """Those of the counted steps, in their order."""
    events = facts.timeline.events
    rows = facts.timeline.rows(Kind.OP)
    names = [at for at, name in enumerate(facts.timeline.names) if name == PRODUCT]
    rows = rows[np.isin(events.name[rows], names) & ~facts.links.backward[rows]]
    rows = rows[np.argsort(events.start[rows], kind="stable")]
    sides = {
        int(kind): _sides(Arguments(facts.timeline.inputs_of(int(rows[first]))))
        for kind, first in zip(*np.unique(events.inputs[rows], return_index=True), strict=True)
    }
    found_at = {row: pair for row in rows.tolist() if (pair := sides[int(events.inputs[row])]) is not None}
    by_shape: dict[tuple[int, ...], list[int]] = {}
    for row, (left, right) in found_at.items():
        by_shape.setdefault(broadcast([left.dims, right.dims]), []).append(row)
    found = []
    for shape, mine in by_shape.items():
        readers = reading(facts, shape)
        for row, following in zip(mine, [*mine[1:], None], strict=True):
            until = None if following is None else int(events.start[following])
            summed = _sum_behind(facts, row, readers, shape, found_at[row], until)
            if summed is not None:
                found.append(_with_atoms(facts, row, *summed, found_at[row], shape))
    return sorted((one for one in found if len(one.forward)), key=lambda one: one.rows)


def _sides(given: Arguments) -> tuple[Tensor, Tensor] | None:
    """Two tensors of which each is repeated for the other."""
    left, right = given.tensor(0), given.tensor(1)
    if left is None or right is None or not is_floating(left.dtype) or not is_floating(right.dtype):
        return None
    down, across = _wide(left, right)
    return (left, right) if down and across else None


def _wide(left: Tensor, right: Tensor) -> tuple[set[int], set[int]]:
    """The axes that only one side has, and those that only the other has."""
    rank = max(len(left.dims), len(right.dims))
    one, other = ((1,) * (rank - len(side.dims)) + side.dims for side in (left, right))
    pairs = list(enumerate(zip(one, other, strict=True)))
    return {at for at, (a, b) in pairs if a > 1 == b}, {at for at, (a, b) in pairs if b > 1 == a}


def _sum_behind(
    facts: StepFacts,
    row: int,
    readers: I64,
    shape: tuple[int, ...],
    sides: tuple[Tensor, Tensor],
    until: int | None,
) -> tuple[int, tuple[int, ...]] | None:
    """The only op that is given the product, if it adds up what both sides have, and leaves something of
    each."""
    behind = read_behind(facts, row, readers, until)
    if len(behind) != 1 or facts.timeline.name_of(behind[0]) not in SUMS:
        return None
    axes = Arguments(facts.timeline.inputs_of(behind[0])).numbers(1)
    if not axes:
        return None
    summed = {int(axis) % len(shape) for axis in axes}
    down, across = _wide(*sides)
    shared = {axis for axis in summed if axis not in down | across and shape[axis] > 1}
    if not shared or not down - summed or not across - summed:
        return None
    return behind[0], tuple(sorted(summed))


def _with_atoms(
    facts: WorkFacts,
    row: int,
    summed: int,
    axes: tuple[int, ...],
    sides: tuple[Tensor, Tensor],
    shape: tuple[int, ...],
) -> SummedProduct:
    below = [row, summed]
    for one in below:
        below += called_by(facts, one)
    return SummedProduct((row, summed), *sides, shape, axes, *passes(facts).atoms_of(below))
