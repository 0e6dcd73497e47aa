"""What each op of a step is for, decided once from what flows where.

A job that trains: autograd's engine runs the `backward` pass. What it has a node for is `forward`, and `loss`
where nothing flows from it into a layer. What flows into the parameters without it is the `update`; what
flows from them into something else that lasts is an `average`. Of what records no gradient, `teacher` reads
parameters and flows into the loss, `data` reads none and flows into the model, `evaluation` reads parameters
and flows into nothing that is trained, `metric` is made of what training gave and is only looked at. Of what
the host takes away, as an agent's actions, nobody sees what becomes: `other`. A number that it takes of an
evaluation is made of the model's results and of what they should be; the model's choice may be an action.
A job that does not train has `data`, `forward` and, where nothing flows into a layer any more, `other`.
"""

from __future__ import annotations

import msgspec
import numpy as np

from findwall.dataflow.joining import Joined
from findwall.dataflow.linking import (
    BEFORE,
    Flow,
    in_backward,
    iterations,
    judged,
    of_ours,
    owners,
    rows_under,
)
from findwall.dataflow.traced_roles import traced_roles
from findwall.dataflow.usefulness import numbers_taken, reached_from, reaching, taken_by_host
from findwall.dataflow.weights import weights_of
from findwall.model.dataflow import BORN, BUFFERS, MAKE, ROLES, STATE, Role
from findwall.model.events import Bool
from findwall.model.intervals import I64
from findwall.work.work_facts import WorkFacts

_UPDATES = ("Optimizer.step#", "Optimizer.zero_grad#")
_CHOICES = frozenset(("aten::argmax", "aten::argmin", "aten::multinomial"))


def roles(flow: Flow) -> I64:
    """For each row of what was observed the role of its outermost op, into ROLES; -1: it is none of the job's
    ops, or of the last iteration."""
    observed = flow.observed
    heads = judged(flow)
    trains = in_backward(observed)[heads].any()
    said = _as_seen_later(flow, heads) if trains else _in_inference(flow, heads)
    found = np.full(len(observed), -1, np.int64)
    found[heads] = [ROLES.index(one) for one in said]
    _views_serve(flow, heads, found)
    return np.where(flow.head >= 0, found[np.maximum(flow.head, 0)], -1)


def for_what(facts: WorkFacts, graph: Joined | None) -> I64:
    """The role of the op of each host row of the trace, into ROLES; -1 unknown. By the graph where it has the
    op. What it cannot see the trace tells: that an optimizer steps inside the backward pass, and that the
    model itself works on its inputs, with gradients on."""
    traced = traced_roles(facts)
    if graph is None:
        return traced
    told = np.where(graph.op >= 0, roles(graph.flow)[graph.op], -1)
    forward, backward, update, data, other = (
        ROLES.index(one) for one in ("forward", "backward", "update", "data", "other")
    )
    steps_inside = (told == backward) & (traced == update)
    of_the_model = (told == data) & ((traced == forward) | (traced < 0))
    return np.where((told < 0) | (told == other) | steps_inside | of_the_model, traced, told)


def _views_serve(flow: Flow, heads: I64, found: I64) -> None:
    """Who only shows a tensor in another way, or makes room for one, is for what follows."""
    observed = flow.observed
    makes, writes = np.zeros(len(observed), bool), np.zeros(len(observed), bool)
    makes[observed.op[observed.way == MAKE]] = True
    writes[flow.head[flow.wrote]] = True
    own = in_backward(observed)
    for head, following in zip(heads[-2::-1].tolist(), heads[:0:-1].tolist(), strict=True):
        if makes[head] and not writes[head] and own[head] == own[following]:
            found[head] = found[following]


