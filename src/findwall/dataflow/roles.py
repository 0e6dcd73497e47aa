"""What each op of a step is for, decided once from what flows where.

A job that trains: autograd's engine runs the `backward` pass. What it has a node for is `forward`, and `loss`
behind the last op that reads a parameter. What flows into the parameters without it is the `update`; what
flows from them into something else that lasts is an `average`. Of what records no gradient, `teacher` reads
parameters and flows into the loss, `data` reads none and flows into the model, `evaluation` reads parameters
and flows into nothing that is trained, `metric` is made of what the model gave and is only looked at.
A job that does not train has `data`, `forward` and, behind the last op that reads a parameter, `other`.
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np

from findwall.dataflow.linking import BEFORE, Flow, in_backward, judged, owners, rows_under
from findwall.dataflow.usefulness import changes, reached_from, reaching
from findwall.model.dataflow import STATE
from findwall.model.events import Bool
from findwall.model.intervals import I64

Role = Literal[
    "data", "forward", "loss", "backward", "update", "average", "evaluation", "teacher", "metric", "other"
]
ROLES: tuple[Role, ...] = get_args(Role)
_UPDATES = ("Optimizer.step#", "Optimizer.zero_grad#")


def roles(flow: Flow) -> I64:
    """For each row of what was observed the role of its outermost op, into ROLES; -1: it is none of the job's
    ops, or of the last iteration."""
    observed = flow.observed
    heads = judged(flow)
    said = _in_training(flow, heads) if in_backward(observed)[heads].any() else _in_inference(flow, heads)
    found = np.full(len(observed), -1, np.int64)
    found[heads] = [ROLES.index(one) for one in said]
    return np.where(flow.head >= 0, found[np.maximum(flow.head, 0)], -1)


def _in_inference(flow: Flow, heads: I64) -> list[Role]:
    reads, _ = _parameters(flow)
    after = reached_from(flow, np.flatnonzero(reads))
    last = int(np.flatnonzero(reads)[-1]) if reads.any() else -1
    return [
        "data" if not (after[head] or reads[head]) else "forward" if head <= last else "other"
        for head in heads.tolist()
    ]


def _in_training(flow: Flow, heads: I64) -> list[Role]:
    observed = flow.observed
    backward, recorded = in_backward(observed), _recorded(flow)
    reads, trained = _parameters(flow)
    feeds_parameters = reaching(flow, _writers_of(flow, trained))
    feeds_what_lasts = reaching(flow, changes(flow))
    behind = reached_from(flow, np.flatnonzero(reads))
    behind_forward = reached_from(flow, np.flatnonzero(recorded))
    behind_backward = reached_from(flow, np.flatnonzero(backward & (flow.head >= 0)))
    in_update = np.zeros(len(observed), bool)
    for name in observed.names:
        if name.startswith(_UPDATES):
            in_update[list(rows_under(observed, name))] = True
    last_layer = _last_layers(flow, recorded & reads)

    def role(head: int) -> Role:
        if backward[head]:
            return "backward"
        if in_update[head]:
            return "update"
        if recorded[head]:
            return "loss" if head > last_layer[head] else "forward"
        if behind_backward[head] and feeds_parameters[head]:
            return "update"
        if feeds_parameters[head] and behind_forward[head]:
            return "loss"  # weights of it, say
        if feeds_parameters[head]:
            return "teacher" if reads[head] or behind[head] else "data"
        if feeds_what_lasts[head]:
            return "average" if reads[head] or behind[head] else "other"
        if reads[head]:
            return "evaluation"
        return "metric" if behind[head] else "other"

    return [role(head) for head in heads.tolist()]


def _parameters(flow: Flow) -> tuple[Bool, set[int]]:
    """Rows of outermost ops that read parameters or buffers; and which of these storages are written."""
    told = np.isin(flow.reader, list(rows_under(flow.observed, STATE)))
    state = set(flow.storage[told].tolist())
    rows = flow.reader[np.isin(flow.storage, list(state)) & ~told]
    reads = np.zeros(len(flow.observed), bool)
    reads[flow.head[rows][flow.head[rows] >= 0]] = True
    return reads, state & set(flow.written[flow.born[flow.written] == BEFORE].tolist())


def _writers_of(flow: Flow, storages: set[int]) -> I64:
    return flow.wrote[np.isin(flow.written, list(storages))]


def _recorded(flow: Flow) -> Bool:
    """Rows of outermost ops that autograd has a node for."""
    observed = flow.observed
    nodes = np.unique(observed.sequence[observed.is_backward & (observed.sequence >= 0)])
    owner = owners(flow)
    found = np.zeros(len(observed), bool)
    found[[owner[number] for number in nodes.tolist() if number in owner]] = True
    return found


def _last_layers(flow: Flow, layers: Bool) -> I64:
    """For each row the last op before the next backward pass that reads a parameter and is recorded."""
    begins = np.flatnonzero(np.diff(in_backward(flow.observed).astype(np.int8), prepend=0) == 1)
    rows = np.arange(len(flow.observed))
    until = np.append(begins, len(rows))[np.searchsorted(begins, rows, side="right")]
    places = np.flatnonzero(layers)
    at = np.searchsorted(places, until) - 1
    return np.where(at >= 0, places[np.maximum(at, 0)], len(rows)) if len(places) else np.full(len(rows), -1)
