"""Pick the first few with `topk` instead of putting whole rows in order.

What it does:
A sort puts every value of a row in its place and writes as many 8-byte positions. Where only the first k of
them are read, `topk` looks for the k-th value and picks what lies before it, in the same order:

    x.topk(k, dim=-1)                   # x.sort(dim=-1, descending=True), [..., :k] of both
    x.topk(k, dim=-1, largest=False)    # the same of an ascending sort

When it does not help:
Most of the row is read, or rows are so short that sorting them takes no longer than looking through them.

Risk:
Values are the same; of equal ones at the edge others may be picked, as a sort that is not stable may too.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec
import numpy as np

from findwall.facts.best_changes import in_another_form
from findwall.facts.called_atoms import atoms_under, called_by, longest_of, ops_behind
from findwall.facts.facts import causes_of, kernels_ns
from findwall.facts.likely_times import pass_ns
from findwall.facts.user_lines import line_of
from findwall.fixes import (
    CannotTell,
    Claim,
    Facts,
    Fix,
    Outcome,
    Use,
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
from findwall.step.step_facts import StepFacts
from findwall.work.op_arguments import Arguments, Tensor
from findwall.work.work_facts import START_NS, WorkFacts

MOVES = ("slow-kernels", "layout-copies")
_SORTS = re.compile(r"^aten::(sort|argsort)$")
_SLICE, _NARROW = "aten::slice", "aten::narrow"
POSITION = "long int"
# How torch looks for the k-th value: once through the row for so many bits of it, by one block or by many,
# which it decides by the number of rows and their length; then twice more, to pick what lies before it.
BITS_BY_ONE, BITS_BY_MANY, TO_PICK = 2, 8, 2


def plain(torch: Any, x: Any, k: int, largest: bool) -> tuple[Any, Any]:
    """As it is written today."""
    values, places = x.sort(dim=-1, descending=largest)
    return values[..., :k], places[..., :k]


def cheaper(torch: Any, x: Any, k: int, largest: bool) -> tuple[Any, Any]:
    """The same without putting the rest in order."""
    values, places = x.topk(k, dim=-1, largest=largest)
    return values, places


class _Sort(msgspec.Struct, frozen=True):
    """A sort of which the first few are read."""

    row: int
    given: Tensor
    axis: int
    few: int  # that are read
    largest: bool
    main: I64  # the atom that sorts
    beside: I64

    @property
    def length(self) -> int:
        """Of what is put in order at once."""
        return self.given.dims[self.axis]


def use(facts: Facts) -> Outcome:
    sorts = _sorts(facts)
    if not sorts:
        return no_use("topk/none")
    found = [_known(facts, row, atoms) for row, atoms in sorts.items()]
    mine = [one for one in found if isinstance(one, _Sort)]
    if not mine:
        unclear = next((one for one in found if isinstance(one, CannotTell)), None)
        return unclear or no_use("topk/all-read")
    if lacks_rates(facts):
        return no_ceilings(facts)
    mine = [one for one in mine if on_cores(facts) or _then(facts, one, BITS_BY_ONE) < _now(facts, one)]
    if not mine:
        return no_use("topk/short-rows")
    every = np.concatenate([part for one in mine for part in (one.main, one.beside)])
    longest = max(mine, key=lambda one: one.given.elements)
    claim = Claim(
        "topk/pick",
        {
            "spent_ms": time_of(facts, every),
            "few": longest.few,
            "length": longest.length,
            "rows": longest.given.elements // longest.length,
            "largest": longest.largest,
            "axis": longest.axis if longest.axis < len(longest.given.dims) - 1 else None,
        },
        places=list(dict.fromkeys(line for one in mine if (line := line_of(facts, one.row)) is not None)),
    )
    return Use(
        claim,
        _best(facts, mine),
        causes_of(facts, every, MOVES),
        likely=lambda made: _likely(facts, mine, BITS_BY_ONE),
        may=(lambda made: _likely(facts, mine, BITS_BY_MANY),),
        condition="sorted-read-by-nothing-else",
        rewrites=_rewrites(facts, mine),
    )


def _sorts(facts: WorkFacts) -> dict[int, I64]:
    """The sorts that a job calls, with their atoms: of one inside another the outer."""
    rows = facts.timeline.rows_named(_SORTS, Kind.OP)
    around = runs_in(facts.timeline, facts.links, rows)
    parent = facts.links.parent[rows]
    outer = (parent < 0) | (around[np.maximum(parent, 0)] < 0)
    return atoms_under(facts, rows[outer])


def _known(facts: WorkFacts, row: int, atoms: I64) -> _Sort | CannotTell | None:
    """How many are read of what one sort gives; None: all of it, or a stable order is asked for."""
    given, axis, largest, stable = _asked(facts, row)
    if given is None or axis is None or largest is None or stable is None:
        return cannot_tell("topk/no-shapes")
    if stable:
        return None
    few = _few(facts, row, given, axis)
    if few is None:
        return cannot_tell("topk/read-otherwise")
    if not 0 < few < given.dims[axis]:
        return None
    main = longest_of(facts, atoms)
    return _Sort(row, given, axis, few, largest, main, np.setdiff1d(atoms, main))


def _asked(facts: StepFacts, row: int) -> tuple[Tensor | None, int | None, bool | None, bool | None]:
    """What is sorted, along which axis, the largest first or not, and whether equal ones keep their order."""
    below = [row]
    for one in below:
        below += [at for at in called_by(facts, one) if _SORTS.match(facts.timeline.name_of(at))]
    asked = Arguments(facts.timeline.inputs_of(below[-1]))  # (x, stable, axis, descending)
    given, axis = asked.tensor(0), asked.number(2)
    if given is None or not given.dims or axis is None:
        return None, None, None, None
    return given, int(axis) % len(given.dims), asked.flag(3), asked.flag(1)


def _few(facts: StepFacts, row: int, given: Tensor, axis: int) -> int | None:
    """How many of the first are read; the whole length where more is, None where nobody can tell.

    The trace does not say which tensor an op reads: until the next sort of as many, all that reads a tensor
    of positions of that shape must take the first few, and of values too where the sort gives them.
    """
    events = facts.timeline.events
    only_places = facts.timeline.name_of(row) == "aten::argsort"
    most, until = 0, 0
    for one in ops_behind(facts, row):
        if events.start[one] < until:
            continue
        name, asked = facts.timeline.name_of(one), Arguments(facts.timeline.inputs_of(one))
        if _SORTS.match(name) and asked.inputs.shape(0) == given.dims:
            break
        read = [tensor for tensor in asked.tensors() if tensor.dims == given.dims]
        read = [tensor for tensor in read if tensor.dtype == POSITION or not only_places]
        if not read:
            continue
        taken = _taken(name, asked, axis, len(given.dims))
        if taken is None:
            return None
        most, until = max(most, taken), int(events.end[one])
    return most or None


def _taken(name: str, asked: Arguments, axis: int, dims: int) -> int | None:
    """How many of the first an op takes along an axis; None where it does something else."""
    at, first, second = asked.number(1), asked.number(2), asked.number(3)
    if name not in (_SLICE, _NARROW) or at is None or int(at) % dims != axis or first != 0 or second is None:
        return None
    return int(second) if name == _NARROW or asked.number(4) == 1 else None


def _now(facts: WorkFacts, one: _Sort) -> float:
    return kernels_ns(facts, np.append(one.main, one.beside))


def _then(facts: WorkFacts, one: _Sort, bits: int) -> float:
    """As many passes as torch makes to select, each as fast as one over memory; then the few are sorted."""
    passes = one.given.size * 8 / bits + TO_PICK
    return (
        START_NS
        + passes * pass_ns(facts, one.given.elements * one.given.size)
        + _now(facts, one) * one.few / one.length
    )


def _best(facts: WorkFacts, sorts: list[_Sort]) -> Change:
    """Every value read once."""
    main = np.concatenate([one.main for one in sorts])
    read = np.array([float(one.given.elements * one.given.size) for one in sorts])
    return in_another_form(facts, main, read) + gone(facts, np.concatenate([one.beside for one in sorts]))


def _likely(facts: WorkFacts, sorts: list[_Sort], bits: int) -> Change:
    main, beside = (
        np.concatenate(one) for one in zip(*((one.main, one.beside) for one in sorts), strict=True)
    )
    then = np.array([_then(facts, one, bits) for one in sorts])
    return Change((Replace(rows_of(facts, main), then), Drop(np.unique(rows_of(facts, beside)))))


def _rewrites(facts: WorkFacts, sorts: list[_Sort]) -> tuple[Rewrite, ...]:
    """One for each shape; none where another axis than the last is sorted."""
    alike: dict[tuple[object, ...], list[_Sort]] = {}
    for one in sorts:
        alike.setdefault((one.given.dims, one.given.dtype, one.few, one.largest), []).append(one)
    if any(one.axis != len(one.given.dims) - 1 for one in sorts):
        return ()
    return tuple(
        Rewrite(
            "topk",
            (Draw(mine[0].given.dims, mine[0].given.dtype), mine[0].few, mine[0].largest),
            np.unique(rows_of(facts, np.concatenate([np.append(one.main, one.beside) for one in mine]))),
            len(mine),
        )
        for mine in alike.values()
    )


FIX = Fix(MOVES, "safe", use, reorders=True, removes=True)
