"""Who launched what: every device row to its runtime call, that call to the op around it.

Correlation id → runtime row → innermost op on the same thread. A trace's `External id` is not asked: in some
generations it names another op.
"""

from __future__ import annotations

import re

import numpy as np
from msgspec.structs import replace

from findwall.model.catalogue import MAJORITY_SHARE
from findwall.model.events import DEVICE_KINDS, Bool, Kind, Timeline
from findwall.model.intervals import I64
from findwall.step.step_facts import Links

UPLOAD = re.compile(r"HtoD|Host -> Device|HostToDevice", re.IGNORECASE)
DOWNLOAD = re.compile(r"DtoH|Device -> (?:Host|Pageable|Pinned)|DeviceToHost", re.IGNORECASE)
BETWEEN_DEVICES = re.compile(r"PtoP|peer", re.IGNORECASE)
TELLS_MEMORY = re.compile(r"pageable|pinned", re.IGNORECASE)  # ROCm and old traces do not
PAGEABLE = re.compile(r"pageable", re.IGNORECASE)  # ordinary memory: the host copies it itself and waits


# -- who launched what ------------------------------------------------------------------------------------


NESTING_KINDS = (Kind.OP, Kind.ANNOTATION, Kind.RUNTIME, Kind.PYTHON, Kind.CAPTURED)
ENGINE = "autograd::engine::evaluate_function"
ENGINE_RANGE = re.compile(rf"^{ENGINE}")
# A node of the autograd graph, as it is called where the engine itself is not recorded.
_NODE = re.compile(r"^(?:\w+Backward\d*|(?:struct )?torch::autograd::\w+)$")
BACKWARD = re.compile(rf"^{ENGINE}|{_NODE.pattern}")  # any row of the engine


def link(timeline: Timeline) -> Links:
    """Work out every reference of one timeline, once."""
    known = link_launches(timeline)
    parent, launch = _nest(timeline), known.launch
    nearest_op = nearest(parent, timeline.events.is_kind(Kind.OP, Kind.CAPTURED))
    op = nearest_op.copy()
    device = timeline.rows(*DEVICE_KINDS)
    issued = device[launch[device] >= 0]
    op[issued] = nearest_op[launch[issued]]
    captured = _captured_ops(timeline, device)
    op[device] = np.where(captured >= 0, captured, op[device])
    backward = _backward(timeline, parent)
    forward = _forward_ops(timeline, parent, backward)
    return replace(known, parent=parent, op=op, backward=backward, forward=forward)


def link_launches(timeline: Timeline) -> Links:
    """Only device rows to their runtime calls: what a whole long trace can afford."""
    launch, ambiguous = _launches(timeline)
    none = np.full(len(timeline.events), -1, np.int64)
    return Links(
        parent=none,
        launch=launch,
        op=none,
        backward=np.zeros(len(none), bool),
        forward=none,
        kernels_without_launch=_unlaunched(timeline, launch),
        launches_without_kernel=len(unanswered(timeline, launch)) if (launch >= 0).any() else 0,
        ambiguous=ambiguous,
    )


def _nest(timeline: Timeline) -> I64:
    """The innermost host row that is still open on the same thread when a row starts."""
    events = timeline.events
    parent = np.full(len(events), -1, np.int64)
    rows = timeline.rows(*NESTING_KINDS)
    rows = rows[np.lexsort((events.kind[rows], -events.end[rows], events.start[rows], events.thread[rows]))]
    found = [-1] * len(rows)
    open_rows: list[int] = []
    open_ends: list[int] = []
    thread = -1
    columns = (
        rows.tolist(),
        events.thread[rows].tolist(),
        events.start[rows].tolist(),
        events.end[rows].tolist(),
    )
    for index, (row, on, start, end) in enumerate(zip(*columns, strict=True)):
        if on != thread:
            thread = on
            open_rows.clear()
            open_ends.clear()
        while open_ends and open_ends[-1] <= start:
            open_ends.pop()
            open_rows.pop()
        if open_rows:
            found[index] = open_rows[-1]
        open_rows.append(row)
        open_ends.append(end)
    parent[rows] = found
    return parent


def nearest(parent: I64, wanted: Bool) -> I64:
    """For each host row the nearest row at or above it that is wanted, by pointer doubling."""
    count = len(parent)
    here = np.arange(count)
    # `count` stands for "none": a row of its own that points to itself.
    jump = np.where(wanted, here, np.where(parent >= 0, parent, count))
    jump = np.append(jump, count)
    while True:
        further = jump[jump]
        if np.array_equal(further, jump):
            break
        jump = further
    nearest = jump[:count]
    # A chain that ended on an unwanted root found nothing.
    return np.where((nearest < count) & np.append(wanted, False)[nearest], nearest, -1)


