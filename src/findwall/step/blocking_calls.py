"""Calls with which the host waits for the device, and the ops that they lie in."""

from __future__ import annotations

import numpy as np

from findwall.model.events import Kind
from findwall.model.intervals import I64
from findwall.step.step_facts import OWNERS, StepFacts


def sync_rows(facts: StepFacts) -> I64:
    """Calls in the window with which the host waits for the device, copies to it left out."""
    return in_window(facts, blocking_rows(facts, "host-sync"))


def outermost(facts: StepFacts, rows: I64) -> I64:
    """For each call the op it lies in that no other op contains; the call itself where there is none."""
    found: I64 = rows.copy()
    at = rows.copy()
    while (at >= 0).any():
        above = np.maximum(at, 0)
        is_op = (at >= 0) & (facts.timeline.events.kind[above] == Kind.OP)
        found[is_op] = at[is_op]
        at = np.where(at >= 0, facts.links.parent[above], -1)
    return found


def in_window(facts: StepFacts, rows: I64) -> I64:
    """Host rows that begin in the host's time of the counted steps."""
    start = facts.timeline.events.start[rows]
    return rows[(start >= facts.queue.opens) & (start < facts.queue.closes)]


def blocking_rows(facts: StepFacts, cause: str) -> I64:
    """Calls with which the host waits for the device, of one of the causes that own such calls."""
    blocking = facts.host.blocking
    rows: I64 = blocking.row[blocking.owner == OWNERS.index(cause)]
    return rows
