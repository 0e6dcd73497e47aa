"""Rounds of a loop that each ask the device how much there is before they go on: boxes that are left over,
tokens of an expert.

The size of what a mask picks is known to the device alone, so the host waits for it in every round.
Layers of a model do no such thing: what waits again and again, with the same ops in between, is a loop of
the job's own.
"""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise

import msgspec
import numpy as np

from findwall.facts.called_atoms import of_heads
from findwall.facts.facts import of_class
from findwall.facts.step_traits import on_cores
from findwall.model.catalogue import FEWEST_REPEATS, LONGEST_ROUND, MATRIX_CLASSES
from findwall.model.events import I32, Kind
from findwall.model.intervals import I64
from findwall.step.call_names import in_window, outermost, sync_rows
from findwall.step.called_ops import head_of, heads_of
from findwall.step.step_facts import StepFacts, found_once
from findwall.work.work_facts import WorkFacts

# Ops whose result is as large as its values say.
SIZED_BY_VALUES = frozenset(
    f"aten::{name}"
    for name in ("nonzero", "nonzero_numpy", "masked_select", "_unique2", "unique_dim", "unique_consecutive")
)

_SIZED = re.compile(f"^(?:{'|'.join(SIZED_BY_VALUES)})$")


class Rounds(msgspec.Struct, frozen=True):
    """One kind of round, in the counted steps. Atoms in groups: what the same op of one loop launched."""

    count: float  # of a step
    loops: int  # of a step: rounds that follow each other
    ops: int  # that Python calls in a round
    asks: int  # host row of the first op that asks for a size
    waits: I64  # calls in these rounds that wait for the device
    atoms: I64
    group: I64  # of each atom
    in_a_loop: I64  # rounds of the loop that each atom belongs to
    multiplies: bool  # a round holds a product of matrices


@found_once
def waiting_rounds(facts: WorkFacts) -> Rounds | None:
    """Those of the ask that comes most often; None where no loop asks for sizes."""
    heads = in_window(facts, heads_of(facts))
    waits = sync_rows(facts)
    if on_cores(facts):  # nobody waits there, but the next round is no less unknown
        asking = in_window(facts, facts.timeline.rows_named(_SIZED, Kind.OP))
    else:
        asking = waits[[_asks_for_size(facts, row) for row in waits.tolist()]] if len(waits) else waits
    places = _places(heads, outermost(facts, asking))
    names = facts.timeline.events.name[heads]
    # The op that asks most often stands for the loop: a round may ask more than once.
    found = Counter(names[places].tolist()).most_common(1)
    if not found or found[0][1] < FEWEST_REPEATS * facts.steps.count:
        return None
    return _rounds(facts, heads, places[names[places] == found[0][0]], waits)


def _asks_for_size(facts: StepFacts, row: int) -> bool:
    return any(facts.timeline.name_of(one) in SIZED_BY_VALUES for one in facts.links.ancestors(row))


def _places(heads: I64, rows: I64) -> I64:
    """Where some ops stand among those that Python called, in their order, each once."""
    order = np.argsort(heads, kind="stable")
    at = np.minimum(np.searchsorted(heads[order], rows), max(len(heads) - 1, 0))
    found: I64 = np.unique(order[at[heads[order[at]] == rows]]) if len(heads) else rows[:0]
    return found


def _rounds(facts: WorkFacts, heads: I64, places: I64, waits: I64) -> Rounds | None:
    """From one ask to the next there are always the same ops; behind the last round come others."""
    names = facts.timeline.events.name[heads]
    between = [tuple(names[a:b].tolist()) for a, b in pairwise(places.tolist())]
    usual = Counter(one for one in between if len(one) <= LONGEST_ROUND).most_common(1)
    if not usual or usual[0][1] < (FEWEST_REPEATS - 1) * facts.steps.count:
        return None
    body = np.array(usual[0][0])
    # The last ops of a round prepare the next one's ask: behind the last round they are missing.
    rounds = places[[_begins_with(names[at : at + len(body)], body) for at in places.tolist()]]
    loop = np.cumsum(np.concatenate([[0], np.diff(rounds) > len(body)]))
    of_head = np.full(len(facts.timeline.events), -1, np.int64)
    in_loop = np.bincount(loop)
    for at, number in zip(rounds.tolist(), loop.tolist(), strict=True):
        rows = heads[at : at + len(body)][: _common(names[at : at + len(body)], body)]
        of_head[rows] = number * len(body) + np.arange(len(rows))
    atoms, group = _grouped(facts, heads, of_head)
    inside = head_of(facts, heads)[waits]
    return Rounds(
        count=len(rounds) / facts.steps.count,
        loops=max(round(len(in_loop) / facts.steps.count), 1),
        ops=len(body),
        asks=int(heads[rounds[0]]),
        waits=waits[(inside >= 0) & (of_head[np.maximum(inside, 0)] >= 0)],
        atoms=atoms,
        group=group,
        in_a_loop=in_loop[group // 2 // len(body)],
        multiplies=bool(of_class(facts, *MATRIX_CLASSES)[atoms].any()),
    )


def _begins_with(names: I32, body: I64) -> bool:
    """Whether a round has all ops of the usual one, or all but a few at its end."""
    return _common(names, body) > len(body) // 2


def _common(names: I32, body: I64) -> int:
    """How many ops at the beginning are the same."""
    same = names == body[: len(names)]
    return int(np.argmin(same)) if not same.all() else len(same)


def _grouped(facts: WorkFacts, heads: I64, of_head: I64) -> tuple[I64, I64]:
    """Atoms of the rounds, their gradients among them, and for each the op of which loop it is of."""
    by = of_heads(facts, heads)
    backward = by.backward >= 0
    head = np.where(backward, by.backward, by.forward)
    key = np.where(head >= 0, of_head[np.maximum(head, 0)], -1)
    atoms = np.flatnonzero(key >= 0)
    return atoms, key[atoms] * 2 + backward[atoms]