def runs_in(timeline: Timeline, links: Links, calls: I64) -> I64:
    """For each host row the innermost of these that it is or runs in; -1 none."""
    wanted = np.zeros(len(timeline.events), bool)
    wanted[calls] = True
    return nearest(links.parent, wanted)


def issuers(timeline: Timeline, links: Links, rows: I64) -> I64:
    """The host row behind each device row: the op that was captured, where a graph was replayed, else its
    launch; -1 unknown."""
    op = links.op[rows]
    captured = (op >= 0) & (timeline.events.kind[op] == Kind.CAPTURED)
    return np.where(captured, op, links.launch[rows])


def _backward(timeline: Timeline, parent: I64) -> Bool:
    """Host rows of the autograd engine: under its ranges; where a trace has none (torch 1.8), under its
    nodes, and the threads that run little else."""
    events = timeline.events
    below = nearest(parent, timeline.named(ENGINE_RANGE)[events.name]) >= 0
    if below.any():
        return below
    nodes = events.is_kind(Kind.OP) & timeline.named(_NODE)[events.name]
    if not nodes.any():
        return below
    outermost = events.is_kind(Kind.OP) & (parent < 0)
    threads = int(events.thread.max()) + 1
    ran = np.bincount(events.thread[outermost], minlength=threads)
    engines = np.bincount(events.thread[outermost & nodes], minlength=threads) > MAJORITY_SHARE * ran
    host = events.is_kind(*NESTING_KINDS)
    return (nearest(parent, nodes) >= 0) | (host & engines[np.maximum(events.thread, 0)])


def _forward_ops(timeline: Timeline, parent: I64, backward: Bool) -> I64:
    """For rows under the autograd engine the forward op with their node's sequence number; -1 elsewhere.

    An op carries the number that the next node will get, whether it makes that node or calls an op that
    does (aten::linear and the aten::t in it carry one number). The last op with a number made its node.
    """
    events = timeline.events
    numbered = events.is_kind(Kind.OP) & (events.sequence >= 0)
    node = nearest(parent, numbered & backward)
    rows = np.flatnonzero(node >= 0)
    forward = np.flatnonzero(numbered & ~backward)
    # Of ops that start together the one inside is called last.
    order = np.lexsort((-events.end[forward], events.start[forward], events.sequence[forward]))
    forward = forward[order]
    wanted = events.sequence[node[rows]]
    at = np.searchsorted(events.sequence[forward], wanted, side="right") - 1
    rows, wanted, at = rows[at >= 0], wanted[at >= 0], at[at >= 0]
    hit = events.sequence[forward[at]] == wanted
    found: I64 = np.full(len(events), -1, np.int64)
    found[rows[hit]] = forward[at[hit]]
    return found


def _launches(timeline: Timeline) -> tuple[I64, int]:
    """The runtime call of each device row: the one with its correlation id.

    Ids can repeat in merged files: a call of the process that owns most of the row's stream wins. How many
    rows had to be settled so is told beside it.
    """
    events = timeline.events
    launch = np.full(len(events), -1, np.int64)
    calls = timeline.rows(Kind.RUNTIME)
    calls = calls[events.correlation[calls] > 0]
    device = timeline.rows(*DEVICE_KINDS)
    device = device[events.correlation[device] > 0]
    if len(calls) == 0 or len(device) == 0:
        return launch, 0
    calls = calls[np.lexsort((events.start[calls], events.correlation[calls]))]
    ids = events.correlation[calls]
    first = np.searchsorted(ids, events.correlation[device], "left")
    past = np.searchsorted(ids, events.correlation[device], "right")
    single = past - first == 1
    launch[device[single]] = calls[first[single]]
    repeated = np.flatnonzero(past - first > 1)
    if len(repeated):
        owner = _stream_owners(timeline, device[single], launch)
        repeated = repeated[np.argsort(first[repeated], kind="stable")]
        for mine in np.split(repeated, np.flatnonzero(np.diff(first[repeated])) + 1):
            _settle(timeline, device[mine], calls[first[mine[0]] : past[mine[0]]], owner, launch)
    return launch, len(repeated)


def _track(timeline: Timeline, row: int) -> tuple[int, int]:
    """The place a device row runs on, as its file tells tracks apart."""
    return int(timeline.events.process[row]), int(timeline.events.thread[row])


def _stream_owners(timeline: Timeline, settled: I64, launch: I64) -> dict[tuple[int, int], int]:
    """Which process feeds each device track, by the rows whose call is beyond doubt."""
    votes: dict[tuple[int, int], dict[int, int]] = {}
    for row in settled[:20000].tolist():
        process = int(timeline.events.process[launch[row]])
        tally = votes.setdefault(_track(timeline, row), {})
        tally[process] = tally.get(process, 0) + 1
    return {track: max(sorted(tally), key=lambda process: tally[process]) for track, tally in votes.items()}


