"""Loops of Python, as the device sees them and as the host's own ops tell them.

The device sees the same few ops on the same shapes, over and over.

A loop over the parts of a tensor takes one part after the other by an index that rises (`out[i]`,
`out[i:i + 1]`), or all of them before it begins (`for one in out`) and then calls the same ops for each. So
it is told from the layers of a model, which take none, however many ops a round has; and its backward is
known with it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import pairwise

import msgspec
import numpy as np

from findwall.facts.beside_the_model import averages
from findwall.facts.facts import Facts, of_class, rows_of, small_kernels
from findwall.facts.op_shapes import tensors_of
from findwall.facts.step_traits import cells_called
from findwall.facts.user_lines import line_of
from findwall.model.catalogue import FEWEST_REPEATS, LONGEST_ROUND, MAJORITY_SHARE, MATRIX_CLASSES
from findwall.model.events import I32, Bool, Inputs, Kind
from findwall.model.intervals import I64
from findwall.step.call_names import GRADIENT, in_window
from findwall.step.called_ops import heads_of
from findwall.step.step_facts import StepFacts, found_once
from findwall.work.work_facts import WorkFacts

# Both chosen by hand, not calibrated: a body of more ops may be a layer of the model, and fewer repeats may
# be its few branches.
LONGEST_BODY = 8
NONE = np.zeros(0, np.int64)
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


def loops(facts: WorkFacts) -> list[Loop]:
    """What is launched at least eight times in a row, the optimizer left out; the shortest body first."""
    atoms = np.flatnonzero(~of_class(facts, "optimizer", "memcpy", "collective"))
    atoms = atoms[np.argsort(facts.queue.positions(rows_of(facts, atoms)), kind="stable")]
    keys = _keys(facts, atoms)
    found: list[Loop] = []
    free = np.ones(len(atoms), bool)
    for body in range(1, LONGEST_BODY + 1):
        for start, end in _repeats(keys, body, free):
            whole = start + (end - start) // body * body
            found.append(Loop(atoms[start:whole], body, rounds=(whole - start) // body))
            free[start:whole] = False
    return found


def _keys(facts: WorkFacts, atoms: I64) -> I64:
    """A number for each op and its recorded shapes, no two the same across steps; below 0 unknown."""
    events = facts.timeline.events
    index = facts.atoms.index[atoms]
    op = facts.kernels.op[index]
    inputs = np.where(op >= 0, events.inputs[np.maximum(op, 0)], -1).astype(np.int64)
    kernel = events.name[facts.kernels.row[index]].astype(np.int64)
    key = kernel * (len(facts.timeline.details.inputs) + 1) + inputs
    step = facts.queue.step[facts.queue.positions(facts.kernels.row[index])].astype(np.int64)
    key = key * (facts.steps.count + 1) + step
    return np.where((op >= 0) & (inputs >= 0), key, -1 - np.arange(len(key)))


def _repeats(keys: I64, body: int, free: Bool) -> list[tuple[int, int]]:
    """Stretches of enough rounds in which each key is the one `body` before it."""
    same = (keys[body:] == keys[:-body]) & free[body:] & free[:-body]
    edges = np.flatnonzero(np.diff(np.concatenate([[False], same, [False]]).astype(np.int8)))
    start, end = edges[::2], edges[1::2] + body
    long = (end - start) // body >= FEWEST_REPEATS
    return list(zip(start[long].tolist(), end[long].tolist(), strict=True))


@found_once
def small_loops(facts: WorkFacts) -> list[Loop]:
    """Loops that a few calls on whole tensors would do, or a scan: over the parts of a tensor, and what is
    launched over and over and multiplies nothing."""
    alike = [one for one in loops(facts) if not multiplies(facts, one)]
    return [*part_loops(facts), *without_layers(facts, alike)]


def mostly_in_loops(facts: Facts) -> bool:
    """Whether most of what the step launches comes from such loops, from one that averages the weights
    tensor by tensor, or from cells called time step by time step: then the loop is the reason for the
    launches."""
    cells = cells_called(facts)
    parts = [launched_by(small_loops(facts)), averages(facts), *(one.atoms for one in facts.loops)]
    atoms = np.unique(np.concatenate([*parts, cells.atoms if cells is not None else NONE]))
    return len(atoms) > MAJORITY_SHARE * small_kernels(facts) * facts.steps.count


def is_backward(facts: WorkFacts, loop: Loop) -> bool:
    """Whether autograd repeats it, not the job: then it is no more than another loop's gradient."""
    op = facts.kernels.op[facts.atoms.index[loop.atoms[: loop.body]]]
    return bool((op >= 0).any()) and bool(facts.links.backward[op[op >= 0]].all())


def multiplies(facts: WorkFacts, loop: Loop) -> bool:
    """Whether a round of the loop holds a product of matrices, as a cell of a recurrent network does. Two
    vectors give a number: that is a sum."""
    products = loop.atoms[of_class(facts, *MATRIX_CLASSES)[loop.atoms]]
    return any(facts.op_name(int(atom)) not in OF_VECTORS for atom in products)


