"""Backward passes through one forward pass whose gradients are only added up: one pass of the sum of the
losses gives the same.

A pass is what autograd's engine runs between two ops of the job's own. Where a later one goes through a node
again, that is for nothing if the engine alone adds to what an earlier one made of it: a gradient that is
looked at, kept apart or differentiated was wanted by itself.
"""

from __future__ import annotations

import numpy as np

from findwall.dataflow.linking import Flow, in_backward, judged, numbers_in_backward, rows_under
from findwall.dataflow.usefulness import ACCUMULATES
from findwall.model.dataflow import LINE
from findwall.model.intervals import I64


def passed_again(flow: Flow) -> I64:
    """Heads of nodes that an earlier backward pass has gone through."""
    found = _Passes(flow)
    heads: I64 = np.intersect1d(found.heads(), judged(flow)) if len(found.nodes) else found.nodes
    return heads


def asked_at(flow: Flow, heads: I64) -> str:
    """The job's own line that asked for the first of these passes."""
    observed = flow.observed
    before = np.flatnonzero(~in_backward(observed) & (observed.line >= 0))
    before = before[before < heads[0]] if len(heads) else before[:0]
    return observed.names[int(observed.line[before[-1]])].removeprefix(LINE) if len(before) else ""


class _Passes:
    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        self._back = in_backward(flow.observed)
        # One number for all rows between two ops of the job's own.
        self._of = np.cumsum(~self._back & (flow.head == np.arange(len(self._back))))
        self._adds = np.zeros(len(self._back), bool)
        self._adds[list(rows_under(flow.observed, ACCUMULATES))] = True
        number = numbers_in_backward(flow)
        rows = np.flatnonzero(number >= 0)
        first = dict(zip(number[rows[::-1]].tolist(), self._of[rows[::-1]].tolist(), strict=True))
        began = np.array([first[one] for one in number[rows].tolist()], np.int64)
        later = self._of[rows] > began
        self.nodes, self._began = rows[later], began[later]  # gone through before, and in which pass first
        self._shared = self._back & np.isin(number, np.unique(number[self.nodes]))
        writer = np.maximum(flow.writer, 0)
        # Links that leave the pass which made what is read.
        self._leaves = (flow.writer >= 0) & self._back[writer] & (self._of[writer] < self._of[flow.reader])
        self._writer = writer

    def heads(self) -> I64:
        late = self._of[self.nodes]
        pairs = np.column_stack([self._began, late])
        summed = {(a, b) for a, b in np.unique(pairs, axis=0).tolist() if self._is_only_added(a, b)}
        again = np.array([(a, b) in summed for a, b in pairs.tolist()], bool)
        # What a pass adds to gradients that are there, the one pass would have made whole.
        sums = self._leaves & self._adds[self._flow.reader]
        sums &= np.isin(self._of[self._flow.reader], [b for _, b in summed])
        return np.concatenate([self.nodes[again], self._flow.head[self._flow.reader[sums]]])

    def _is_only_added(self, early: int, late: int) -> bool:
        """Whether until the late pass ends nothing reads what passes before it made, but what adds to it; and
        nothing ever reads what they made of nodes that both go through, as long as nothing was added."""
        reader, of = self._flow.reader, self._of[self._writer]
        ends = int(np.flatnonzero(self._back & (self._of == late))[-1])
        wanted = self._leaves & ~self._adds[reader] & (of >= early) & (of < late)
        return not (wanted & ((reader <= ends) | self._shared[self._writer])).any()
