"""Embedding tables of which a step looks up a few rows, and all that goes through them whole.

A gradient as large as the table is zeroed and written for those few rows, and the optimizer then walks over
the whole of it, the table and its states.
"""

from __future__ import annotations

import re
from collections import defaultdict

import msgspec
import numpy as np

from findwall.facts.facts import Facts, of_class
from findwall.facts.op_shapes import tensors_of
from findwall.facts.step_traits import calls_around
from findwall.model.catalogue import FAIR_PART, MATRIX_CLASSES
from findwall.model.events import Bool
from findwall.model.intervals import F64, I64
from findwall.step.links import nearest
from findwall.step.step_facts import StepFacts, found_once
from findwall.units import ms
from findwall.work.op_arguments import Arguments
from findwall.work.op_families.optimizer import is_list_op, parameter_count
from findwall.work.work_facts import WorkFacts

_BACKWARD = "aten::embedding_dense_backward"
_OF_LOOKUP = re.compile(r"EmbeddingBackward|embedding_dense_backward|AccumulateGrad")
_UPDATE = re.compile(r"^Optimizer\.step")
Shape = tuple[int, int]


class Table(msgspec.Struct, frozen=True):
    """The tables of one shape."""

    rows: int
    width: int
    calls: int  # lookups a step: of one table again and again, or of as many tables
    looked_up: float  # rows a step, by all of them; the same one may be among them twice
    op: int  # a backward of them
    scaled: bool  # gradients are divided by how often a row comes up: no sparse one can be
    elsewhere: (
        bool  # the step may use the whole of it as well: a product has as many rows, or another gradient
    )

    @property
    def shape(self) -> Shape:
        return self.rows, self.width


class Tables(msgspec.Struct, frozen=True):
    """Those of which a step looks up little, and what goes through the whole of them for that."""

    tables: tuple[Table, ...]
    atoms: I64
    share: F64  # of each atom's work: what the tables are of it
    untold: bool = False  # how much of the update is theirs nobody recorded


def tables_ms(facts: Facts) -> float:
    """What goes through whole tables for a few rows, a step; nothing where nobody can tell."""
    found = sparse_tables(facts)
    if found.untold or facts.kernels.communication.any():
        return 0.0
    return ms(float((facts.own[found.atoms] * found.share).sum()))


@found_once
def sparse_tables(facts: Facts) -> Tables:
    """Those with few lookups; `tables` is empty where there are none."""
    found = tuple(one for one in _tables(facts) if one.looked_up <= FAIR_PART * one.rows)
    nothing = np.zeros(0, np.int64)
    usable = {one.shape: one for one in found if not one.scaled and not one.elsewhere}
    if not usable:
        return Tables(found, nothing, np.zeros(0))
    op = facts.kernels.op[facts.atoms.index]
    whole = _inside(facts, op, _OF_LOOKUP) | _inside(facts, op, _UPDATE)
    atoms = np.flatnonzero(whole & ~of_class(facts, "gather", *MATRIX_CLASSES))
    share = np.zeros(len(atoms))
    untold = False
    by_op: dict[int, float | None] = {}
    for at, row in enumerate(op[atoms].tolist()):
        if row not in by_op:
            by_op[row] = _share(facts, row, usable)
        mine = by_op[row]
        untold |= mine is None
        share[at] = mine or 0.0
    return Tables(found, atoms[share > 0], share[share > 0], untold)


def _tables(facts: WorkFacts) -> list[Table]:
    ops = np.unique(calls_around(facts, np.arange(len(facts.atoms.index)), frozenset((_BACKWARD,))))
    ops = ops[ops >= 0]
    calls: dict[Shape, list[tuple[int, int, bool]]] = defaultdict(list)
    for row in ops.tolist():
        arguments = Arguments(facts.timeline.inputs_of(row))
        gradient, index, rows = arguments.tensor(0), arguments.tensor(1), arguments.number(2)
        if gradient is not None and gradient.dims and index is not None and rows:
            scaled = arguments.flag(4) is not False
            calls[int(rows), gradient.dims[-1]].append((row, index.elements, scaled))
    steps = max(facts.steps.count, 1)
    return [
        Table(
            *shape,
            calls=max(round(len(mine) / steps), 1),
            looked_up=sum(count for _, count, _ in mine) / steps,
            op=mine[0][0],
            scaled=any(scaled for *_, scaled in mine),
            elsewhere=_elsewhere(facts, shape),
        )
        for shape, mine in calls.items()
    ]


def _elsewhere(facts: WorkFacts, shape: Shape) -> bool:
    """Whether a product may read the table, as an output layer does that shares it, or a gradient of another
    op than a lookup has its shape."""
    op = facts.kernels.op[facts.atoms.index]
    products = np.unique(op[of_class(facts, *MATRIX_CLASSES) & (op >= 0)])
    if any(shape[0] in one.dims for row in products.tolist() for one in tensors_of(facts, row)):
        return True
    other = (op >= 0) & facts.links.backward[np.maximum(op, 0)] & ~_inside(facts, op, _OF_LOOKUP)
    return any(
        shape == one.dims for row in np.unique(op[other]).tolist() for one in tensors_of(facts, int(row))
    )


def _inside(facts: StepFacts, ops: I64, pattern: re.Pattern[str]) -> Bool:
    """Which ops lie inside a row of such a name."""
    around = nearest(facts.links.parent, facts.timeline.named(pattern)[facts.timeline.events.name])
    return (ops >= 0) & (around[np.maximum(ops, 0)] >= 0)


def _share(facts: StepFacts, row: int, tables: dict[Shape, Table]) -> float | None:
    """Of an op's work that of the tables; None where its lists were not recorded."""
    namespace, _, name = facts.timeline.name_of(row).rpartition("::")
    if not is_list_op(namespace, name):
        return float(any(one.dims in tables for one in tensors_of(facts, row)))
    dims = [one.dims for one in Arguments(facts.timeline.inputs_of(row)).tensor_list(0)]
    total = float(sum(map(_numbers, dims))) if dims else parameter_count(facts.timeline, facts.steps.count)
    if not total:
        return None
    mine = (
        min(dims.count(shape), one.calls) if dims else 1 for shape, one in tables.items()
    )  # of a list without sizes each is surely once in it
    sizes = zip(mine, tables, strict=True)
    return min(sum(count * _numbers(shape) for count, shape in sizes) / total, 1.0)


def _numbers(dims: tuple[int, ...]) -> int:
    return int(np.prod(np.array(dims, np.float64))) if dims else 1
