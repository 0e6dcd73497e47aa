"""Rows of a table by their numbers: what fetching and adding them takes; and what a call brings about."""

from __future__ import annotations

import numpy as np

from findwall.model.events import Kind
from findwall.model.intervals import I64
from findwall.step.links import nearest
from findwall.step.step_facts import StepFacts, found_once
from findwall.units import NS_PER_S
from findwall.work.op_arguments import Arguments
from findwall.work.work_facts import START_NS, WorkFacts

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


def atoms_under(facts: WorkFacts, calls: I64) -> dict[int, I64]:
    """The atoms that each of these host rows brought about, itself or by what it called; none: left out."""
    wanted = np.zeros(len(facts.timeline.events), bool)
    wanted[calls] = True
    around = nearest(facts.timeline, facts.links.parent, wanted)
    ops = facts.links.op[facts.kernels.row[facts.atoms.index]]
    found = np.where(ops >= 0, around[np.maximum(ops, 0)], -1)
    order = np.argsort(found, kind="stable")
    order = order[found[order] >= 0]
    rows, first = np.unique(found[order], return_index=True)
    return dict(zip(rows.tolist(), np.split(order, first[1:]), strict=True)) if len(rows) else {}


def called_by(facts: StepFacts, row: int) -> list[int]:
    """The ops that a host row called itself, in their order."""
    ops, parent = _by_parent(facts)
    first, end = np.searchsorted(parent, [row, row + 1])
    return [int(one) for one in ops[first:end]]


@found_once
def _by_parent(facts: StepFacts) -> tuple[I64, I64]:
    """All ops in the order of the rows that called them, and these."""
    ops = facts.timeline.rows(Kind.OP)
    parent = facts.links.parent[ops]
    order = np.lexsort((facts.timeline.events.start[ops], parent))
    return ops[order], parent[order]


def longest_of(facts: WorkFacts, atoms: I64) -> I64:
    """The one of some atoms whose kernel takes longest."""
    return atoms[[int(np.argmax(facts.kernels.duration[facts.atoms.index[atoms]]))]]


def reading(facts: StepFacts, shape: tuple[int, ...]) -> I64:
    """The ops that are given a tensor of this shape."""
    ops = facts.timeline.rows(Kind.OP)
    of = facts.timeline.events.inputs[ops]
    kinds, first = np.unique(of, return_index=True)
    hit = [
        any(tensor.dims == shape for tensor in Arguments(facts.timeline.inputs_of(int(row))).tensors())
        for row in ops[first]
    ]
    found: I64 = ops[np.isin(of, kinds[np.array(hit, bool)])] if hit else ops
    return found
