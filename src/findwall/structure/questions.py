"""Ops that run only so that the host can look: `if torch.isnan(x).any():`.

What a comparison says is read by the host with `item` or `is_nonzero`, and nothing else uses it. A step that
does not look does not compare either, so these ops go with the wait behind them. A reduction to a number
(`loss.mean().item()`) is not one of them: the number may be used on the device too.
"""

from __future__ import annotations

import re

import numpy as np

from findwall.model.events import Bool, Kind, Timeline
from findwall.model.intervals import I64, union
from findwall.structure.links import Links

READS = re.compile(r"^aten::(item|is_nonzero|_local_scalar_dense|equal|allclose)$")
COMPARES = re.compile(
    r"^aten::(isnan|isinf|isfinite|isposinf|isneginf|isclose|any|all|eq|ne|gt|ge|lt|le"
    r"|logical_(and|or|xor|not)|bitwise_(and|or|xor|not))$"
)


def find_questions(timeline: Timeline, links: Links, mine: Bool, waits: I64) -> I64:
    """The reads that some calls wait in, and the comparisons right before each, in host order."""
    events = timeline.events
    reads, compares = timeline.named(READS), timeline.named(COMPARES)
    if len(waits) == 0 or not reads.any():
        return np.empty(0, np.int64)
    found: set[int] = set()
    asking = {row for wait in waits.tolist() for row in _outermost_read(links, wait, reads[events.name])}
    ops = np.flatnonzero(mine & events.is_kind(Kind.OP))
    ops = ops[np.lexsort((events.start[ops], links.parent[ops], events.thread[ops]))]
    place = {row: at for at, row in enumerate(ops.tolist())}
    for row in asking:
        found.add(row)
        at = place.get(row, 0) - 1
        while at >= 0 and _siblings(timeline, links, int(ops[at]), row) and compares[events.name[ops[at]]]:
            found.add(int(ops[at]))
            at -= 1
    rows = np.array(sorted(found), np.int64)
    return rows[np.argsort(events.start[rows], kind="stable")]


def _outermost_read(links: Links, wait: int, reads: Bool) -> list[int]:
    """`is_nonzero` calls `item`: the one that was asked. Empty where the call waits for something else."""
    return [row for row in links.ancestors(wait) if reads[row]][-1:]


def _siblings(timeline: Timeline, links: Links, one: int, other: int) -> bool:
    same_thread = timeline.events.thread[one] == timeline.events.thread[other]
    return bool(same_thread and links.parent[one] == links.parent[other])


def asked_for(timeline: Timeline, links: Links, questions: I64, rows: I64) -> Bool:
    """Which device rows were launched inside these ops."""
    start, end = timeline.events.start, timeline.events.end
    launch = links.launch[rows]
    issued = start[np.maximum(launch, 0)]
    inside = union(start[questions], end[questions]).covered_within(issued, issued + 1) > 0
    found: Bool = inside & (launch >= 0)
    return found
