"""Fetch rows with `index_select`, whose backward adds them up at once.

What it does:
`x[idx]` takes rows by number. Its backward pass sorts the numbers and adds the gradients of equal ones one
after the other: where few rows are taken very often, most of the device waits for them. `index_select` gives
the same rows, and its backward adds with atomics, all rows at once:

    x.index_select(0, idx)                                          # instead of x[idx]
    x.index_select(0, idx.flatten()).unflatten(0, idx.shape)        # where idx has several dims

When it does not help:
Each row is taken about once: then sorting and adding is as fast. A mask, several indices at once or another
dimension than the first are other calls. In 16 bits atomics round after every addition, which `x[idx]` does
not: then the rows are better cast after they are taken.

Risk:
Gradients are added in no fixed order: the last bits differ, from run to run too. A negative index is an error
in `index_select`. Under `torch.use_deterministic_algorithms(True)` it sorts as well, and nothing is gained.
"""

from __future__ import annotations

import math
import re
from typing import Any

import msgspec
import numpy as np

from findwall.facts.best_changes import in_another_form
from findwall.facts.called_atoms import atoms_under, called_by, longest_of
from findwall.facts.facts import kernels_ns
from findwall.facts.rows_by_number import adding_ns
from findwall.facts.user_lines import line_of
from findwall.fixes import (
    Claim,
    Facts,
    Fix,
    Outcome,
    Use,
    as_on_cores,
    cannot_tell,
    gone,
    lacks_rates,
    no_ceilings,
    no_use,
    on_cores,
    rows_of,
    time_of,
)
from findwall.model.events import Kind
from findwall.model.intervals import I64
from findwall.model.probes import Draw, Rewrite
from findwall.replay.change import Change, Drop, Replace
from findwall.step.links import runs_in
from findwall.work.op_arguments import Arguments, Tensor
from findwall.work.work_facts import WorkFacts

_PUT = re.compile(r"^aten::_index_put_impl_$")
_INDEX_BACKWARD = re.compile(r"^IndexBackward\d+$")
FULL_BYTES = 4  # of a number that atomics may add to many times

# What a put is found to be, where it is not one that `index_select` can do.
NO_SHAPES, OTHER, NARROW = "no-shapes", "other-index", "sixteen-bits"


def plain(torch: Any, x: Any, idx: Any) -> Any:
    """As it is written today."""
    return x[idx]


def cheaper(torch: Any, x: Any, idx: Any) -> Any:
    """The same rows, with a backward that adds them at once."""
    return torch.index_select(x, 0, idx.flatten()).unflatten(0, idx.shape)


class _Put(msgspec.Struct, frozen=True):
    """The backward of one `x[idx]`: kernels that sort, and one that adds."""

    row: int
    table: Tensor
    index: tuple[int, ...]  # dims of idx
    gradient: Tensor  # of the rows that were taken
    adds: I64  # atoms of the kernel that adds
    sorts: I64  # of all others
    now: float  # ns
    then: float  # with atomics


def use(facts: Facts) -> Outcome:
    puts = _puts(facts)
    if not puts:
        return no_use("index-select/none")
    found = [_known(facts, row, atoms) for row, atoms in puts.items()]
    mine = [one for one in found if isinstance(one, _Put)]
    if not mine:
        said = next(one for one in (NO_SHAPES, NARROW, OTHER) if one in found)
        return cannot_tell("index-select/no-shapes") if said == NO_SHAPES else no_use(f"index-select/{said}")
    if lacks_rates(facts):
        return no_ceilings(facts)
    mine = [one for one in mine if on_cores(facts) or one.then < one.now]
    if not mine:
        return no_use("index-select/as-fast")
    longest = max(mine, key=lambda one: one.now)
    claim = Claim(
        "index-select/write",
        {
            "spent_ms": time_of(
                facts, np.concatenate([one for put in mine for one in (put.adds, put.sorts)])
            ),
            "calls": len(mine) / facts.steps.count,
            "indices": math.prod(longest.index),
            "rows": longest.table.dims[0],
            "flat": len(longest.index) == 1,
            **as_on_cores(facts),
        },
        places=list(dict.fromkeys(line for put in mine if (line := line_of(facts, put.row)) is not None)),
    )
    return Use(
        claim,
        _best(facts, mine),
        likely=lambda made: _likely(facts, mine),
        condition="no-negative-index",
        rewrites=_rewrites(facts, mine),
    )


def _puts(facts: WorkFacts) -> dict[int, I64]:
    """Gradients that are put where their rows came from, by the op's row, with their atoms."""
    inside = runs_in(facts.timeline, facts.links, facts.timeline.rows_named(_INDEX_BACKWARD, Kind.OP))
    rows = facts.timeline.rows_named(_PUT, Kind.OP)
    return atoms_under(facts, rows[inside[rows] >= 0])


