"""Where the job's own code makes its batches in the training loop, as a loader without workers would.

What no weight flows into and what lies in front of the pass that is trained is the making of a batch, with
the Python between its ops: from the first of them to the last. What lies before the first may be anything (a
log of the step before), and so may the rest of a job whose model is asked for more than its training: an
agent's actions make its next batch. What draws decide, as noise does, is no sample that could be stored.
"""

from __future__ import annotations

import re

import numpy as np
from msgspec.structs import replace

from findwall.dataflow.joining import Joined
from findwall.dataflow.linking import Flow, iterations, judged
from findwall.dataflow.roles import held, roles
from findwall.dataflow.unneeded import observed_ops
from findwall.dataflow.usefulness import reached_from
from findwall.model.catalogue import MAJORITY_SHARE, WORTH_IT
from findwall.model.dataflow import LINE, ROLES, Batches, Unneeded
from findwall.model.events import DEVICE_KINDS, Bool, Kind, Timeline
from findwall.model.intervals import I64
from findwall.step.called_ops import head_of, heads_of
from findwall.step.cores import stacked
from findwall.work.work_facts import WorkFacts

# A range that the pattern of loaders finds, as that of a loader without workers.
BY_HAND = "findwall by hand: _SingleProcessDataLoaderIter.__next__"
# Numbers that differ from pass to pass. Whole numbers mostly choose samples, which stay what they are.
_DRAWS = re.compile(r"^aten::(rand(n|_like|n_like)?|normal|bernoulli|dropout|uniform|exponential|poisson)_?$")


_OF_OPS = ("correlation", "sequence", "inputs", "extra", "launch")


def marked(timeline: Timeline, batches: Batches) -> Timeline:
    """The timeline with a loader's range around each stretch in which a batch is made."""
    blank = np.full(len(batches.start), -1, np.int64)
    first = timeline.events.take(np.searchsorted(timeline.events.start, batches.start))
    ranges = replace(
        first,
        start=batches.start,
        end=batches.end,
        kind=np.full(len(blank), Kind.ANNOTATION, np.uint8),
        name=np.full(len(blank), len(timeline.names), first.name.dtype),
        thread=np.full(len(blank), batches.thread, first.thread.dtype),
        **{name: blank.astype(getattr(first, name).dtype) for name in _OF_OPS},
    )
    return replace(timeline, events=stacked(timeline.events, ranges), names=[*timeline.names, BY_HAND])


def batches_by_hand(facts: WorkFacts, graph: Joined | None, unneeded: tuple[Unneeded, ...]) -> Batches | None:
    """None where there are none, where they take too little of the step, or where nobody can tell. Where a
    loader was timed, what it takes is known already, and the two cannot be told apart."""
    timed = facts.rank.step_times
    if graph is None or not facts.links.backward.any() or (timed is not None and timed.loader_s is not None):
        return None
    heads = heads_of(facts)
    stretch, stored = _stretches(graph.flow)
    mine = (graph.op[heads] >= 0) & (stretch[graph.op[heads]] >= 0)
    if not mine.any():
        return None
    events, op = facts.timeline.events, graph.op[heads]
    length = events.duration[heads]
    stays = mine & stored[op] & ~_needless(facts, graph, op, unneeded)
    if length[stays].sum() <= MAJORITY_SHARE * length[mine].sum():
        return None
    place = np.flatnonzero(mine & ~_on_a_device(facts, heads))
    if not len(place):
        return None
    heads, op = heads[place], op[place]
    apart = (np.diff(stretch[op]) != 0) | (np.diff(op) < 0) | (np.diff(place) > 1)
    first = np.flatnonzero(np.append(True, apart))
    start, end = events.start[heads[first]], events.end[heads[np.append(first[1:], len(heads)) - 1]]
    if float((end - start).sum()) <= WORTH_IT * float(facts.steps.host[-1] - facts.steps.host[0]):
        return None
    until = events.end[heads]
    since = np.append(0, until)[:-1]
    since[first] = start
    return Batches(start, end, int(events.thread[heads[0]]), _lines(graph.flow, op, until - since))


def _stretches(flow: Flow) -> tuple[I64, Bool]:
    """For each observed row the number of the stretch of such ops that it is of, -1 for all others; and
    whether no draw flows into it."""
    observed, heads = flow.observed, judged(flow)
    role = roles(flow)[heads]
    of_weights = np.isin(flow.storage, list(held(flow)))
    behind = reached_from(flow, np.unique(flow.head[flow.reader[of_weights & (flow.head[flow.reader] >= 0)]]))
    apart = _are(role, "other") & behind[heads]
    found = np.full(len(observed), -1, np.int64)
    draws = [bool(_DRAWS.search(name)) for name in observed.names]
    stored = ~reached_from(flow, heads[np.array(draws, bool)[observed.name[heads]]])
    if (apart | _are(role, "evaluation")).any():
        return found, stored
    plain = _are(role, "data", "other")
    passes = np.flatnonzero(_are(role, "forward", "loss", "backward", "teacher"))
    before = np.searchsorted(passes, np.arange(len(heads))) - 1
    kind = np.append(role[passes], -1)  # -1: none before, or none behind
    mine = plain & _are(kind[before], "backward") | plain & (before < 0)
    mine &= _are(kind[before + 1], "forward", "teacher")
    apart = ~plain | np.append(False, np.diff(iterations(observed)[heads]) != 0)
    found[heads[mine]] = np.cumsum(apart)[mine]
    return found, stored


def _are(role: I64, *names: str) -> Bool:
    return np.isin(role, [ROLES.index(name) for name in names])


def _needless(facts: WorkFacts, graph: Joined, op: I64, unneeded: tuple[Unneeded, ...]) -> Bool:
    """Which of these observed ops are done for nothing, as what never changes: no batch is made of that."""
    atoms = np.concatenate([op[:0], *(one.atoms for one in unneeded)])
    found: Bool = np.isin(op, observed_ops(facts, graph)[atoms])
    return found


def _on_a_device(facts: WorkFacts, heads: I64) -> Bool:
    """Which of these ops launch work on a device that is not the cores."""
    calls = facts.links.launch[facts.timeline.rows(*DEVICE_KINDS)]
    if facts.rank.device_kind == "cpu":
        return np.zeros(len(heads), bool)
    found: Bool = np.isin(heads, head_of(facts, heads)[calls[calls >= 0]])
    return found


def _lines(flow: Flow, op: I64, took: I64) -> tuple[str, ...]:
    line = flow.observed.line[op]
    total = np.bincount(line[line >= 0], took[line >= 0])
    order = np.argsort(-total, kind="stable")
    return tuple(flow.observed.names[at].removeprefix(LINE) for at in order[total[order] > 0].tolist())
