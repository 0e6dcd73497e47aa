"""Look rows up by number instead of multiplying with one-hot rows.

What it does:
`one_hot(idx, K) @ table` writes K numbers for every index, all of them zero but one, casts them, reads them
again and multiplies with them, to copy one row of the table. A lookup copies that row. Products with the
one-hot rows turned round, and their sums, add up the rows of each class; that needs no one-hot row either:

    F.embedding(idx, table)                                         # one_hot(idx, K).float() @ table
    torch.zeros(K, D, …).index_add_(0, idx, x)                      # one_hot(idx, K).float().t() @ x
    torch.zeros(K, …).index_add_(0, idx, torch.ones_like(x[:, 0]))  # one_hot(idx, K).float().sum(0)

`zeros(N, K).scatter_(1, idx[:, None], 1.0)` makes the same rows.

When it does not help:
There are few classes, or something else reads the one-hot rows too: then they are written in any case.

Risk:
A product in TF32 or 16 bits rounds the table's rows, a lookup does not. Sums are added in another order, and
with atomics in no fixed one. Where most indices are of one class such sums wait for each other: time them. A
row of infinities or NaNs reaches only those who look it up.
"""

from __future__ import annotations

import math
import re
from typing import Any

import msgspec
import numpy as np

from findwall.facts.best_changes import in_another_form
from findwall.facts.called_atoms import atoms_under, longest_of, ops_behind
from findwall.facts.facts import causes_of, kernels_ns
from findwall.facts.rows_by_number import OneHots, adding_ns, fetching_ns, one_hots
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
from findwall.model.intervals import F64, I64
from findwall.model.probes import Draw, Rewrite
from findwall.replay.change import Change, Drop, Replace
from findwall.step.step_facts import StepFacts
from findwall.work.op_arguments import Arguments, Tensor, is_floating
from findwall.work.work_facts import START_NS, WorkFacts

MOVES = (
    "dtype-casts",
    "memory-roof",
    "slow-kernels",
    "at-the-roof",
    "fast-path-off",
)
_PRODUCT = re.compile(r"^aten::(mm|addmm)$")
_SUM = re.compile(r"^aten::(sum|mean)$")
# They hand their tensor on as it is, or to ops below them that are looked at themselves.
_HANDS_ON = re.compile(
    r"^(aten::)?(to|_to_copy|type_as|matmul|linear|t|transpose|permute|as_strided|view|reshape|_unsafe_view|"
    r"detach|unsqueeze|squeeze|result_type|resolve_conj|resolve_neg)$"
)
_MAKES = re.compile(r"^aten::(empty|zeros|ones|full|empty_strided)$")
FETCHES, ADDS, COUNTS = "fetches", "adds", "counts"
NUMBERS, NUMBER_BYTES = "float", 4  # that are drawn to probe it


def plain(torch: Any, idx: Any, classes: int, table: Any, x: Any) -> tuple[Any, ...]:
    """As it is written today: rows of a table, and of each class the sum of x and how many there are; either
    may be missing."""
    hot = torch.nn.functional.one_hot(idx, classes).to((x if table is None else table).dtype)
    rows = () if table is None else (hot @ table,)
    return rows if x is None else (*rows, hot.t() @ x, hot.sum(0))


def cheaper(torch: Any, idx: Any, classes: int, table: Any, x: Any) -> tuple[Any, ...]:
    """The same without one-hot rows."""
    rows = () if table is None else (torch.nn.functional.embedding(idx, table),)
    if x is None:
        return rows
    sums = x.new_zeros(classes, x.shape[1]).index_add(0, idx, x)
    return *rows, sums, x.new_zeros(classes).index_add(0, idx, torch.ones_like(x[:, 0]))


class _Read(msgspec.Struct, frozen=True):
    """One op that reads the one-hot rows."""

    row: int
    way: str
    row_bytes: float  # of all the rows that are fetched or added in its place


class _Hot(msgspec.Struct, frozen=True):
    """One-hot rows and all that reads them."""

    row: int
    indices: int
    classes: int
    reads: tuple[_Read, ...]
    makes: I64  # atoms that make them and cast them
    main: I64  # the longest atom of each read
    beside: I64  # its others
    then: F64  # ns, of each read


