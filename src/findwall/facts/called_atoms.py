"""What the ops that were called brought about: their kernels, and those of their gradients."""

from __future__ import annotations

import msgspec
import numpy as np

from findwall.model.events import Kind
from findwall.model.intervals import I64
from findwall.step.links import runs_in
from findwall.step.step_facts import StepFacts, found_once
from findwall.work.op_arguments import Arguments
from findwall.work.work_facts import WorkFacts

# They hand their tensor on as it is.
VIEWS = ("aten::result_type", "aten::to", "aten::as_strided", "aten::detach")


class Passes(msgspec.Struct, frozen=True):
    """Of each atom the op of the forward pass that launched it, and that whose gradient it is of; -1 none."""

    forward: I64
    backward: I64

    def atoms_of(self, ops: I64 | list[int]) -> tuple[I64, I64]:
        """The atoms of these ops, and those of their gradients."""
        return np.flatnonzero(np.isin(self.forward, ops)), np.flatnonzero(np.isin(self.backward, ops))


@found_once
def passes(facts: WorkFacts) -> Passes:
    op = facts.kernels.op[facts.atoms.index]
    back = (op >= 0) & facts.links.backward[op]
    return Passes(np.where(back, -1, op), np.where(back, facts.links.forward[op], -1))


def of_heads(facts: WorkFacts, heads: I64) -> Passes:
    """The same by the ops that Python called, of these those that they ran in."""
    by, of = passes(facts), runs_in(facts.timeline, facts.links, heads)
    return Passes(*(np.where(ops >= 0, of[ops], -1) for ops in (by.forward, by.backward)))


def atoms_under(facts: WorkFacts, calls: I64) -> dict[int, I64]:
    """The atoms that each of these host rows brought about, itself or by what it called; none: left out."""
    around = runs_in(facts.timeline, facts.links, calls)
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


def end_of_step(facts: StepFacts, row: int) -> int:
    """When the step ends in which a host row began."""
    events = facts.timeline.events
    ends = facts.steps.host[facts.steps.host > events.start[row]]
    return int(ends[0]) if len(ends) else int(events.end.max())


def ops_behind(facts: StepFacts, row: int) -> list[int]:
    """The ops of its thread behind a host row, until its step is over, in their order."""
    events, ops = facts.timeline.events, facts.timeline.rows(Kind.OP)
    mine = (events.process[ops] == events.process[row]) & (events.thread[ops] == events.thread[row])
    mine &= (events.start[ops] >= events.end[row]) & (events.start[ops] < end_of_step(facts, row))
    ops = ops[mine]
    return [int(one) for one in ops[np.argsort(events.start[ops], kind="stable")]]


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


def read_behind(facts: StepFacts, row: int, readers: I64, until: int | None = None) -> list[int]:
    """Of these ops the outermost forward ones of its thread behind a row, until its step is over or a moment
    before that; views left out."""
    events = facts.timeline.events
    end = end_of_step(facts, row)
    last = end if until is None else min(end, until)
    mine = (events.process[readers] == events.process[row]) & (events.thread[readers] == events.thread[row])
    mine &= (events.start[readers] >= events.end[row]) & (events.start[readers] < last)
    ops = readers[mine & ~facts.links.backward[readers]]
    found, inner = [], 0
    for one in ops[np.argsort(events.start[ops], kind="stable")].tolist():
        if events.start[one] >= inner and facts.timeline.name_of(one) not in VIEWS:
            found.append(one)
            inner = int(events.end[one])
    return found


def alike(facts: WorkFacts, atoms: I64) -> list[I64]:
    """Atoms of ops of one name that were given the same, apart from others."""
    op, events = facts.kernels.op[facts.atoms.index[atoms]], facts.timeline.events
    key = events.name[op].astype(np.int64) * (len(facts.timeline.details.inputs) + 1) + events.inputs[op] + 1
    return [atoms[key == group] for group in np.unique(key).tolist()]
