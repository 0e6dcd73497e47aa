"""When the host issued what the device does, where rows of a recording are lost as well.

Calls bear numbers that rise with time. So the call of a device row that was lost lies between those with the
numbers before and after its own, and work that was lost began before what was issued after it.
"""

from __future__ import annotations

import numpy as np

from findwall.model.events import Kind, Timeline
from findwall.model.intervals import I64
from findwall.step.comms import inside_collective
from findwall.step.links import unanswered
from findwall.step.step_facts import Links


def issue_times(timeline: Timeline, links: Links, rows: I64) -> I64:
    """Of these device rows. One whose call nothing is known of was issued when it began."""
    events = timeline.events
    launch, start = links.launch[rows], events.start[rows]
    found: I64 = np.where(launch >= 0, events.start[np.maximum(launch, 0)], start)
    calls = timeline.rows(Kind.RUNTIME)
    calls = calls[events.correlation[calls] > 0]
    calls = calls[np.argsort(events.correlation[calls], kind="stable")]
    lost = np.flatnonzero((launch < 0) & (events.correlation[rows] > 0))
    after = np.searchsorted(events.correlation[calls], events.correlation[rows[lost]])
    lost, after = lost[(after > 0) & (after < len(calls))], after[(after > 0) & (after < len(calls))]
    earliest, latest = events.start[calls[after - 1]], np.minimum(events.start[calls[after]], start[lost])
    middle = earliest + (latest - earliest) // 2
    found[lost] = np.where(earliest <= latest, middle, start[lost])
    return found


def lost_work(timeline: Timeline, links: Links, issued: I64, begin: I64) -> tuple[I64, I64]:
    """When work that was lost was issued, and the latest that it can have begun: as the next that was issued
    after it did. `issued` and `begin` are of the work that is there."""
    rows = unanswered(timeline, links.launch)
    calls: I64 = timeline.events.start[rows[~inside_collective(timeline, links, rows)]]
    order = np.argsort(issued, kind="stable")
    after = np.searchsorted(issued[order], calls)
    calls, after = calls[after < len(order)], after[after < len(order)]
    return calls, begin[order[after]]
