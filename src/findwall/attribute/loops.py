"""Loops of Python, as the device sees them: the same few ops on the same shapes, over and over."""

from __future__ import annotations

import msgspec
import numpy as np

from findwall.attribute.device_time import of_class, rows_of
from findwall.attribute.facts import Facts
from findwall.attribute.places import line_of
from findwall.model.catalogue import MAJORITY_SHARE, MATRIX_CLASSES
from findwall.model.events import Bool, Kind
from findwall.model.intervals import I64

# Both chosen by hand, not calibrated: a body of more ops may be a layer of the model, and fewer repeats may
# be its few branches.
LONGEST_BODY = 8
FEWEST_REPEATS = 8
NONE = np.zeros(0, np.int64)
GRADIENT = "torch::autograd::AccumulateGrad"  # the row in which a parameter gets its gradient
OF_VECTORS = frozenset({"aten::dot", "aten::vdot"})


class Loop(msgspec.Struct, frozen=True):
    """Atoms that one loop launched, in their order; `body` of them are one round, or about so many."""

    atoms: I64
    body: int
    gradients: I64 = NONE  # what the backward pass launched for it, where that is known
    rounds: int = 0

    @property
    def all_atoms(self) -> I64:
        return np.concatenate([self.atoms, self.gradients])


def launched_by(found: list[Loop]) -> I64:
    """Atoms of any of these, each once: a loop may lie within another."""
    return np.unique(np.concatenate([NONE, *(one.all_atoms for one in found)]))


def loops(facts: Facts) -> list[Loop]:
    """What is launched at least eight times in a row, the optimizer left out; the shortest body first."""
    atoms = np.flatnonzero(~of_class(facts, "optimizer", "memcpy", "collective"))
    order = np.argsort(facts.queue.positions(rows_of(facts, atoms)), kind="stable")
    atoms = atoms[order]
    keys = _keys(facts, atoms)
    found: list[Loop] = []
    free = np.ones(len(atoms), bool)
    for body in range(1, LONGEST_BODY + 1):
        for start, end in _repeats(keys, body, free):
            whole = start + (end - start) // body * body
            found.append(Loop(atoms[start:whole], body, rounds=(whole - start) // body))
            free[start:whole] = False
    return found


def _keys(facts: Facts, atoms: I64) -> I64:
    """A number for each op and its recorded shapes, no two the same across steps; below 0 unknown."""
    events = facts.timeline.events
    index = facts.atoms.index[atoms]
    op = facts.kernels.op[index]
    inputs = np.where(op >= 0, events.inputs[np.maximum(op, 0)], -1).astype(np.int64)
    kernel = events.name[facts.kernels.row[index]].astype(np.int64)
    key = kernel * (len(facts.timeline.details.inputs) + 1) + inputs
    step = facts.queue.step[facts.queue.positions(facts.kernels.row[index])].astype(np.int64)
    key = key * (facts.steps.count + 1) + step
    found: I64 = np.where((op >= 0) & (inputs >= 0), key, -1 - np.arange(len(key)))
    return found


def _repeats(keys: I64, body: int, free: Bool) -> list[tuple[int, int]]:
    """Stretches of enough rounds in which each key is the one `body` before it."""
    same = (keys[body:] == keys[:-body]) & free[body:] & free[:-body]
    edges = np.flatnonzero(np.diff(np.concatenate([[False], same, [False]]).astype(np.int8)))
    start, end = edges[::2], edges[1::2] + body
    long = (end - start) // body >= FEWEST_REPEATS
    return list(zip(start[long].tolist(), end[long].tolist(), strict=True))


def is_backward(facts: Facts, loop: Loop) -> bool:
    """Whether autograd repeats it, not the job: then it is no more than another loop's gradient."""
    op = facts.kernels.op[facts.atoms.index[loop.atoms[: loop.body]]]
    return bool((op >= 0).any()) and bool(facts.links.backward[op[op >= 0]].all())


def multiplies(facts: Facts, loop: Loop) -> bool:
    """Whether a round of the loop holds a product of matrices, as a cell of a recurrent network does. Two
    vectors give a number: that is a sum."""
    products = loop.atoms[of_class(facts, *MATRIX_CLASSES)[loop.atoms]]
    return any(facts.op_name(int(atom)) not in OF_VECTORS for atom in products)


def without_layers(facts: Facts, found: list[Loop]) -> list[Loop]:
    """Those of which most rounds have no parameters of their own: others are layers, one after the other.

    While the backward pass goes through layers, parameters get their gradients one by one; what all rounds
    share gets its own once, at the end. Without a backward pass nobody can tell.
    """
    if not found:
        return []
    events, links = facts.timeline.events, facts.links
    wanted = [at for at, name in enumerate(facts.timeline.names) if name == GRADIENT]
    given = np.sort(events.start[np.flatnonzero(np.isin(events.name, wanted) & events.is_kind(Kind.OP))])
    linked = np.flatnonzero(links.forward >= 0)
    linked = linked[np.argsort(events.start[links.forward[linked]], kind="stable")]
    called = events.start[links.forward[linked]]

    def is_layers(loop: Loop) -> bool:
        op = facts.kernels.op[facts.atoms.index[loop.atoms]]
        op = op[op >= 0]
        passed = op[links.backward[op]]
        if len(op) and len(passed) == 0:
            first, end = np.searchsorted(called, [events.start[op].min(), events.end[op].max()])
            passed = linked[first:end]
        if len(passed) == 0:
            return False
        first, end = np.searchsorted(given, [events.start[passed].min(), events.end[passed].max()])
        return int(end - first) > MAJORITY_SHARE * loop.rounds

    return [one for one in found if not is_layers(one)]


def loop_line(facts: Facts, loop: Loop) -> str | None:
    """The line of the person's own code that launched a loop's first op."""
    return line_of(facts, facts.op_row(int(loop.atoms[0])))
