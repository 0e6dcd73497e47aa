"""Which ops record gradients.

The profiler numbers an op while gradients are recorded: the number of the node that its backward pass will
be. So an op that Python called and that has no number, nor any op inside it, ran under `torch.no_grad()` or
`torch.inference_mode()`, or made a tensor from nothing.
"""

from __future__ import annotations

import re

import numpy as np

from findwall.attribute.device_time import rows_of
from findwall.attribute.facts import Facts, found_once
from findwall.model.events import Bool, Kind
from findwall.model.intervals import I64
from findwall.structure.links import nearest

# Ops without a tensor to work on, which have no number in any case.
MADE_FROM_NOTHING = (
    r"empty|zeros|ones|full|rand|arange|linspace|logspace|eye|scalar_tensor|lift_fresh|tril_indices"
    r"|triu_indices|normal$|bartlett|hann|hamming|blackman|kaiser"
)
_MAKES = re.compile(rf"^aten::({MADE_FROM_NOTHING})|^TorchDynamo Cache Lookup")


@found_once
def heads_of(facts: Facts) -> I64:
    """Ops that Python itself called, outside of the autograd engine, by their thread and order."""
    events, links = facts.timeline.events, facts.links
    rows = facts.timeline.rows(Kind.OP)
    above = links.parent[rows]
    inside = (above >= 0) & (links.op[np.maximum(above, 0)] >= 0)
    rows = rows[~inside & ~links.backward[rows] & np.isin(events.thread[rows], facts.host.threads)]
    return rows[np.lexsort((events.start[rows], events.thread[rows]))]


def head_of(facts: Facts, heads: I64) -> I64:
    """For each host row the head it runs in; -1 where it runs in none."""
    is_head = np.zeros(len(facts.timeline.events), bool)
    is_head[heads] = True
    return nearest(facts.timeline, facts.links.parent, is_head)


def records(facts: Facts, heads: I64) -> Bool:
    """Which of these ops record gradients."""
    events = facts.timeline.events
    head = head_of(facts, heads)[events.is_kind(Kind.OP) & (events.sequence >= 0)]
    return np.isin(heads, head)


def head_of_rows(facts: Facts, heads: I64, rows: I64) -> I64:
    """For each device row the head that issued it; -1 where none did."""
    launch = facts.links.launch[rows]
    return np.where(launch >= 0, head_of(facts, heads)[np.maximum(launch, 0)], -1)


def backward_starts(facts: Facts) -> I64:
    """When the ops of backward passes began, in their order."""
    events = facts.timeline.events
    return np.sort(events.start[facts.links.backward & events.is_kind(Kind.OP)])


def unrecorded_rows(facts: Facts) -> I64:
    """Device rows that a job which trains issues without recording gradients: clipping, metrics, evaluations,
    updates."""
    heads = heads_of(facts)
    recording = records(facts, heads)
    if not facts.links.backward.any() or not recording.any():
        return np.zeros(0, np.int64)
    makes = facts.timeline.named(_MAKES, heads)[facts.timeline.events.name[heads]]
    rows = np.unique(rows_of(facts, np.arange(len(facts.atoms.index))))
    head = head_of_rows(facts, heads, rows)
    return rows[np.isin(head, heads[~recording & ~makes])]
