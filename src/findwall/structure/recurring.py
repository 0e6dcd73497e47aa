"""Steps that a job marks itself: a range that recurs and holds what is launched.

A model's layers may be ranges too. A step's range holds nearly everything that is launched from the first one
to the last, and no number that it bears comes twice.
"""

from __future__ import annotations

import re

import numpy as np

from findwall.model.events import DEVICE_KINDS, Kind, Timeline
from findwall.model.intervals import I64, union
from findwall.structure.links import Links

FEWEST_RANGES = 3  # as of repeats: fewer are chance
# Of the launches from the first range to the last. A range called a step may leave out the loader or the
# optimizer; one called anything else is a step only if hardly anything happens outside. Chosen by hand.
HELD_BY_NAMED_STEP = 0.5
HELD_BY_ANY = 0.98
_STEP = re.compile(r"(?:^|[^a-z])(?:step|iter(?:ation)?|batch)(?:[^a-z]|$)", re.IGNORECASE)
_NOT_A_STEP = re.compile(r"optim|sched|loader|nccl|ProfilerStep", re.IGNORECASE)
_NUMBER = re.compile(r"\d+")


def recurring_ranges(timeline: Timeline, links: Links, device: int) -> I64:
    """The ranges around steps, in order; none where no range can be one."""
    events = timeline.events
    rows = timeline.rows(Kind.ANNOTATION)
    none: I64 = rows[:0]
    if len(rows) == 0:
        return none
    issued = _issued(timeline, links, device)
    families = [_NUMBER.sub("#", name) for name in timeline.names]
    by_family: dict[str, list[int]] = {}
    for name in np.unique(events.name[rows]).tolist():
        by_family.setdefault(families[name], []).append(name)
    best, held_best = none, (False, 0.0)
    for family, names in by_family.items():
        if _NOT_A_STEP.search(family):
            continue
        mine = rows[np.isin(events.name[rows], names)]
        mine = mine[np.argsort(events.start[mine], kind="stable")]
        held = _held(timeline, mine, len(names), issued)
        named = _STEP.search(family) is not None
        if held < (HELD_BY_NAMED_STEP if named else HELD_BY_ANY):
            continue
        length = float(events.duration[mine].sum())
        if (named, length) > held_best:
            best, held_best = mine, (named, length)
    return best


def _issued(timeline: Timeline, links: Links, device: int) -> I64:
    """When the rows of a device were launched."""
    rows = timeline.rows(*DEVICE_KINDS)
    rows = rows[(timeline.events.device[rows] == device) & (links.launch[rows] >= 0)]
    found: I64 = timeline.events.start[links.launch[rows]]
    return found


def _held(timeline: Timeline, rows: I64, names: int, issued: I64) -> float:
    """The share of launches inside these ranges; 0 where they cannot be steps."""
    events = timeline.events
    if len(rows) < FEWEST_RANGES or 1 < names < len(rows):
        return 0.0  # a number that comes again counts something inside a step
    start, end = events.start[rows], events.end[rows]
    if (start[1:] < end[:-1]).any() or len(np.unique(events.process[rows])) > 1:
        return 0.0
    between = issued[(issued >= start[0]) & (issued < end[-1])]
    if len(between) == 0:
        return 0.0
    inside = union(start, end).covered_within(between, between + 1)
    return float(inside.mean())
