"""Comparisons of every value with every other that a job only adds up.

`(x[:, None] >= edges).sum(-1)` and `((times[:, None] <= times) * weights).sum(1)` write a number for each
pair, to read it once. Sorted values tell as much without any pair: those in front are smaller.
"""

from __future__ import annotations

import math
import re

import msgspec
import numpy as np

from findwall.facts.called_atoms import called_by, passes, read_behind, reading
from findwall.model.events import Kind
from findwall.model.intervals import I64
from findwall.step.step_facts import StepFacts
from findwall.work.op_arguments import Arguments, broadcast
from findwall.work.work_facts import WorkFacts

_COMPARES = re.compile(r"^aten::(ge|gt|le|lt|eq|ne)$")
_WEIGHS = "aten::mul"
_ADDS_UP = re.compile(r"^aten::(sum|count_nonzero|mean)$")
_PART = re.compile(r"^aten::(mul|sum|count_nonzero|mean|to|_to_copy)$")  # of what makes sums of pairs


class CountedPairs(msgspec.Struct, frozen=True):
    row: int  # the first comparison
    values: int  # of one side
    others: int  # of the other, that each of them is compared with
    weighted: bool
    atoms: I64  # of all that reads or writes a number for each pair, its gradients with it


def counted_pairs(facts: WorkFacts) -> CountedPairs | None:
    """Those that take longest; None where there are none."""
    events = facts.timeline.events
    rows = facts.timeline.rows_named(_COMPARES, Kind.OP)
    rows = rows[np.argsort(events.start[rows], kind="stable")]
    kinds, kind = np.unique(np.stack([events.name[rows], events.inputs[rows]]), axis=1, return_inverse=True)
    alike = [rows[kind == one] for one in range(kinds.shape[1])]
    found = [one for same in alike if (one := _added_up(facts, same)) is not None]
    return max(found, key=lambda one: float(facts.atoms.own[one.atoms].sum()), default=None)


def _added_up(facts: WorkFacts, alike: I64) -> CountedPairs | None:
    """Comparisons of values of one side with those of the other, where all that reads the first adds the
    pairs up."""
    row = int(alike[0])
    given = Arguments(facts.timeline.inputs_of(row))
    left, right = given.tensor(0), given.tensor(1)
    shape = broadcast([left.dims, right.dims]) if left is not None and right is not None else None
    if left is None or right is None or shape is None or facts.links.backward[row]:
        return None
    repeated = [_repeated(side.dims, shape) for side in (left, right)]
    if not all(repeated):
        return None
    readers = reading(facts, shape)
    chain = _chain(facts, row, readers, shape, set.union(*repeated))
    if not any(_ADDS_UP.match(name) for name in chain):
        return None
    below = [*alike.tolist(), *readers[facts.timeline.bears(_PART, readers)].tolist()]
    for one in below:
        below += called_by(facts, one)
    atoms = np.concatenate(passes(facts).atoms_of(below))
    return CountedPairs(row, left.elements, math.prod(shape) // left.elements, _WEIGHS in chain, atoms)


def _repeated(side: tuple[int, ...], shape: tuple[int, ...]) -> set[int]:
    """The dimensions of the pairs that one side is repeated along."""
    padded = (1,) * (len(shape) - len(side)) + side
    return {at for at, (one, every) in enumerate(zip(padded, shape, strict=True)) if one < every}


def _chain(
    facts: StepFacts, row: int, readers: I64, shape: tuple[int, ...], repeated: set[int]
) -> frozenset[str]:
    """The ops that pass the pairs on and add them up; none where anything else reads as many numbers before
    such pairs are made again."""
    found = set()
    for one in read_behind(facts, row, readers):
        name, reads = facts.timeline.name_of(one), Arguments(facts.timeline.inputs_of(one))
        if name == _WEIGHS and sum(tensor.dims == shape for tensor in reads.tensors()) > 1:
            return frozenset()  # every pair has a weight of its own
        if _ADDS_UP.match(name) and not {axis % len(shape) for axis in reads.numbers(1) or []} <= repeated:
            return frozenset()
        if not _PART.match(name):
            return frozenset()
        found.add(name)
    return frozenset(found)
