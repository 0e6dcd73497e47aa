"""Forward work done again in the backward pass: activation checkpointing.

It has no op of its own. Its mark is a forward op, one that records itself for a later backward (it carries a
sequence number), running under the autograd engine. A pass that builds a graph for second derivatives does
that too, but under nearly every node, where checkpointing does it under a few, and mostly says its name.
"""

from __future__ import annotations

import re

import numpy as np

from findwall.model.events import Bool, Kind, Timeline
from findwall.model.intervals import I64
from findwall.step.links import CHECKPOINTED, ENGINE_RANGE, nearest, of_second_derivatives, recording
from findwall.step.step_facts import Links

# What torch.utils.checkpoint runs as it is entered: without and with reentrant autograd.
CHECKPOINT = re.compile(r"^_NoopSaveInputs$|^CheckpointFunction$")


def recomputed(timeline: Timeline, links: Links, rows: I64) -> Bool:
    """For each device row, whether it repeats forward work."""
    found = np.zeros(len(rows), bool)
    engine = timeline.named(ENGINE_RANGE)[timeline.events.name]
    if not engine.any():  # without its ranges a node cannot be told from an op that it runs again
        return found
    forward = recording(timeline, links)
    if not any(CHECKPOINTED.search(name) for name in timeline.names):
        forward &= ~of_second_derivatives(timeline, links, forward)
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