def _known(facts: WorkFacts, row: int, atoms: I64) -> _Put | str:
    """(target, indices, values, accumulate): what it puts where, or why `index_select` cannot do that."""
    given = Arguments(facts.timeline.inputs_of(row))
    table, gradient = given.tensor(0), given.tensor(2)
    if table is None or gradient is None or not table.dims or given.flag(3) is None:
        return NO_SHAPES
    called = [
        (facts.timeline.name_of(one), Arguments(facts.timeline.inputs_of(one)))
        for one in called_by(facts, row)
    ]
    found = (_laid_out if on_cores(facts) else _spread_out)(called, table)
    if not found:
        return NO_SHAPES
    index, at_first = found[0]
    at_first &= gradient.dims == (*index.dims, *table.dims[1:])
    either = len(set(table.dims[:2] + index.dims)) == 1 < len(table.dims)  # as large in the second dimension
    masked = any(name == "aten::nonzero" for name, _ in called)
    if len(found) > 1 or masked or either or not at_first:
        return OTHER
    if table.size < FULL_BYTES:
        return NARROW
    adds = longest_of(facts, atoms)
    now = kernels_ns(facts, atoms)
    then = adding_ns(facts, float(gradient.elements * gradient.size))
    return _Put(row, table, index.dims, gradient, adds, np.setdiff1d(atoms, adds), now, then)


Called = list[tuple[str, Arguments]]


def _spread_out(called: Called, table: Tensor) -> list[tuple[Tensor, bool]]:
    """The indices, and whether each may be of the first dimension. A GPU's are not recorded, but what is done
    to each is: it is brought into the range of its dimension, then multiplied with the numbers that lie
    between two of that dimension's places."""
    wrapped = [given for name, given in called if name == "aten::remainder"]
    spread = [given for name, given in called if name == "aten::mul"]
    if len(spread) != len(wrapped):
        return []
    found = []
    for range_of, places in zip(wrapped, spread, strict=True):
        index, size, numbers = range_of.tensor(0), range_of.number(1), places.number(1)
        if index is None or size is None or numbers is None:
            return []
        found.append((index, size == table.dims[0] and numbers == math.prod(table.dims[1:])))
    return found


def _laid_out(called: Called, table: Tensor) -> list[tuple[Tensor, bool]]:
    """The same on cores: there each index is laid out over the dimensions behind its own."""
    found = []
    for name, given in called:
        index = given.tensor(0)
        if name == "aten::reshape" and index is not None:
            behind = [1] * (len(table.dims) - 1)
            found.append((index, given.numbers(1) == [*index.dims, *behind]))
    return found


def _best(facts: WorkFacts, puts: list[_Put]) -> Change:
    """Every gradient read once, and nothing sorted."""
    adds = np.concatenate([put.adds for put in puts])
    read = np.array([put.gradient.nbytes for put in puts])
    sorts = np.concatenate([put.sorts for put in puts])
    return in_another_form(facts, adds, read) + gone(facts, sorts)


def _likely(facts: WorkFacts, puts: list[_Put]) -> Change:
    """Atomics where the kernel that adds is, as fast as others of them."""
    adds, sorts = (np.concatenate(one) for one in zip(*((put.adds, put.sorts) for put in puts), strict=True))
    return Change(
        (
            Replace(rows_of(facts, adds), np.array([put.then for put in puts])),
            Drop(np.unique(rows_of(facts, sorts))),
        )
    )


def _rewrites(facts: WorkFacts, puts: list[_Put]) -> tuple[Rewrite, ...]:
    """One for each shape, with the rows taken in the forward pass."""
    alike: dict[tuple[object, ...], list[_Put]] = {}
    for one in puts:
        alike.setdefault((one.table.dims, one.table.dtype, one.index), []).append(one)
    found = []
    for mine in alike.values():
        table = mine[0].table
        taken = atoms_under(facts, facts.links.forward[[one.row for one in mine]])
        atoms = [part for one in mine for part in (one.adds, one.sorts)] + list(taken.values())
        given = (
            Draw(table.dims, table.dtype, has_gradient=True),
            Draw(mine[0].index, "long int", below=table.dims[0]),
        )
        rows = np.unique(rows_of(facts, np.concatenate(atoms)))
        found.append(Rewrite("index-select", given, rows, len(mine), backward=True))
    return tuple(found)


FIX = Fix(("gather-scatter", "slow-kernels"), "safe", use, reorders=True, removes=True)