def _settle(
    timeline: Timeline, rows: I64, calls: I64, owner: dict[tuple[int, int], int], launch: I64
) -> None:
    """Rows and calls of one id. As many of each belong together in order; else the last call not after it."""
    events = timeline.events
    process = np.array([owner.get(_track(timeline, row), -1) for row in rows.tolist()])
    for one in np.unique(process).tolist():
        mine = rows[process == one]
        mine = mine[np.argsort(events.start[mine], kind="stable")]
        own = calls[events.process[calls] == one]
        own = own if len(own) else calls
        if len(own) == len(mine) and (events.start[own] <= events.start[mine]).all():
            launch[mine] = own
        else:
            at = np.searchsorted(events.start[own], events.start[mine], side="right") - 1
            launch[mine] = own[np.maximum(at, 0)]


def _captured_ops(timeline: Timeline, device: I64) -> I64:
    """The captured op that each device row does: the one with its external id; -1 where there is none."""
    external = timeline.events.external
    ops = timeline.rows(Kind.CAPTURED)
    ops = ops[np.argsort(external[ops], kind="stable")]
    at = np.searchsorted(external[ops], external[device])
    beside = np.append(ops, -1)[at]
    return np.where((beside >= 0) & (external[beside] == external[device]), beside, -1)


LAUNCH = re.compile(r"^(cuda|cu|hip)\w*Launch(?!HostFunc)", re.IGNORECASE)
ENQUEUES = re.compile(rf"{LAUNCH.pattern}|^(cuda|cu|hip)Mem(cpy|set)", re.IGNORECASE)


def unanswered(timeline: Timeline, launch: I64) -> I64:
    """Launches and copies that have no device row in the file."""
    calls = timeline.rows_named(ENQUEUES, Kind.RUNTIME)
    return calls[~np.isin(calls, launch[timeline.rows(*DEVICE_KINDS)])]


def launches_before(timeline: Timeline, links: Links) -> I64:
    """Those before the file's first device row: they were cut away."""
    device = timeline.rows(*DEVICE_KINDS)
    lost = unanswered(timeline, links.launch) if len(device) else device
    return lost[timeline.events.start[lost] < timeline.events.start[device].min()] if len(lost) else lost


def _unlaunched(timeline: Timeline, launch: I64) -> int:
    """Device rows whose call is missing: without those in front, which were queued before the file begins."""
    device = timeline.rows(*DEVICE_KINDS)
    start, launched = timeline.events.start[device], launch[device] >= 0
    if not launched.any():
        return len(device)
    return int((start[~launched] >= start[launched].min()).sum())


GRAPH_LAUNCH = re.compile("graphlaunch", re.IGNORECASE)


def is_replayed(timeline: Timeline, links: Links, rows: I64) -> Bool:
    """Device rows that a graph launch issued."""
    launch = links.launch[rows]
    return (launch >= 0) & timeline.bears(GRAPH_LAUNCH, np.maximum(launch, 0))


# -- gradients of gradients ----------------------------------------------------------------------------

CHECKPOINTED = re.compile(r"^_NoopSaveInputs$|^CheckpointFunction")
_KEEPS = re.compile("AccumulateGrad")  # a gradient, under the engine


def keeps_gradients_graph(timeline: Timeline, links: Links) -> bool:
    """Whether a backward pass is recorded itself (`create_graph=True`), as whoever differentiates a gradient
    has it."""
    if any(CHECKPOINTED.search(name) for name in timeline.names):
        return False
    forward = recording(timeline, links)
    return bool((forward & of_second_derivatives(timeline, links, forward)).any())


def recording(timeline: Timeline, links: Links) -> Bool:
    """Ops under the engine that record themselves for a later backward."""
    events = timeline.events
    engine = timeline.named(ENGINE_RANGE)[events.name]
    # A node's own row lies right under the engine's range.
    node = (links.parent >= 0) & engine[np.maximum(links.parent, 0)]
    found: Bool = events.is_kind(Kind.OP) & links.backward & (events.sequence >= 0) & ~engine
    return found & ~node & ~timeline.named(_KEEPS)[events.name]


def of_second_derivatives(timeline: Timeline, links: Links, forward: Bool) -> Bool:
    """Which rows are of a pass in which most nodes issue recording ops. Between two passes run ops that are
    of none."""
    events = timeline.events
    engine = timeline.named(ENGINE_RANGE)[events.name]
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
