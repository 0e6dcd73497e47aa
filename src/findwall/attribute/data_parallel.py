"""What DistributedDataParallel does beside the model: buffers sent before each pass, gradients after it."""

from __future__ import annotations

import re

import numpy as np

from findwall.attribute.facts import Facts
from findwall.attribute.messages import collective_name
from findwall.model.events import Kind
from findwall.model.intervals import I64, union
from findwall.structure.host import rows_matching
from findwall.structure.steps import OPTIMIZER_STEP

_FORWARD = re.compile(r"^DistributedDataParallel\.forward")
_BROADCAST = re.compile(r"broadcast", re.IGNORECASE)
_ALL_REDUCE = re.compile(r"all_?reduce", re.IGNORECASE)


def forward_passes(facts: Facts) -> I64:
    """The ranges of DistributedDataParallel's forward passes, in order."""
    return _ranges(facts, _FORWARD)


def buffers_sent(facts: Facts) -> I64:
    """Device rows of broadcasts that a forward pass begins with."""
    events, passes = facts.timeline.events, forward_passes(facts)
    rows, issued = _collectives(facts, _BROADCAST)
    inside = union(events.start[passes], events.end[passes]).covered_within(issued, issued + 1) > 0
    found: I64 = rows[inside]
    return found


def reduced_too_early(facts: Facts) -> I64:
    """Device rows of gradient reductions after which another forward pass comes before the next update.

    Only what the last pass before a step has added up is ever used.
    """
    events = facts.timeline.events
    rows, issued = _collectives(facts, _ALL_REDUCE, backward=True)
    passes = events.start[forward_passes(facts)]
    updates = events.start[_ranges(facts, OPTIMIZER_STEP)]
    if len(passes) == 0 or len(updates) == 0:
        return rows[:0]
    after = np.append(updates, np.iinfo(np.int64).max)[np.searchsorted(updates, issued)]
    following = np.append(passes, np.iinfo(np.int64).max)[np.searchsorted(passes, issued, side="right")]
    known = after < np.iinfo(np.int64).max  # where the trace ends before the step nobody knows
    found: I64 = rows[known & (following < after)]
    return found


def _collectives(facts: Facts, pattern: re.Pattern[str], backward: bool = False) -> tuple[I64, I64]:
    """Device rows of one kind of collective, of the forward or backward pass, and when each was issued."""
    rows = facts.kernels.row[np.unique(facts.atoms.index[facts.kernels.communication[facts.atoms.index]])]
    launch = facts.links.launch[rows]
    mine = (launch >= 0) & (facts.links.backward[np.maximum(launch, 0)] == backward)
    rows, launch = rows[mine], launch[mine]
    names = [collective_name(facts.timeline, facts.links, row) for row in rows.tolist()]
    mine = np.array([bool(pattern.search(name)) for name in names], bool)
    return rows[mine], facts.timeline.events.start[launch[mine]]


def _ranges(facts: Facts, pattern: re.Pattern[str]) -> I64:
    rows = rows_matching(facts.timeline, facts.timeline.rows(Kind.ANNOTATION), pattern)
    found: I64 = rows[np.argsort(facts.timeline.events.start[rows], kind="stable")]
    return found
