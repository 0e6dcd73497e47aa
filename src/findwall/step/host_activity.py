"""What the host was doing: loader, blocking calls, allocator, compilation, ops, nothing.

Only threads that launch device work count: a logging thread or a pin-memory thread delays nobody.
"""

from __future__ import annotations

import re

import numpy as np

from findwall.model.events import DEVICE_KINDS, Bool, Kind, Timeline
from findwall.model.intervals import EMPTY, I64, Intervals, union
from findwall.step.call_names import ALLOCATOR, COMPILE, FREE, SYNCHRONIZE
from findwall.step.comms import HOST_COLLECTIVE, inside_collective
from findwall.step.library_set_up import find_plans, find_trials
from findwall.step.links import PAGEABLE, UPLOAD
from findwall.step.step_facts import OWNERS, Blocking, Host, Links, rows_matching

# Every generation's name of "the loop waits for the next batch".
LOADER = re.compile(
    r"dataloader.*(__next__|#|next)|enumerate\(data(loader|pipe)|train_dataloader_next|_dataloader_next"
    r"|dataloaderiter|data_?loading|prefetch.*next_batch",
    re.IGNORECASE,
)
BLOCKING_COPY = re.compile(r"^(cuda|hip)Memcpy(2D|DtoH|HtoD|WithStream|ToSymbol|FromSymbol)?$", re.IGNORECASE)
# Rows that are open around other work, or while it is waited for: not work themselves.
WRAPPER = re.compile(r"^autograd::engine|Backward\d*$|AccumulateGrad$|^c10d::|record_param_comms")
GARBAGE = re.compile(r"^findwall\.gc|built-in function collect|gc\.collect", re.IGNORECASE)
REGION = re.compile(r"^Torch-Compiled Region")
COMPILED_GRAPH = re.compile(r"Call CompiledFxGraph|^CompiledFunction|^CompiledAutograd")


# What recording one event costs the profiler, in thousandths of what an op costs. A Python frame takes
# about a quarter of that; chosen by hand, not calibrated.
OP_WEIGHT, PYTHON_FRAME_WEIGHT = 1000, 250


def watch_host(timeline: Timeline, links: Links, once: Intervals = EMPTY) -> Host:
    """Sort the host's time into activities, once. `once`: start-up, which is none of them."""
    events = timeline.events
    launches = np.unique(links.launch[timeline.rows(*DEVICE_KINDS)])
    launches = launches[launches >= 0]
    threads = np.unique(events.thread[launches])
    mine = np.isin(events.thread, threads) & ~events.is_kind(*DEVICE_KINDS, Kind.DEVICE_ANNOTATION, Kind.SYNC)
    trials = find_trials(timeline, links, mine)
    trying = union(events.start[trials], events.end[trials])
    blocking = _blocking_calls(timeline, links, mine, trying)
    plans = find_plans(timeline, links, mine)
    questions = find_questions(
        timeline, links, mine, blocking.row[blocking.owner == OWNERS.index("host-sync")]
    )
    copying = blocking.owner == OWNERS.index("copy-exposed")
    syncing = blocking.owner == OWNERS.index("host-sync")
    activities = {
        "copy-exposed": union(blocking.start[copying], blocking.end[copying]),
        "host-sync": union(blocking.start[syncing], blocking.end[syncing])
        | union(events.start[questions], events.end[questions]),
        "exposed-collective": _host_collectives(timeline, links, mine),
        "loader-starved": _named(timeline, mine, LOADER, Kind.ANNOTATION, Kind.OP, Kind.PYTHON),
        "allocator": _named(timeline, mine, ALLOCATOR, Kind.RUNTIME),
        "recompilation": _named(
            timeline, mine, COMPILE, Kind.ANNOTATION, Kind.OP, Kind.RUNTIME, Kind.OVERHEAD
        )
        | union(plans.start, plans.end)
        | trying,
        "gc-pause": _named(timeline, mine, GARBAGE, Kind.ANNOTATION, Kind.PYTHON),
        "graph-breaks": _graph_breaks(timeline, links, mine),
    }
    busy = mine & events.is_kind(Kind.OP, Kind.RUNTIME)
    time, weight = _event_weights(timeline, mine)
    return Host(
        threads=threads.astype(np.int64),
        activities={cause: when - once for cause, when in _disjoint(activities).items()},
        once=once,
        working=union(events.start[busy], events.end[busy]),
        blocking=blocking,
        plans=plans,
        trials=trials,
        questions=questions,
        event_time=time,
        event_weight=weight,
    )


def _disjoint(activities: dict[str, Intervals]) -> dict[str, Intervals]:
    taken, found = EMPTY, {}
    for cause, when in activities.items():
        found[cause] = when - taken
        taken = taken | when
    return found


def _rows(timeline: Timeline, mine: Bool, pattern: re.Pattern[str], *kinds: Kind) -> I64:
    return rows_matching(timeline, np.flatnonzero(mine & timeline.events.is_kind(*kinds)), pattern)


