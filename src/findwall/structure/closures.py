"""An optimizer's call that holds the whole step: a closure that is handed to it runs forward and backward.

Lightning always trains so, and LBFGS needs it. What the closure runs is no part of the optimizer, though it
runs inside its range: that begins when the last backward pass inside the range is done.
"""

from __future__ import annotations

import numpy as np

from findwall.model.events import Kind, Timeline
from findwall.model.intervals import I64
from findwall.structure.links import Links


def updates_begin(timeline: Timeline, links: Links, ranges: I64) -> I64:
    """For each of an optimizer's ranges, when its own work begins."""
    events = timeline.events
    engine = np.flatnonzero(links.backward & events.is_kind(Kind.OP))
    engine = engine[np.argsort(events.start[engine], kind="stable")]
    begin: I64 = events.start[ranges].copy()
    if len(engine) == 0:
        return begin
    done = np.maximum.accumulate(events.end[engine])
    last = np.searchsorted(events.start[engine], events.end[ranges], side="left") - 1
    at = np.maximum(last, 0)
    # An optimizer that steps inside the backward pass, as each gradient is there, has no closure.
    closure = ~links.backward[ranges] & (last >= 0) & (events.start[engine[at]] >= begin)
    return np.where(closure, np.minimum(done[at], events.end[ranges]), begin)
