"""Hand a tensor one array, not a list whose numbers are converted one by one.

What it does:
`torch.tensor` of a list or tuple goes through all of it in Python's own terms: for a list of NumPy arrays it
makes an object of every single number, and a batch of images takes longer to convert than to train on. One
array is taken over whole:

    states = torch.from_numpy(np.stack(states))     # instead of torch.tensor(states)

For a list of tensors it is `torch.stack`. A buffer that is filled row by row needs not even that.

When it does not help:
A few numbers are as fast either way. Lists of Python's own numbers have to be walked once in any case:
`np.array` does it about as slowly, so keep them in an array from the beginning.

Risk:
`from_numpy` keeps the array's type and its memory: what is fp64 there stays fp64, and who changes the array
later changes the tensor.
"""

from __future__ import annotations

import numpy as np

from findwall.facts.user_lines import line_of
from findwall.fixes import Claim, Facts, Fix, Outcome, lines, no_use, step_ms, surely
from findwall.model.catalogue import MAJORITY_SHARE, MENTION_SHARE
from findwall.model.intervals import I64, union
from findwall.replay.change import Change, NoHostWork
from findwall.step.called_ops import heads_of
from findwall.step.step_facts import StepFacts
from findwall.units import ms
from findwall.work.op_arguments import Arguments

MOVES = ("host-work",)
# What `torch.tensor` calls: between the first two it fills the tensor, number by number.
CALLS = ("aten::empty", "aten::to", "aten::lift_fresh")


def use(facts: Facts) -> Outcome:
    begun, handed_on = _conversions(facts)
    if not len(begun):
        return no_use("convert-at-once/none")
    events = facts.timeline.events
    # Numbers that become a tensor in front of the pass are the job's own making of a batch.
    moves = MOVES if facts.by_hand is None else (*MOVES, "loader-starved")
    idle = [facts.idle_rows(cause) for cause in moves]
    positions, amounts = (np.concatenate(columns) for columns in zip(*idle, strict=True))
    start, end = facts.queue.idle_from[positions], facts.queue.idle_until[positions]
    filling = events.end[begun], events.start[handed_on]
    # Waits most of which lies in conversions, and those conversions.
    waits = union(*filling).covered_within(start, end) > MAJORITY_SHARE * (end - start)
    spent = ms(float(amounts[waits].sum()))
    if spent <= MENTION_SHARE * step_ms(facts):
        return no_use("convert-at-once/little", spent_ms=spent)
    inside = union(start[waits], end[waits]).covered_within(*filling)
    longest = int(handed_on[np.argmax(inside)])
    numbers = [_elements(facts, row) for row in handed_on[inside > 0].tolist()]
    figures = {"waits_ms": spent, "numbers": sum(numbers) / facts.steps.count or None}
    claim = Claim("convert-at-once/one-by-one", figures, places=lines(line_of(facts, longest)))
    return surely(claim, Change((NoHostWork(np.unique(facts.queue.row[positions[waits]])),)), moves)


def _conversions(facts: StepFacts) -> tuple[I64, I64]:
    """Where each begins, and the op that is handed the whole."""
    heads = heads_of(facts)
    names = np.array([facts.timeline.name_of(row) for row in heads.tolist()], object)
    count = max(len(heads) - len(CALLS) + 1, 0)
    found = np.ones(count, bool)
    for at, name in enumerate(CALLS):
        found &= names[at : at + count] == name
    first = np.flatnonzero(found)
    thread = facts.timeline.events.thread[heads]
    first = first[thread[first] == thread[first + len(CALLS) - 1]]
    order = np.argsort(facts.timeline.events.start[heads[first]], kind="stable")
    return heads[first[order]], heads[first[order] + 1]


def _elements(facts: StepFacts, row: int) -> int:
    given = Arguments(facts.timeline.inputs_of(row)).tensor(0)
    return given.elements if given is not None else 0


FIX = Fix(MOVES, "safe", use)