def _in_inference(flow: Flow, heads: I64) -> list[Role]:
    parameters = held(flow)
    weights = weights_of(flow, parameters, set())
    # What one pass gives to the next, a word to go on from, is what it was there for.
    number = _passes(flow, parameters)
    within = _without(flow, number[flow.writer] != number[flow.reader])
    behind = reached_from(flow, np.flatnonzero(weights.read))
    in_front = reaching(within, np.flatnonzero(weights.layer))
    return [
        "data" if not behind[head] else "forward" if in_front[head] else "other" for head in heads.tolist()
    ]


def _passes(flow: Flow, parameters: set[int]) -> I64:
    """The number of the pass of each row: one begins where the weight that is read first is read again."""
    reads = np.isin(flow.storage, list(parameters)) & ~np.isin(flow.reader, of_ours(flow.observed))
    first = flow.storage[reads][:1]
    begins = np.unique(flow.head[flow.reader[reads & np.isin(flow.storage, first)]])
    return np.searchsorted(begins, np.arange(len(flow.observed)), side="right")


def _as_seen_later(flow: Flow, heads: I64) -> list[Role]:
    """Of what an iteration begins with, as the figures of a log, nobody saw where it came from in the first
    that was seen: there it is for what the same ops of the next one are for."""
    number = iterations(flow.observed)
    every = np.setdiff1d(flow.heads(), of_ours(flow.observed))
    first, after = (every[number[every] == one] for one in (0, 1))
    said = dict(zip(every.tolist(), _in_training(flow, every), strict=True))
    for early, late in zip(first.tolist(), after.tolist(), strict=False):
        if flow.observed.name[early] != flow.observed.name[late]:
            break
        if said[early] == "other" and said[late] == "metric":
            said[early] = "metric"
    return [said[head] for head in heads.tolist()]


def _in_training(flow: Flow, heads: I64) -> list[Role]:
    parts = _Parts(flow)

    def role(head: int) -> Role:
        if parts.backward[head]:
            return "backward"
        to_forward, to_loss = parts.to_forward[head], parts.to_loss[head]
        if parts.recorded[head]:
            return "forward" if to_forward else "loss"
        if parts.to_parameters[head]:
            return "update"
        if to_forward or to_loss:
            if parts.behind_recorded[head]:
                return "forward" if to_forward else "loss"
            return "teacher" if parts.sees_weights[head] else "data"
        if parts.in_update[head]:
            return "update"
        if parts.to_backward[head]:
            return "backward"  # the gradient that it begins with
        if parts.to_what_lasts[head]:
            return _kept(parts, head)
        if parts.behind_recorded[head] or parts.behind_backward[head] or parts.weights.made[head]:
            return "metric"
        if parts.sees_weights[head]:
            return "other" if parts.to_host[head] else "evaluation"
        return "data" if parts.to_evaluation[head] or parts.to_batch[head] else "other"

    return [role(head) for head in heads.tolist()]


def _kept(parts: _Parts, head: int) -> Role:
    """Of what flows into something that lasts, and is no parameter."""
    trains = parts.to_what_trains[head]
    if parts.behind_backward[head]:
        return "metric"
    if parts.weights.made[head]:
        return "average"
    if parts.carries_recorded[head]:
        return "average" if trains else "metric"
    if parts.sees_weights[head]:
        return "teacher" if trains else "evaluation"
    if trains:
        return "data"
    return "average" if parts.to_average[head] else "other"


