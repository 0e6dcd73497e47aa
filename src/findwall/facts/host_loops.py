"""Loops of Python, as the device sees them and as the host's own ops tell them.

The device sees the same few ops on the same shapes, over and over. A loop that takes a tensor apart before it
begins (`for one in out`) calls the same ops for each part. Where the job's lines were followed, they tell
all loops and what their rounds need of each other (`dataflow/line_loops.py`).
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from findwall.facts.beside_the_model import averages
from findwall.facts.facts import Facts, of_class, rows_of, small_kernels
from findwall.facts.op_shapes import tensors_of
from findwall.facts.step_traits import cells_called
from findwall.facts.user_lines import line_of
from findwall.model.catalogue import FEWEST_REPEATS, LONGEST_ROUND, MAJORITY_SHARE, MATRIX_CLASSES
from findwall.model.events import Bool, Kind
from findwall.model.intervals import I64
from findwall.step.call_names import GRADIENT
from findwall.step.step_facts import StepFacts, found_once
from findwall.work.work_facts import WorkFacts

# Both chosen by hand, not calibrated: a body of more ops may be a layer of the model, and fewer repeats may
# be its few branches.
LONGEST_BODY = 8
NONE = np.zeros(0, np.int64)
OF_VECTORS = frozenset({"aten::dot", "aten::vdot"})


class Loop(msgspec.Struct, frozen=True):
    """Atoms that one loop launched, in their order; `body` of them are one round."""

    atoms: I64
    body: int
    rounds: int


def launched_by(found: list[Loop]) -> I64:
    """Atoms of any of these, each once: a loop may lie within another."""
    return np.unique(np.concatenate([NONE, *(one.atoms for one in found)]))


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
            found.append(Loop(atoms[start:whole], body, (whole - start) // body))
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
    """Loops that a few calls on whole tensors would do, or a scan: what is launched over and over and
    multiplies nothing."""
    return without_layers(facts, [one for one in loops(facts) if not multiplies(facts, one)])


def mostly_in_loops(facts: Facts) -> bool:
    """Whether most of what the step launches comes from such loops, from one that averages the weights
    tensor by tensor, or from cells called or written out time step by time step: then the loop is the reason
    for the launches."""
    cells = [one.atoms for one in (cells_called(facts), facts.cell) if one is not None]
    parts = [launched_by(small_loops(facts)), averages(facts), *(one.atoms for one in facts.loops)]
    atoms = np.unique(np.concatenate([*parts, *cells]))
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

UNBIND = "aten::unbind"


class Stretch(msgspec.Struct, frozen=True):
    """Ops of the host that one loop called: places in a list of them, the last not included."""

    first: int
    end: int
    body: int  # of these ops so many are a round


def mostly_over_parts(facts: Facts) -> bool:
    """Whether most of what the step launches is launched by rounds that need no other: then the job's Python
    is theirs, and a larger tensor has more rounds."""
    over = [one.atoms for one in facts.loops if not one.parameters]
    atoms = np.unique(np.concatenate([NONE, *over]))
    return len(atoms) > MAJORITY_SHARE * small_kernels(facts) * facts.steps.count


def _named(facts: StepFacts, rows: I64, *names: str) -> list[int]:
    """Places of the rows with one of these names."""
    wanted = [at for at, name in enumerate(facts.timeline.names) if name in names]
    return list(np.flatnonzero(np.isin(facts.timeline.events.name[rows], wanted)).tolist())


def unbinding(facts: StepFacts, heads: I64) -> Iterator[Stretch]:
    """Tensors taken apart at once, and as many rounds of the same ops after it as they have parts."""
    taken = [(place, _parts(facts, int(heads[place]))) for place in _named(facts, heads, UNBIND)]
    taken = [one for one in taken if one[1] >= FEWEST_REPEATS]
    if not taken:
        return
    keys = _keys_of_shapes(facts, heads)
    ends = _before_the_next(keys, [place for place, *_ in taken])
    for place, parts in taken:
        for body in range(1, LONGEST_ROUND + 1):
            after = keys[place + 1 : min(place + 1 + (parts + 2) * body, ends[place])]
            if len(after) < (parts - 1) * body:
                break
            first, last = _longest(after[body:] == after[:-body])
            if last - first >= (parts - 2) * body:  # the first and the last round may differ
                yield Stretch(place + 1 + first, place + 1 + last + body, body)
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


def _parts(facts: StepFacts, row: int) -> int:
    """How many an unbind gives."""
    tensor = next(iter(tensors_of(facts, row)), None)
    inputs = facts.timeline.inputs_of(row)
    try:
        along = int(inputs.concrete[1]) if inputs is not None else 0
        assert tensor is not None
        return tensor.dims[along]
    except (AssertionError, IndexError, ValueError):
        return 0


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
