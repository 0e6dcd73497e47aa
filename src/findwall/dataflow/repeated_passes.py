"""Backward passes through one forward pass whose gradients are only added up: one pass of the sum of the
losses gives the same.

A pass is what autograd's engine runs between two ops of the job's own. Where a later one goes through a node
again, that is for nothing if the engine alone adds to what an earlier one made until the later one ends: a
gradient that is looked at, kept apart or differentiated was wanted by itself.
"""

from __future__ import annotations

import numpy as np

from findwall.dataflow.linking import Flow, in_backward, judged, numbers_in_backward, rows_under
from findwall.dataflow.usefulness import ACCUMULATES
from findwall.model.dataflow import LINE
from findwall.model.events import Bool
from findwall.model.intervals import I64


def passed_again(flow: Flow) -> I64:
    """Heads of nodes that an earlier backward pass has gone through."""
    observed, back = flow.observed, in_backward(flow.observed)
    of = np.cumsum(~back & (flow.head == np.arange(len(back))))  # one number for the rows of a pass
    number = numbers_in_backward(flow)
    nodes = np.flatnonzero(number >= 0)
    first = dict(zip(number[nodes[::-1]].tolist(), of[nodes[::-1]].tolist(), strict=True))
    began = np.array([first[one] for one in number[nodes].tolist()], np.int64)
    later = of[nodes] > began
    if not later.any():
        return nodes[:0]
    adds = np.zeros(len(back), bool)
    adds[list(rows_under(observed, ACCUMULATES))] = True
    pairs = np.unique(np.column_stack([began[later], of[nodes[later]]]), axis=0)
    apart = {(a, b): _is_only_added(flow, back, of, adds, a, b) for a, b in pairs.tolist()}
    again = [apart.get(pair, False) for pair in zip(began.tolist(), of[nodes].tolist(), strict=True)]
    # What a pass adds to gradients that are there, it adds to what the one pass would have made whole.
    needless = {late for (_, late), alone in apart.items() if alone}
    sums = (flow.writer >= 0) & adds[flow.reader] & back[np.maximum(flow.writer, 0)]
    sums &= (of[np.maximum(flow.writer, 0)] < of[flow.reader]) & np.isin(of[flow.reader], list(needless))
    found = np.concatenate([nodes[np.array(again, bool)], flow.head[flow.reader[sums]]])
    heads: I64 = np.intersect1d(found, judged(flow))
    return heads


def asked_at(flow: Flow, heads: I64) -> str:
    """The job's own line that asked for the first of these passes."""
    observed = flow.observed
    before = np.flatnonzero(~in_backward(observed) & (observed.line >= 0))
    before = before[before < heads[0]] if len(heads) else before[:0]
    return observed.names[int(observed.line[before[-1]])].removeprefix(LINE) if len(before) else ""


def _is_only_added(flow: Flow, back: Bool, of: I64, adds: Bool, early: int, late: int) -> bool:
    """Whether until the late pass ends nothing reads what passes before it made, but what adds to it."""
    made = back & (of >= early) & (of < late)
    ends = int(np.flatnonzero(back & (of == late))[-1])
    known = flow.writer >= 0
    reads = (
        known
        & made[np.maximum(flow.writer, 0)]
        & (of[flow.reader] != of[np.maximum(flow.writer, 0)])
        & ~adds[flow.reader]
    )
    return not (flow.reader[reads] <= ends).any()