class _Parts:
    """Of a job that trains: which rows are what, each by itself."""

    def __init__(self, flow: Flow) -> None:
        observed = flow.observed
        self.backward = in_backward(observed)
        self.recorded = _recorded(flow) & ~self.backward
        self.in_update = np.zeros(len(observed), bool)
        for name in observed.names:
            if name.startswith(_UPDATES):
                self.in_update[list(rows_under(observed, name))] = True
        trained = _trained(flow, self.recorded, self.backward)
        parameters = held(flow) | trained
        lasting = _lasting(flow, self.backward, self.recorded)
        self.weights = weights_of(flow, parameters, lasting)
        # One pass at a time: what lasts is where the next one begins, and gradients are another's work.
        passing = _without(flow, np.isin(flow.storage, list(parameters | lasting)))
        once = _without(passing, self.backward[passing.reader])
        layers = self.weights.layer & self.recorded
        self.to_forward = reaching(once, np.flatnonzero(layers))
        self.to_loss = reaching(once, np.flatnonzero(self.recorded))
        self.behind_recorded = reached_from(once, np.flatnonzero(self.recorded))
        self.behind_backward = reached_from(once, np.flatnonzero(self.backward & (flow.head >= 0)))
        self.sees_weights = reached_from(once, np.flatnonzero(self.weights.read | self.weights.made))
        self.to_backward = reaching(passing, np.flatnonzero(self.backward & (flow.head >= 0)))
        self.to_evaluation = reaching(once, np.flatnonzero(self.weights.layer))
        self.to_parameters = self._changing(flow, trained)
        self.to_what_lasts = reaching(once, _writers(flow, lasting | parameters))
        self.to_average = reaching(once, np.flatnonzero(self.weights.made & self.to_what_lasts))
        # From step to step: a table that follows what goes through it.
        carried = _without(flow, np.isin(flow.storage, list(parameters)) | self.backward[flow.reader])
        self.to_what_trains = reaching(carried, np.flatnonzero(self.recorded))
        self.carries_recorded = reached_from(carried, np.flatnonzero(self.recorded))
        self.to_host = reaching(once, np.union1d(taken_by_host(observed), self._acted_on(once)))
        self.to_batch = reaching(once, _makers_of_batches(flow))

    def _acted_on(self, flow: Flow) -> I64:
        """Reads of a number by the host that may decide what the job does: of the model's results alone, or
        of a choice among them."""
        reader, writer = flow.head[flow.reader], flow.head[np.maximum(flow.writer, 0)]
        inside = (reader >= 0) & (flow.writer >= 0) & (writer >= 0)
        behind = (self.sees_weights & ~self.to_evaluation)[np.maximum(reader, 0)] & (
            reader >= 0
        )  # all layers
        known = self.sees_weights[np.maximum(writer, 0)] & inside
        wide = np.array([bool(one.dims) for one in flow.observed.regions], bool)[flow.observed.region]
        compared = reached_from(flow, np.unique(reader[behind & ~known & wide[flow.use]]))
        named = np.array([name in _CHOICES for name in flow.observed.names], bool)[flow.observed.name]
        chosen = reader[inside & named[np.maximum(writer, 0)]]
        taken = flow.head[numbers_taken(flow.observed)]
        taken = taken[taken >= 0]
        found: I64 = taken[~compared[taken] | np.isin(taken, chosen)]
        return found

    def _changing(self, flow: Flow, trained: set[int]) -> Bool:
        """Rows that flow into parameters or gradients by themselves, through what an optimizer keeps too."""
        passes = (self.recorded | self.backward)[np.maximum(flow.head, 0)]
        steps = _without(flow, np.isin(flow.storage, list(trained)) | passes[flow.reader])
        return reaching(steps, _writers(flow, trained | _gradients(flow, self.backward)))


def _without(flow: Flow, links: Bool) -> Flow:
    kept = ~links
    return msgspec.structs.replace(
        flow,
        writer=flow.writer[kept],
        reader=flow.reader[kept],
        use=flow.use[kept],
        storage=flow.storage[kept],
    )


def held(flow: Flow) -> set[int]:
    """Parameters of modules."""
    rows = rows_under(flow.observed, STATE) - rows_under(flow.observed, BUFFERS)
    return set(flow.storage[np.isin(flow.reader, list(rows))].tolist())