def use(facts: Facts) -> Outcome:
    made = one_hots(facts)
    made = [one for one in made if len(atoms_under(facts, np.array(one.makes, np.int64)))]
    if not made:
        return no_use("lookup-not-onehot/none")
    found = [_hot(facts, one) for one in made]
    hots = [one for one in found if isinstance(one, _Hot)]
    if not hots:
        unclear = next((one for one in found if isinstance(one, CannotTell)), None)
        return unclear or no_use("lookup-not-onehot/no-product")
    if lacks_rates(facts):
        return no_ceilings(facts)
    hots = [one for one in hots if on_cores(facts) or one.then.sum() < _now(facts, one)]
    if not hots:
        return no_use("lookup-not-onehot/few-classes")
    every = np.concatenate([part for hot in hots for part in (hot.makes, hot.main, hot.beside)])
    largest = max(hots, key=lambda one: one.indices * one.classes)
    ways = {read.way for hot in hots for read in hot.reads}
    claim = Claim(
        "lookup-not-onehot/look-up",
        {
            "spent_ms": time_of(facts, every),
            "indices": largest.indices,
            "classes": largest.classes,
            "fetches": FETCHES in ways,
            "adds": ADDS in ways,
            "counts": COUNTS in ways,
        },
        places=list(dict.fromkeys(line for hot in hots if (line := line_of(facts, hot.row)) is not None)),
    )
    return Use(
        claim,
        _best(facts, hots),
        causes_of(facts, every, MOVES),
        likely=lambda made: _likely(facts, hots),
        may=(lambda made: _likely(facts, hots, crowded=True),),
        condition="one-hot-read-by-nothing-else",
        rewrites=_rewrites(facts, hots),
    )


def _now(facts: WorkFacts, hot: _Hot) -> float:
    every = np.concatenate([hot.makes, hot.main, hot.beside])
    return kernels_ns(facts, every)


def _hot(facts: WorkFacts, made: OneHots) -> _Hot | CannotTell | None:
    """What reads such rows; None where nothing multiplies with them."""
    row, index, classes = made.row, made.index, made.classes
    if index is None or not classes:
        return cannot_tell("lookup-not-onehot/no-shapes")
    casts, reads = [], []
    for one in _after(facts, made, index.elements * classes):
        found = _read(facts, one, index, classes)
        if found == "cast":
            casts.append(one)
        elif isinstance(found, _Read):
            reads.append(found)
        elif found is not None:
            return cannot_tell("lookup-not-onehot/read-otherwise")
    reads += [
        back
        for read in reads
        if read.way == FETCHES
        for back in _gradients(facts, read, index.elements * classes)
    ]
    mine = atoms_under(facts, np.array([*made.makes, *casts, *(read.row for read in reads)], np.int64))
    reads = [read for read in reads if read.row in mine]
    if not any(read.way != COUNTS for read in reads):
        return None
    main = np.concatenate([longest_of(facts, mine[read.row]) for read in reads])
    return _Hot(
        row,
        index.elements,
        classes,
        tuple(reads),
        np.concatenate([mine[one] for one in (*made.makes, *casts) if one in mine]),
        main,
        np.setdiff1d(np.concatenate([mine[read.row] for read in reads]), main),
        np.array([_then(facts, read) for read in reads]),
    )


def _after(facts: StepFacts, made: OneHots, numbers: int) -> list[int]:
    """Ops of its thread that read a tensor of as many numbers, until another such tensor is made or its step
    is over. The trace does not say which tensor an op reads, so only their sizes tell."""
    events = facts.timeline.events
    found = []
    cast_until = 0
    again = {one.makes[0] for one in one_hots(facts) if one.row != made.row and one.index == made.index}
    for one in ops_behind(facts, made.row):
        given = Arguments(facts.timeline.inputs_of(one))
        name = facts.timeline.name_of(one)
        reads = any(tensor.elements == numbers for tensor in given.tensors())
        if reads and name in ("aten::to", "aten::_to_copy"):
            cast_until = int(events.end[one])
        if reads:
            found.append(one)
        if events.start[one] >= cast_until and numbers in (_produced(name, given), _laid_out(name, given)):
            break
        if one in again:
            break
    return found


def _produced(name: str, given: Arguments) -> int:
    """How many numbers a product has; 0: it is none."""
    if not _PRODUCT.match(name):
        return 0
    factors = [one for one in given.tensors() if len(one.dims) == 2][-2:]
    return factors[0].dims[0] * factors[1].dims[1] if len(factors) == 2 else 0


def _laid_out(name: str, given: Arguments) -> int:
    """How many numbers a new tensor has; 0: it is none."""
    return math.prod(given.numbers(0) or [0]) if _MAKES.match(name) else 0


