"""The ops that were observed beside those that were traced: which row of the trace is which op.

Both are of the same job, of other steps. Outermost ops come in the same order in both, so they are matched by
their names, step by step; a step that takes another way is matched as far as both go together from its
beginning and from its end. Of steps unlike any that was observed (every tenth evaluates) nothing is known.
"""

from __future__ import annotations

from difflib import SequenceMatcher

import msgspec
import numpy as np

from findwall.dataflow.linking import Flow, iterations, judged, link_flow, of_ours
from findwall.model.catalogue import MAJORITY_SHARE, NEARLY_ALL
from findwall.model.dataflow import LINE
from findwall.model.events import Bool, Kind
from findwall.model.intervals import I64
from findwall.step.step_facts import Called, StepFacts

_MOST_COMPARED = 400  # ops between what is alike at both ends: comparing takes their square. Chosen by hand.


class Joined(msgspec.Struct, frozen=True):
    """A graph of the step, and the trace's rows on it."""

    flow: Flow
    op: I64  # a row of the trace each: the outermost op that it runs in, as observed; -1 none


def joined(facts: StepFacts) -> Joined | None:
    """None where nothing was observed, or where the observed step is not the traced one."""
    if facts.rank.observed is None:
        return None
    flow = link_flow(facts.rank.observed)
    observed = flow.observed
    number, heads = iterations(observed), np.setdiff1d(flow.heads(), of_ours(observed))
    names = np.array(observed.names, object)[observed.name]
    outer = _outermost(facts, {name for at, name in enumerate(observed.names) if _is_op(flow, at)})
    own = np.flatnonzero(outer == np.arange(len(outer)))
    own = own[np.argsort(facts.timeline.events.start[own], kind="stable")]
    step = np.searchsorted(facts.steps.host, facts.timeline.events.start[own], side="right")
    of = np.full(len(outer), -1, np.int64)
    like: list[int] = []  # of each known step the iteration
    for traced in range(1, len(facts.steps.host)):
        rows = own[step == traced]
        theirs = [facts.timeline.name_of(row) for row in rows.tolist()]
        # Steps may take turns: two calls of a model, say, with something before the first. Of what a later
        # one is given, more is known; of the last nobody sees what becomes of it.
        *others, last = np.unique(number[heads]).tolist()
        for one in (*others[::-1], last):
            mine = heads[number[heads] == one]
            here, there = _matched(names[mine].tolist(), theirs)
            if len(here) >= NEARLY_ALL * max(len(mine), len(theirs)):
                of[rows[there]] = mine[here]
                like.append(one)
                break
    if len(like) <= MAJORITY_SHARE * facts.steps.count or not set(like) & set(number[judged(flow)].tolist()):
        return None
    known = outer >= 0
    found = np.full(len(outer), -1, np.int64)
    found[known] = of[outer[known]]
    return Joined(flow, found)


def called(graph: Joined) -> Called:
    """The job's own line that called the op of each host row."""
    observed = graph.flow.observed
    line = np.where(graph.op >= 0, observed.line[np.maximum(graph.op, 0)], -1)
    return Called([name.removeprefix(LINE) for name in observed.names], line)


def _is_op(flow: Flow, name: int) -> bool:
    return bool(flow.observed.is_op[flow.observed.name == name].any())


def _outermost(facts: StepFacts, names: set[str]) -> I64:
    """The outermost op of these names around each row of the host, itself included; -1 none."""
    events = facts.timeline.events
    wanted = np.array([name in names for name in facts.timeline.names], bool)
    is_op: Bool = wanted[events.name] & events.is_kind(Kind.OP)
    found = np.where(is_op, np.arange(len(events)), -1)
    above = facts.links.parent.copy()
    while (above >= 0).any():
        around = above >= 0
        found[around & is_op[np.maximum(above, 0)]] = above[around & is_op[np.maximum(above, 0)]]
        above[around] = facts.links.parent[above[around]]
    return found


def _matched(ours: list[str], theirs: list[str]) -> tuple[I64, I64]:
    """Places in both that go together."""
    shorter = min(len(ours), len(theirs))
    head = next((at for at in range(shorter) if ours[at] != theirs[at]), shorter)
    tail = next((at for at in range(shorter - head) if ours[-1 - at] != theirs[-1 - at]), shorter - head)
    pairs = [(at, at) for at in range(head)]
    middle, other = ours[head : len(ours) - tail], theirs[head : len(theirs) - tail]
    if middle and other and max(len(middle), len(other)) <= _MOST_COMPARED:
        for block in SequenceMatcher(None, middle, other, autojunk=False).get_matching_blocks():
            pairs += [(head + block.a + at, head + block.b + at) for at in range(block.size)]
    pairs += [(len(ours) - at, len(theirs) - at) for at in range(tail, 0, -1)]
    columns = np.array(pairs, np.int64).reshape(-1, 2).T
    return columns[0], columns[1]
