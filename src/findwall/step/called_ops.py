"""Ops that Python itself called, and which of them record gradients.

The profiler numbers an op while gradients are recorded: the number of the node that its backward pass will
be. So an op that Python called and that has no number, nor any op inside it, ran under `torch.no_grad()` or
`torch.inference_mode()`, or made a tensor from nothing. What checkpointing runs without gradients lies inside
an op that has a number.

A function with a backward of its own is numbered in any case.
"""

from __future__ import annotations

import numpy as np

from findwall.model.events import Bool, Kind
from findwall.model.intervals import I64
from findwall.step.links import runs_in
from findwall.step.step_facts import StepFacts, found_once

# Ops without a tensor to work on, which have no number in any case.
MADE_FROM_NOTHING = (
    r"empty|zeros|ones|full|rand|arange|linspace|logspace|eye|scalar_tensor|lift_fresh|tril_indices"
    r"|triu_indices|normal$|bartlett|hann|hamming|blackman|kaiser"
)


@found_once
def heads_of(facts: StepFacts) -> I64:
    """Ops that Python itself called, outside of the autograd engine, by their thread and order."""
    events, links = facts.timeline.events, facts.links
    rows = facts.timeline.rows(Kind.OP)
    above = links.parent[rows]
    inside = (above >= 0) & (links.op[np.maximum(above, 0)] >= 0)
    rows = rows[~inside & ~links.backward[rows] & np.isin(events.thread[rows], facts.host.threads)]
    return rows[np.lexsort((events.start[rows], events.thread[rows]))]


def head_of(facts: StepFacts, heads: I64) -> I64:
    """For each host row the head it runs in; -1 where it runs in none."""
    return runs_in(facts.timeline, facts.links, heads)


def records(facts: StepFacts, heads: I64) -> Bool:
    """Which of these ops record gradients."""
    events = facts.timeline.events
    head = head_of(facts, heads)[events.is_kind(Kind.OP) & (events.sequence >= 0)]
    return np.isin(heads, head)


def backward_starts(facts: StepFacts) -> I64:
    """When the ops of backward passes began, in their order."""
    events = facts.timeline.events
    return np.sort(events.start[facts.links.backward & events.is_kind(Kind.OP)])