def _named(timeline: Timeline, mine: Bool, pattern: re.Pattern[str], *kinds: Kind) -> Intervals:
    rows = _rows(timeline, mine, pattern, *kinds)
    return union(timeline.events.start[rows], timeline.events.end[rows])


def _graph_breaks(timeline: Timeline, links: Links, mine: Bool) -> Intervals:
    """Time inside a compiled region that was broken, outside every compiled graph.

    After a break the rest of the function is compiled as one of its own, whose region lies inside the first.
    """
    regions = _rows(timeline, mine, REGION, Kind.OP, Kind.ANNOTATION)
    if len(regions) < 2:
        return EMPTY
    known = set(regions.tolist())
    broken = {row for inner in known for row in links.ancestors(inner) if row in known}
    outer = np.array(sorted(broken), np.int64)
    graphs = _named(timeline, mine, COMPILED_GRAPH, Kind.OP, Kind.ANNOTATION)
    if len(outer) == 0 or len(graphs) == 0:
        return EMPTY
    return union(timeline.events.start[outer], timeline.events.end[outer]) - graphs


def _host_collectives(timeline: Timeline, links: Links, mine: Bool) -> Intervals:
    """Collectives of gloo and its like, as far as the launching threads did nothing but wait for them.

    Staging their data through the host is part of them.
    """
    everywhere = np.ones(len(timeline.events), bool)
    talk = _named(timeline, everywhere, HOST_COLLECTIVE, Kind.ANNOTATION, Kind.OP)
    if len(talk) == 0:
        return EMPTY
    wraps = timeline.named(WRAPPER)[timeline.events.name]
    works = np.flatnonzero(mine & timeline.events.is_kind(Kind.OP, Kind.RUNTIME) & ~wraps)
    works = works[~inside_collective(timeline, links, works)]
    return talk - union(timeline.events.start[works], timeline.events.end[works])


def _blocking_calls(timeline: Timeline, links: Links, mine: Bool, trying: Intervals) -> Blocking:
    """Synchronize calls, blocking copies, and frees (which wait for the device).

    What waits inside a collective belongs to that collective, and in a trial to that.
    """
    events = timeline.events
    sync = _rows(timeline, mine, SYNCHRONIZE, Kind.RUNTIME)
    plain = _rows(timeline, mine, BLOCKING_COPY, Kind.RUNTIME)
    pageable = _pageable_calls(timeline, links, mine)
    free = _rows(timeline, mine, FREE, Kind.RUNTIME)
    rows = np.unique(np.concatenate([sync, plain, pageable, free]))
    rows = rows[~inside_collective(timeline, links, rows)]
    rows = rows[trying.covered_within(events.start[rows], events.start[rows] + 1) == 0]
    owner = np.full(len(rows), OWNERS.index("host-sync"), np.int64)
    owner[_is_upload(timeline, links, rows)] = OWNERS.index("copy-exposed")
    owner[np.isin(rows, free)] = OWNERS.index("allocator")
    order = np.argsort(events.start[rows], kind="stable")
    rows = rows[order]
    return Blocking(rows, events.start[rows], events.end[rows], owner[order])


def _pageable_calls(timeline: Timeline, links: Links, mine: Bool) -> I64:
    """Copy calls that wait although they are called asynchronous: one side is pageable memory."""
    rows = links.launch[timeline.rows_named(PAGEABLE, Kind.MEMCPY)]
    rows = rows[rows >= 0]
    return rows[mine[rows]]


def _is_upload(timeline: Timeline, links: Links, rows: I64) -> Bool:
    """Calls that move data to the device, and the synchronize that belongs to such a copy."""
    uploads = links.launch[timeline.rows_named(UPLOAD, Kind.MEMCPY)]
    uploads = uploads[uploads >= 0]
    return np.isin(rows, uploads) | ((links.op[rows] >= 0) & np.isin(links.op[rows], links.op[uploads]))


def _event_weights(timeline: Timeline, mine: Bool) -> tuple[I64, I64]:
    """What each recorded host event weighs for the profiler: a Python frame costs less than an op."""
    rows = np.flatnonzero(mine & timeline.events.is_kind(Kind.OP, Kind.RUNTIME, Kind.ANNOTATION, Kind.PYTHON))
    rows = rows[np.argsort(timeline.events.start[rows], kind="stable")]
    weight = np.where(timeline.events.kind[rows] == Kind.PYTHON, PYTHON_FRAME_WEIGHT, OP_WEIGHT)
    return timeline.events.start[rows], np.concatenate([[0], np.cumsum(weight)]).astype(np.int64)


# -- ops that run only so that the host can look: `if torch.isnan(x).any():` ------------------------------
#
# What a comparison says is read by the host with `item` or `is_nonzero`, and nothing else uses it. A step
# that does not look does not compare either, so these ops go with the wait behind them. A reduction to a
# number (`loss.mean().item()`) is not one of them: the number may be used on the device too.


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
    return inside & (launch >= 0)
