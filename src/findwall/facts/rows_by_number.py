"""Rows of a table by their numbers: one-hot rows that stand for them, and what fetching and adding takes."""

from __future__ import annotations

import math
import re

import msgspec
import numpy as np

from findwall.facts.called_atoms import called_by
from findwall.model.events import Kind
from findwall.step.called_ops import head_of, heads_of
from findwall.step.step_facts import StepFacts, found_once
from findwall.units import NS_PER_S
from findwall.work.op_arguments import Arguments, Tensor
from findwall.work.work_facts import START_NS, WorkFacts

_ONE_HOT = re.compile(r"^aten::one_hot$")
_SCATTER = re.compile(r"^aten::scatter_$")
_ZEROS = re.compile(r"^aten::(zeros|zeros_like|new_zeros|full|full_like|new_full|zero_|fill_)$")
ONE = 1.0
SOON = 6  # heads: zeros are made right before ones are put into them, views of the numbers between


class OneHots(msgspec.Struct, frozen=True):
    """One-hot rows as a job makes them: `one_hot(idx, K)`, or `zeros(N, K).scatter_(1, idx[:, None], 1)`."""

    makes: tuple[int, ...]  # the ops, in their order
    index: Tensor | None  # None: nobody recorded what they were given
    classes: int

    @property
    def row(self) -> int:
        return self.makes[-1]


# Of the memory's rate, for what they move: rows of fp32 numbers added with atomics reached 0.37 to 0.42 in
# five jobs on an H200 (0.5 to 10 million rows of 64 to 128 numbers), rows that are fetched 0.25 to 0.39.
ROWS_REACHED = 0.38
FETCHED, ADDED = 2, 3  # times its bytes: a row is read and written; to add one its sum is read as well


def fetching_ns(facts: WorkFacts, row_bytes: float) -> float:
    """What it takes to fetch rows of so many bytes by their numbers."""
    return _rows_ns(facts, FETCHED * row_bytes)


def adding_ns(facts: WorkFacts, row_bytes: float) -> float:
    """What it takes to add rows of so many bytes to others by their numbers, with atomics."""
    return _rows_ns(facts, ADDED * row_bytes)


def _rows_ns(facts: WorkFacts, moved: float) -> float:
    return START_NS + moved / ((facts.ceilings.bandwidth or np.inf) * ROWS_REACHED) * NS_PER_S


# -- one-hot rows ----------------------------------------------------------------------------------------


@found_once
def one_hots(facts: StepFacts) -> list[OneHots]:
    """In their order."""
    found = {
        row: OneHots((row,), *_called(facts, row)) for row in facts.timeline.rows_named(_ONE_HOT, Kind.OP)
    }
    heads = heads_of(facts)
    place = {row: at for at, row in enumerate(heads.tolist())}
    of = head_of(facts, heads)
    for row in facts.timeline.rows_named(_SCATTER, Kind.OP).tolist():
        at = place.get(int(of[row]))
        filled = _filled(facts, row)
        if at is None or heads[at] != row or filled is None:
            continue
        index, whole = filled
        zeros = _zeros(facts, heads[max(at - SOON, 0) : at].tolist(), whole)
        found[row] = OneHots((*zeros, row), index, whole[-1])
    return [found[row] for row in sorted(found, key=lambda row: facts.timeline.events.start[row])]


def _called(facts: StepFacts, row: int) -> tuple[Tensor | None, int]:
    """The indices that one_hot is given, and how many classes they have: as wide are the rows that it puts
    ones into."""
    index = Arguments(facts.timeline.inputs_of(row)).tensor(0)
    filled = [
        Arguments(facts.timeline.inputs_of(one)).tensor(0)
        for one in called_by(facts, row)
        if _SCATTER.match(facts.timeline.name_of(one))
    ]
    rows = filled[0].dims if filled and filled[0] is not None else ()
    return index, rows[-1] if index is not None and rows[:-1] == index.dims else 0


def _filled(facts: StepFacts, row: int) -> tuple[Tensor, tuple[int, ...]] | None:
    """The indices, and what a one is put into for each of them, along its last dimension."""
    given = Arguments(facts.timeline.inputs_of(row))
    whole, along, index = given.tensor(0), given.number(1), given.tensor(2)
    if whole is None or index is None or along is None or given.number(3) != ONE or len(whole.dims) < 2:
        return None
    if int(along) % len(whole.dims) != len(whole.dims) - 1 or index.dims != (*whole.dims[:-1], 1):
        return None
    return msgspec.structs.replace(index, dims=index.dims[:-1], strides=None), whole.dims


def _zeros(facts: StepFacts, before: list[int], whole: tuple[int, ...]) -> list[int]:
    """The op in front of it that makes as many zeros."""
    for row in reversed(before):
        given = Arguments(facts.timeline.inputs_of(row))
        sizes = [tensor.dims for tensor in given.tensors()[:1]] + [
            tuple(given.numbers(at) or ()) for at in (0, 1)
        ]
        if _ZEROS.match(facts.timeline.name_of(row)) and math.prod(whole) in map(math.prod, sizes):
            return [row]
    return []