def without_layers(facts: WorkFacts, found: list[Loop]) -> list[Loop]:
    """Those of which most rounds have no parameters of their own: others are layers, one after the other.

    While the backward pass goes through layers, parameters get their gradients one by one; what all rounds
    share gets its own once, at the end. Without a backward pass nobody can tell.
    """
    if not found:
        return []
    events, links = facts.timeline.events, facts.links
    given = np.sort(events.start[facts.timeline.rows_named(GRADIENT, Kind.OP)])
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


def loop_line(facts: WorkFacts, loop: Loop) -> str | None:
    """The line of the person's own code that launched a loop's first op."""
    return line_of(facts, facts.op_row(int(loop.atoms[0])))


# -- loops over the parts of a tensor ------------------------------------------------------------------

PICKS = ("aten::select", "aten::slice")
UNBIND = "aten::unbind"


class _Pick(msgspec.Struct, frozen=True):
    """One part of a tensor, taken by its index."""

    source: tuple[object, ...]  # the tensor's shape, and along which dimension
    index: int
    elements: int  # of the part


class Stretch(msgspec.Struct, frozen=True):
    """Ops of the host that one loop called: places in a list of them, the last not included."""

    first: int
    end: int
    rounds: int
    elements: int  # of a part
    body: int = 0  # of these ops so many are a round, where all rounds are alike


class _Launched(msgspec.Struct, frozen=True):
    """Atoms in the order in which some ops of the host began."""

    atoms: I64
    start: I64
    thread: I32

    def within(self, begin: int, end: int, thread: int) -> I64:
        first, last = np.searchsorted(self.start, [begin, end])
        found: I64 = self.atoms[first:last][self.thread[first:last] == thread]
        return found


@found_once
def part_loops(facts: WorkFacts) -> list[Loop]:
    """Loops over parts in which each round works on its part alone; those that multiply are left out: they
    may be cells of a recurrent network."""
    heads = in_window(facts, heads_of(facts))
    stretches = [*_picking(facts, heads), *unbinding(facts, heads)]
    if not stretches:
        return []
    atoms = np.flatnonzero(~of_class(facts, "optimizer", "memcpy", "collective"))
    op = facts.kernels.op[facts.atoms.index[atoms]]
    called = _launched(facts, atoms, op)
    passed = _launched(facts, atoms, np.where(op >= 0, facts.links.forward[np.maximum(op, 0)], -1))
    found = []
    for one in stretches:
        loop = _loop(facts, heads, one, called, passed)
        enough = len(loop.atoms) >= one.rounds and not multiplies(facts, loop)
        if enough and _works_on_parts(facts, loop, one.elements):
            found.append(loop)
    return without_layers(facts, found)


def mostly_over_parts(facts: Facts) -> bool:
    """Whether most of what the step launches is launched by such loops: then the job's Python is theirs, and
    a larger tensor has more rounds."""
    atoms = launched_by(part_loops(facts))
    return len(atoms) > MAJORITY_SHARE * small_kernels(facts) * facts.steps.count


def _named(facts: StepFacts, rows: I64, *names: str) -> list[int]:
    """Places of the rows with one of these names."""
    wanted = [at for at, name in enumerate(facts.timeline.names) if name in names]
    return list(np.flatnonzero(np.isin(facts.timeline.events.name[rows], wanted)).tolist())


def _picking(facts: StepFacts, heads: I64) -> Iterator[Stretch]:
    """Runs of parts whose index goes up by one; a round may take several of one index."""
    taken: dict[tuple[object, ...], list[tuple[int, _Pick]]] = {}
    for place in _named(facts, heads, *PICKS):
        row = int(heads[place])
        pick = _pick(facts.timeline.name_of(row), facts.timeline.inputs_of(row))
        if pick is not None:
            # A loop ends with its step: after its last sample may come the first, as in the next step.
            step = int(np.searchsorted(facts.steps.host, facts.timeline.events.start[row], side="right"))
            key = (step, int(facts.timeline.events.thread[row]), *pick.source)
            taken.setdefault(key, []).append((place, pick))
    for places in taken.values():
        for run in _rising(places):
            starts = [run[0][0], *(b for (_, a), (b, c) in pairwise(run) if c.index != a.index)]
            if len(starts) >= FEWEST_REPEATS:
                body = int(np.median(np.diff(starts)))
                end = max(starts[-1] + body, run[-1][0] + 1)
                yield Stretch(starts[0], min(end, len(heads)), len(starts), run[0][1].elements)


