"""Forward work done again in the backward pass: activation checkpointing.

It has no op of its own. Its mark is a forward op, one that records itself for a later backward (it carries a
sequence number), running under the autograd engine. A pass that builds a graph for second derivatives does
that too, but under nearly every node, where checkpointing does it under a few, and mostly says its name.
"""

from __future__ import annotations

import re

import numpy as np

from findwall.model.catalogue import MAJORITY_SHARE
from findwall.model.events import Bool, Kind, Timeline
from findwall.model.intervals import I64
from findwall.step.links import ENGINE_RANGE, nearest
from findwall.step.step_facts import Links

# What torch.utils.checkpoint runs as it is entered: without and with reentrant autograd.
CHECKPOINT = re.compile(r"^_NoopSaveInputs$|^CheckpointFunction$")
_KEEPS = re.compile("AccumulateGrad")  # a gradient, under the engine
_CHECKPOINTED = re.compile(r"^_NoopSaveInputs$|^CheckpointFunction")


def recomputed(timeline: Timeline, links: Links, rows: I64) -> Bool:
    """For each device row, whether it repeats forward work."""
    found = np.zeros(len(rows), bool)
    events = timeline.events
    engine = timeline.named(ENGINE_RANGE)[events.name]
    if not engine.any():  # without its ranges a node cannot be told from an op that it runs again
        return found
    forward = events.is_kind(Kind.OP) & links.backward & (events.sequence >= 0) & ~engine
    parent = np.maximum(links.parent, 0)
    node = (links.parent >= 0) & engine[parent]  # the node's own row, directly under the engine's
    forward &= ~node & ~timeline.named(_KEEPS)[events.name]
    if not any(_CHECKPOINTED.search(name) for name in timeline.names):
        forward &= ~_of_second_derivatives(timeline, links, engine, forward)
    if not forward.any():
        return found
    around = np.append(nearest(links.parent, forward | engine), -1)[links.op[rows]]
    repeats: Bool = (around >= 0) & forward[around]
    return repeats


def because_of_checkpoints(timeline: Timeline, links: Links, rows: I64, again: Bool) -> Bool:
    """For each device row, whether the host came to its launch late, or at all, because of checkpointing.

    Those are the rows that repeat forward work (`again`), and the first row after a checkpoint is entered or
    forward work was repeated: most of the host's time before those is the checkpoint's own Python.
    """
    if not again.any():
        return again
    events = timeline.events
    marks = timeline.rows_named(CHECKPOINT, Kind.OP)
    launched = np.flatnonzero(links.launch[rows] >= 0)
    call = links.launch[rows[launched]]
    found: Bool = again.copy()
    for thread in np.unique(events.thread[call]).tolist():
        mine = np.flatnonzero(events.thread[call] == thread)
        mine = mine[np.argsort(events.start[call[mine]], kind="stable")]
        theirs = launched[mine]
        found[theirs[1:]] |= again[theirs[:-1]]
        entered = events.start[marks[events.thread[marks] == thread]]
        first = np.searchsorted(events.start[call[mine]], entered)
        found[theirs[first[first < len(theirs)]]] = True
    return found


def _of_second_derivatives(timeline: Timeline, links: Links, engine: Bool, forward: Bool) -> Bool:
    """Which rows are of a pass in which most nodes issue recording ops. Between two passes run ops that are
    of none."""
    events = timeline.events
    issuing = np.unique(links.parent[links.parent >= 0])
    nodes = np.flatnonzero((links.parent >= 0) & engine[np.maximum(links.parent, 0)])
    nodes = nodes[np.isin(nodes, issuing)]
    between = np.sort(events.start[events.is_kind(Kind.OP) & ~links.backward])
    of = np.searchsorted(between, events.start)
    recording = np.isin(nodes, links.parent[forward])
    count = np.bincount(of[nodes], minlength=len(between) + 1)
    share = np.bincount(of[nodes], recording, minlength=len(between) + 1) / np.maximum(count, 1)
    found: Bool = share[of] > MAJORITY_SHARE
    return found