def _read(facts: StepFacts, row: int, index: Tensor, classes: int) -> _Read | str | None:
    """What an op does with one-hot rows: None for nothing, "cast", or "unknown"."""
    name, given = facts.timeline.name_of(row), Arguments(facts.timeline.inputs_of(row))
    wide = ((index.elements, classes), (*index.dims, classes))
    if _HANDS_ON.match(name):
        return None
    if name == "aten::copy_":
        to, of = given.tensor(0), given.tensor(1)
        if to is None or of is None or to.dims not in wide or of.dims not in wide:
            return "unknown"
        return "cast" if is_floating(to.dtype) and not is_floating(of.dtype) else "unknown"
    first = given.tensor(0)
    if _SUM.match(name) and first is not None and first.dims in wide:
        over = given.numbers(1)
        rows = over is not None and sorted(at % len(first.dims) for at in over) == [
            *range(len(first.dims) - 1)
        ]
        return _Read(row, COUNTS, float(index.elements * first.size)) if rows else "unknown"
    factors = [one for one in given.tensors() if len(one.dims) == 2][-2:]
    if not _PRODUCT.match(name) or len(factors) < 2 or index.elements == classes:
        return "unknown"
    (left, right), hot = factors, (index.elements, classes)
    if classes in (left.dims[0], right.dims[1]) and hot in (left.dims, right.dims[::-1]):
        return "unknown"  # its result is as large as the one-hot rows
    if left.dims == hot or right.dims == hot[::-1]:
        width = right.dims[1] if left.dims == hot else left.dims[0]
        return _Read(row, FETCHES, float(index.elements * width * left.size))
    if left.dims == hot[::-1] or right.dims == hot:
        width = right.dims[1] if left.dims == hot[::-1] else left.dims[0]
        return _Read(row, ADDS, float(index.elements * width * left.size))
    return "unknown"


def _gradients(facts: StepFacts, read: _Read, numbers: int) -> list[_Read]:
    """The table's gradient, of a product with one-hot rows: it multiplies with them once more."""
    around = [read.row, *facts.links.ancestors(read.row)]
    rows = np.flatnonzero(facts.links.backward & np.isin(facts.links.forward, around))
    rows = rows[facts.timeline.bears(_PRODUCT, rows)]
    found = []
    for row in rows.tolist():
        given = Arguments(facts.timeline.inputs_of(row)).tensors()
        if any(one.elements == numbers for one in given):
            found.append(_Read(row, ADDS, read.row_bytes))
    return found


def _then(facts: WorkFacts, read: _Read) -> float:
    return (fetching_ns if read.way == FETCHES else adding_ns)(facts, read.row_bytes)


def _best(facts: WorkFacts, hots: list[_Hot]) -> Change:
    """Rows are read once, and nothing else is done."""
    main = np.concatenate([hot.main for hot in hots])
    moved = np.array([read.row_bytes for hot in hots for read in hot.reads])
    beside = np.concatenate([part for hot in hots for part in (hot.makes, hot.beside)])
    return in_another_form(facts, main, moved) + gone(facts, beside)


def _likely(facts: WorkFacts, hots: list[_Hot], crowded: bool = False) -> Change:
    """Rows fetched and added as fast as others are; sums need zeros to add to, a short kernel each.

    `crowded`: most indices are of few classes, which no trace shows; then sums are no faster than today.
    """
    zeros = np.concatenate([hot.makes[: sum(read.way != FETCHES for read in hot.reads)] for hot in hots])
    main = np.concatenate([hot.main for hot in hots])
    rest = np.concatenate([part for hot in hots for part in (hot.makes, hot.beside)])
    then = np.concatenate([hot.then for hot in hots])
    if crowded:
        sums = np.array([read.way != FETCHES for hot in hots for read in hot.reads])
        then = np.where(sums, np.maximum(then, facts.kernels.duration[facts.atoms.index[main]]), then)
    return Change(
        (
            Replace(rows_of(facts, main), then),
            Replace(rows_of(facts, zeros), np.array(START_NS)),
            Drop(np.unique(rows_of(facts, np.setdiff1d(rest, zeros)))),
        )
    )


def _rewrites(facts: WorkFacts, hots: list[_Hot]) -> tuple[Rewrite, ...]:
    """One for each size, where rows are fetched once and no gradients are taken: others are not drawn."""
    alike: dict[tuple[int, int, int, int], list[_Hot]] = {}
    for hot in hots:
        if (sizes := _sizes(hot)) is None:
            return ()
        alike.setdefault((hot.indices, hot.classes, *sizes), []).append(hot)
    found = []
    for (indices, classes, fetched, added), mine in alike.items():
        table = Draw((classes, fetched), NUMBERS) if fetched else None
        x = Draw((indices, added), NUMBERS) if added else None
        every = np.concatenate([part for hot in mine for part in (hot.makes, hot.main, hot.beside)])
        given = (Draw((indices,), "long int", below=classes), classes, table, x)
        rows = np.unique(rows_of(facts, every))
        found.append(Rewrite("lookup-not-onehot", given, rows, len(mine)))
    return tuple(found)


def _sizes(hot: _Hot) -> tuple[int, int] | None:
    """Numbers of a row that is fetched, and of one that is added; 0: there is none. None where there are
    several of a kind, as gradients are."""
    by_way = {way: [read for read in hot.reads if read.way == way] for way in (FETCHES, ADDS)}
    if any(len(reads) > 1 for reads in by_way.values()):
        return None
    fetched, added = (
        int(sum(read.row_bytes for read in reads) / (hot.indices * NUMBER_BYTES)) for reads in by_way.values()
    )
    return fetched, added


FIX = Fix(MOVES, "changes-numerics", use, removes=True)