def _pick(name: str, inputs: Inputs | None) -> _Pick | None:
    """None where the index was not recorded, or more than one element of the dimension is taken."""
    try:
        assert inputs is not None
        dims = [int(one) for one in inputs.dims[0] if isinstance(one, int)]
        along, index = int(inputs.concrete[1]), int(inputs.concrete[2])
        if name != PICKS[0] and int(inputs.concrete[3]) != index + 1:
            return None
        return _Pick((name, *dims, along), index, math.prod(dims) // dims[along])
    except (AssertionError, IndexError, ValueError, ZeroDivisionError):
        return None


def _rising(places: Iterable[tuple[int, _Pick]]) -> Iterator[list[tuple[int, _Pick]]]:
    """Runs of an index that stays or goes up by one.

    Tensors of one shape are not told apart, so that two which are taken from in turns (`a[i]`, `b[j]`) go on
    as two runs: each part to the one that it continues, the last used first.
    """
    open_runs: list[list[tuple[int, _Pick]]] = []
    for place, pick in places:
        goes_on = [run for by in (1, 0) for run in reversed(open_runs) if pick.index - run[-1][1].index == by]
        run = goes_on[0] if goes_on else []
        open_runs = [*(one for one in open_runs if one is not run), run]
        run.append((place, pick))
        if len(open_runs) > LONGEST_ROUND:
            yield open_runs.pop(0)
    yield from open_runs


def unbinding(facts: StepFacts, heads: I64) -> Iterator[Stretch]:
    """Tensors taken apart at once, and as many rounds of the same ops after it as they have parts."""
    taken = [(place, *_parts(facts, int(heads[place]))) for place in _named(facts, heads, UNBIND)]
    taken = [one for one in taken if one[1] >= FEWEST_REPEATS]
    if not taken:
        return
    keys = _keys_of_shapes(facts, heads)
    ends = _before_the_next(keys, [place for place, *_ in taken])
    for place, parts, elements in taken:
        for body in range(1, LONGEST_ROUND + 1):
            after = keys[place + 1 : min(place + 1 + (parts + 2) * body, ends[place])]
            if len(after) < (parts - 1) * body:
                break
            first, last = _longest(after[body:] == after[:-body])
            if last - first >= (parts - 2) * body:  # the first and the last round may differ
                yield Stretch(place + 1 + first, place + 1 + last + body, parts, elements, body)
                break


def _before_the_next(keys: I64, places: list[int]) -> dict[int, int]:
    """Where such a tensor is taken apart once more. The rounds of a loop that does so are not those over its
    parts, and go on behind it."""
    ends: dict[int, int] = {}
    following: dict[int, int] = {}
    for place in reversed(places):
        ends[place] = following.get(int(keys[place]), len(keys))
        following[int(keys[place])] = place
    return ends


def _parts(facts: StepFacts, row: int) -> tuple[int, int]:
    """How many an unbind gives, and the elements of each."""
    tensor = next(iter(tensors_of(facts, row)), None)
    inputs = facts.timeline.inputs_of(row)
    try:
        along = int(inputs.concrete[1]) if inputs is not None else 0
        assert tensor is not None
        return tensor.dims[along], math.prod(tensor.dims) // max(tensor.dims[along], 1)
    except (AssertionError, IndexError, ValueError):
        return 0, 0


def _keys_of_shapes(facts: StepFacts, heads: I64) -> I64:
    """A number for each op on its thread and the shapes it was given, whatever its other arguments."""
    events = facts.timeline.events
    known: dict[object, int] = {}
    found = []
    for row in heads.tolist():
        inputs = facts.timeline.inputs_of(row)
        shapes = str(inputs.dims) if inputs is not None else row
        key = (int(events.thread[row]), int(events.name[row]), shapes)
        found.append(known.setdefault(key, len(known)))
    return np.array(found, np.int64)


def _longest(same: Bool) -> tuple[int, int]:
    edges = np.flatnonzero(np.diff(np.concatenate([[False], same, [False]]).astype(np.int8)))
    if len(edges) == 0:
        return 0, 0
    start, end = edges[::2], edges[1::2]
    at = int(np.argmax(end - start))
    return int(start[at]), int(end[at])


def _launched(facts: StepFacts, atoms: I64, ops: I64) -> _Launched:
    """`ops`: the op of each atom, or below 0."""
    events = facts.timeline.events
    atoms, ops = atoms[ops >= 0], ops[ops >= 0]
    order = np.argsort(events.start[ops], kind="stable")
    return _Launched(atoms[order], events.start[ops[order]], events.thread[ops[order]])


def _loop(facts: StepFacts, heads: I64, stretch: Stretch, called: _Launched, passed: _Launched) -> Loop:
    """What the device did for it, and for its gradients."""
    events = facts.timeline.events
    rows = heads[stretch.first : stretch.end]
    when = int(events.start[rows[0]]), int(events.end[rows].max()), int(events.thread[rows[0]])
    atoms = called.within(*when)
    return Loop(atoms, max(len(atoms) // stretch.rounds, 1), passed.within(*when), stretch.rounds)


def _works_on_parts(facts: WorkFacts, loop: Loop, elements: int) -> bool:
    """Whether most of its ops are given no more than a part: one that adds a part to something larger may go
    on with that from round to round, as layers with their own scale do."""
    largest = [
        max((tensor.elements for tensor in tensors_of(facts, facts.op_row(atom))), default=0)
        for atom in loop.atoms[: loop.body * FEWEST_REPEATS].tolist()
    ]
    return bool(np.mean(np.array(largest) <= elements) > MAJORITY_SHARE)