def _trained(flow: Flow, recorded: Bool, backward: Bool) -> set[int]:
    """Storages that the forward pass reads and gradients change, whoever holds them. What is made of other
    parameters, and of no gradient, is no such change."""
    heads = np.where(flow.head >= 0, flow.head, 0)
    given = (flow.born[flow.storage] == BEFORE) & recorded[heads[flow.reader]]
    read = set(flow.storage[given].tolist())
    once = _without(flow, np.isin(flow.storage, list(read)) | backward[flow.reader])
    stepped = reached_from(once, np.flatnonzero(backward & (flow.head >= 0)))
    changed = stepped[heads[flow.wrote]] & ~recorded[heads[flow.wrote]] & ~backward[flow.wrote]
    found = read & set(flow.written[changed].tolist())
    return found & held(flow) or found  # the scale of a loss is changed by gradients too


def _lasting(flow: Flow, backward: Bool, recorded: Bool) -> set[int]:
    """Storages that the job reads as they were before, and changes; and those that each iteration makes anew
    for the next. Who fills one before anybody reads it has found a place for something, no more."""
    ours = np.zeros(len(backward), bool)
    ours[of_ours(flow.observed)] = True
    old = set(flow.storage[(flow.writer == BEFORE) & ~ours[flow.reader]].tolist())
    changed = set(flow.written[~backward[flow.wrote]].tolist())
    lasting = old & changed & set(np.flatnonzero(flow.born == BEFORE).tolist())
    return (lasting | _handed_on(flow, backward, recorded)) - _gradients(flow, backward)


def _handed_on(flow: Flow, backward: Bool, recorded: Bool) -> set[int]:
    """Storages that an iteration makes and the same op of each reads in the next; those of before, too. What
    a pass gave to a log is behind that pass, on whichever side of an iteration's end the log is written."""
    number, heads = iterations(flow.observed), judged(flow)
    begins = [row for row in flow.heads().tolist() if number[row] == 1]
    names = flow.observed.name
    first, second = heads[number[heads] == 0], np.setdiff1d(begins, of_ours(flow.observed))
    if len(first) != len(second) or (names[first] != names[second]).any():
        return set()
    before = dict(zip(second.tolist(), first.tolist(), strict=True))
    place = flow.use - np.searchsorted(flow.observed.op, flow.reader)
    old = flow.writer == BEFORE
    later = ~old & ~backward[flow.writer] & (number[flow.writer] == 0)
    of_a_pass = recorded[flow.writer] | recorded[np.maximum(flow.head[flow.writer], 0)]
    later &= ~of_a_pass | reaching(flow, np.flatnonzero(recorded))[flow.reader]
    reads = np.stack([flow.reader, place, flow.storage], axis=1)
    given = {(row, at): storage for row, at, storage in reads[old].tolist()}
    found: set[int] = set()
    for row, at, storage in reads[later].tolist():
        older = given.get((before.get(row, BEFORE), at))
        found |= {storage, older} if older is not None else set()
    return found


def _gradients(flow: Flow, backward: Bool) -> set[int]:
    """Those that were there before."""
    return set(flow.written[backward[flow.wrote] & (flow.born[flow.written] == BEFORE)].tolist())


def _writers(flow: Flow, storages: set[int]) -> I64:
    return flow.wrote[np.isin(flow.written, list(storages)) & ~in_backward(flow.observed)[flow.wrote]]


def _recorded(flow: Flow) -> Bool:
    """Rows of outermost ops that autograd has a node for."""
    observed = flow.observed
    nodes = np.unique(observed.sequence[observed.is_backward & (observed.sequence >= 0)])
    owner = owners(flow)
    found = np.zeros(len(observed), bool)
    found[[owner[number] for number in nodes.tolist() if number in owner]] = True
    return found


def _makers_of_batches(flow: Flow) -> I64:
    """Ops that wrote where a loader's batch lies."""
    observed = flow.observed
    told = np.isin(observed.op, list(rows_under(observed, BORN)))
    use = np.searchsorted(observed.op, flow.wrote) + flow.place
    return flow.wrote[np.isin(observed.storage[use], observed.storage[told])]
