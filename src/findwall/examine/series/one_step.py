"""One step event by event: host threads, streams, and the device's idle time with what it is blamed on.

The step that is drawn is a traced one, so the profiler stretches it: idle time that is there only because of
that is told apart.
"""

from __future__ import annotations

from typing import Literal

import msgspec
import numpy as np

from findwall.facts.facts import Facts
from findwall.model.causes import CAUSES
from findwall.model.events import DEVICE_KINDS, Bool, Kind
from findwall.model.intervals import F64, I64, union
from findwall.model.kinds import USUAL
from findwall.model.series import Lane, StepTimeline, Track
from findwall.step.device_queue import device_rows
from findwall.step.step_facts import StepFacts
from findwall.step.timed_steps import traced_kinds
from findwall.units import NOT_ZERO_NS
from findwall.work.work_facts import WorkFacts

# All chosen by hand.
MOST_EVENTS = 100_000  # a browser pans over that many without a stutter
DEEPEST = 24  # lines of one thread: what is deeper is left out
SHORTEST_GAP_NS = 500  # between two kernels: less is the device's own hand-over, and too short to see
MOST_UNITS = 2**31 - 1  # of a column of starts
HOST_KINDS = (Kind.ANNOTATION, Kind.OP, Kind.RUNTIME, Kind.PYTHON, Kind.OVERHEAD)
NO_CAUSE = "none"  # of host rows
PROFILED = "profiler"  # of gaps that only profiling made
OF_EVENT = (*CAUSES, NO_CAUSE, PROFILED)


class _Rows(msgspec.Struct, frozen=True):
    """Events to draw. All columns have one length."""

    track: I64
    depth: I64
    start: I64
    end: I64
    name: I64  # into the names of the step
    cause: I64  # -> OF_EVENT

    def take(self, rows: I64 | Bool) -> _Rows:
        return _Rows(*(getattr(self, name)[rows] for name in self.__struct_fields__))


class _Window(msgspec.Struct, frozen=True):
    """The time that is drawn, and the step in it."""

    begins: int
    ends: int
    step_from: int


def one_step(facts: Facts) -> StepTimeline | None:
    """Of the kind that most of the time goes to: the step nearest to their median. None: there is none."""
    at, kind = _chosen(facts)
    if at < 0:
        return None
    window = _window(facts, at)
    names = list(facts.timeline.names)
    device, tracks = _device(facts, window)
    gaps = _gaps(facts, window, names)
    host, threads = _host(facts, window, len(tracks) + 1)
    rows, left_out = _capped(
        _joined([gaps, msgspec.structs.replace(device, track=device.track + 1), host]), len(tracks) + 1
    )
    order = np.lexsort((rows.start, rows.depth, rows.track))
    return _packed(
        rows.take(order), window, [Track("device idle", "idle"), *tracks, *threads], names, kind, left_out
    )


def _chosen(facts: StepFacts) -> tuple[int, str]:
    """Which of the steps that were found, and its kind where there are several."""
    used = facts.queue.used
    lengths = facts.steps.lengths
    used = used[used < len(lengths)]
    if len(used) == 0:
        return (-1, "") if len(lengths) == 0 else (0, "")
    kinds = traced_kinds(facts.rank, facts.timeline, facts.queue)[: len(used)]
    kind = _heaviest(facts, kinds)
    mine = np.array([one == kind for one in kinds], bool)
    among = used[mine] if mine.any() else used
    at = int(among[np.argmin(np.abs(lengths[among] - np.median(lengths[among])))])
    return at, kind if len(set(kinds)) > 1 else ""


def _heaviest(facts: StepFacts, traced: list[str]) -> str:
    """Of the kinds that were traced, the one whose steps take most of the job's time."""
    timed = facts.rank.step_times
    weights = {kind.name: kind.share * kind.mean for kind in timed.kinds()} if timed is not None else {}
    return max(dict.fromkeys(traced), key=lambda kind: weights.get(kind, 0.0), default=USUAL)


def _window(facts: StepFacts, at: int) -> _Window:
    """From the step's first launch, where that is not long ago, to the end of its last kernel."""
    begins, ends = int(facts.steps.boundaries[at]), int(facts.steps.boundaries[at + 1])
    host = int(facts.steps.host[at]) if at < len(facts.steps.host) else begins
    first = host if begins - (ends - begins) < host < begins else begins
    return _Window(first, max(ends, begins + 1), begins)


def _inside(facts: StepFacts, rows: I64, window: _Window) -> I64:
    events = facts.timeline.events
    return rows[(events.end[rows] > window.begins) & (events.start[rows] < window.ends)]


def _device(facts: WorkFacts, window: _Window) -> tuple[_Rows, list[Track]]:
    """Kernels, copies and collectives, a track a stream; each with the cause its time counts for."""
    events = facts.timeline.events
    rows = _inside(facts, facts.timeline.rows(*DEVICE_KINDS), window)
    cause = np.full(len(events), OF_EVENT.index("unknown"), np.int64)
    cause[facts.kernels.row[facts.atoms.index]] = facts.atoms.cause
    keys = np.stack([events.device[rows].astype(np.int64), events.stream[rows]], axis=1)
    distinct, track = np.unique(keys, axis=0, return_inverse=True) if len(rows) else (keys, rows)
    several = len(np.unique(keys[:, 0])) > 1
    tracks: list[Track] = []
    for device, stream in distinct.tolist():
        label = "the cores" if facts.rank.device_kind == "cpu" else f"stream {stream}"
        tracks.append(Track(f"GPU {device}, {label}" if several else label, "device"))
    flat = np.zeros(len(rows), np.int64)
    name = events.name[rows].astype(np.int64)
    return _Rows(track.reshape(-1), flat, events.start[rows], events.end[rows], name, cause[rows]), tracks


def _gaps(facts: Facts, window: _Window, names: list[str]) -> _Rows:
    """The device's idle time: of each gap what only profiling made of it, then what it is blamed on."""
    events = facts.timeline.events
    rows = device_rows(facts.timeline, facts.steps.device)
    rows = rows[np.argsort(events.start[rows], kind="stable")]
    busy = union(events.start[rows], events.end[rows]).clip(window.step_from, window.ends)
    start, end = np.append(window.step_from, busy.end), np.append(busy.start, window.ends)
    long = end - start > SHORTEST_GAP_NS
    start, end = start[long], end[long]
    after = np.searchsorted(events.start[rows], end, side="left")
    following = np.append(rows, -1)[after]
    cause, real = _blamed(facts, following)
    begins = np.where(end - start - real > SHORTEST_GAP_NS, end - real, start)
    profiled = np.full(len(cause), OF_EVENT.index(PROFILED), np.int64)
    causes = np.concatenate([profiled, cause])
    first = len(names)
    names.extend(f"idle: {'only while profiled' if one == PROFILED else one}" for one in OF_EVENT)
    nothing = np.zeros(len(causes), np.int64)
    pieces = np.concatenate([start, begins]), np.concatenate([begins, end])
    return _Rows(nothing, nothing, *pieces, first + causes, causes).take(pieces[0] < pieces[1])


def _blamed(facts: Facts, following: I64) -> tuple[I64, I64]:
    """Of the gap before each of these rows: what the replay blames it on, and how long it is there."""
    gaps = facts.reading.likely.gaps
    causes = list(gaps.before)
    columns: F64 = np.stack([*(gaps.before[cause] for cause in causes), gaps.turning])
    if columns.shape[1] == 0:
        unknown = np.full(len(following), OF_EVENT.index("unknown"), np.int64)
        return unknown, np.full(len(following), np.iinfo(np.int64).max // 2)
    index = np.array([OF_EVENT.index(cause) for cause in [*causes, "launch-bound"]])
    at = _in_replay(facts, gaps.row, following)
    parts = columns[:, np.maximum(at, 0)]
    weight = np.maximum(gaps.replay.weight, NOT_ZERO_NS)[np.maximum(at, 0)]
    lasts = (parts.sum(axis=0) * facts.graph.steps / weight).astype(np.int64)
    known = at >= 0
    cause: I64 = np.where(known, index[parts.argmax(axis=0)], OF_EVENT.index("unknown"))
    return cause, np.where(known, lasts, np.iinfo(np.int64).max // 2)


def _in_replay(facts: StepFacts, replayed: I64, following: I64) -> I64:
    """Where rows stand in the replay; -1: not in it.

    What comes after the last counted step is not: the replay begins again instead, with the first row of the
    first one.
    """
    starts = facts.timeline.events.start
    place = np.full(len(starts) + 1, -1, np.int64)
    place[replayed] = np.arange(len(replayed))
    at = place[following]
    begins = int(facts.steps.boundaries[facts.queue.used[0]]) if len(facts.queue.used) else -1
    first = np.flatnonzero(starts[replayed] == begins)
    ends = int(facts.steps.boundaries[-1])
    if facts.queue.repeats and len(first):
        after = (following >= 0) & (starts[np.maximum(following, 0)] >= ends)
        at = np.where((at < 0) & after, first[0], at)
    return at


def _host(facts: StepFacts, window: _Window, first: int) -> tuple[_Rows, list[Track]]:
    """What the threads did, nested; the thread that does most comes first."""
    events = facts.timeline.events
    rows = _inside(facts, facts.timeline.rows(*HOST_KINDS), window)
    depth = _depths(facts.links.parent, rows)
    rows, depth = rows[depth < DEEPEST], depth[depth < DEEPEST]
    threads, inverse, count = np.unique(events.thread[rows], return_inverse=True, return_counts=True)
    order = np.argsort(-count, kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    tracks: list[Track] = []
    side: Literal["host"] = "host"
    for thread in threads[order].tolist():
        _, tid = facts.timeline.threads[thread]
        tracks.append(Track(facts.timeline.thread_names.get(thread) or f"thread {tid}", side))
    none = np.full(len(rows), OF_EVENT.index(NO_CAUSE), np.int64)
    own = place[inverse.reshape(-1)] if len(rows) else rows
    name = events.name[rows].astype(np.int64)
    return _Rows(first + own, depth, events.start[rows], events.end[rows], name, none), tracks


def _depths(parent: I64, rows: I64) -> I64:
    """How many rows are around each."""
    depth = np.zeros(len(rows), np.int64)
    around = parent[rows]
    while (open_ := around >= 0).any() and depth.max(initial=0) <= DEEPEST:
        depth += open_
        around = np.where(open_, parent[np.maximum(around, 0)], -1)
    return depth


def _joined(parts: list[_Rows]) -> _Rows:
    return _Rows(
        *(np.concatenate([getattr(part, name) for part in parts]) for name in _Rows.__struct_fields__)
    )


def _capped(rows: _Rows, first_thread: int) -> tuple[_Rows, int]:
    """As many as a browser can draw: what is short on the host goes first."""
    over = len(rows.start) - MOST_EVENTS
    if over <= 0:
        return rows, 0
    host = rows.track >= first_thread
    kept = np.argsort(np.where(host, 0, 2**62) + (rows.end - rows.start), kind="stable")[over:]
    return rows.take(np.sort(kept)), over


def _packed(
    rows: _Rows, window: _Window, tracks: list[Track], names: list[str], kind: str, left_out: int
) -> StepTimeline:
    """The columns as bytes, lane after lane, and the names that are left."""
    span = window.ends - window.begins
    unit = 1 + span // MOST_UNITS
    start = np.clip(rows.start - window.begins, 0, span) // unit
    end = np.clip(rows.end - window.begins, 0, span) // unit
    lane = rows.track * (DEEPEST + 1) + rows.depth
    changes = np.flatnonzero(np.diff(lane, prepend=-1))
    counts = np.diff(np.append(changes, len(lane)))
    step = np.diff(start, prepend=0)
    step[changes] = start[changes]
    used, name = np.unique(rows.name, return_inverse=True)
    lanes = [
        Lane(int(rows.track[at]), int(rows.depth[at]), int(count))
        for at, count in zip(changes.tolist(), counts.tolist(), strict=True)
    ]
    return StepTimeline(
        unit_ns=int(unit),
        span=int(span // unit),
        step_from=int((window.step_from - window.begins) // unit),
        step_to=int(span // unit),
        tracks=tracks,
        lanes=lanes,
        names=[names[at] for at in used.tolist()],
        causes=list(OF_EVENT),
        start=step.astype("<u4").tobytes(),
        length=np.maximum(end - start, 0).astype("<u4").tobytes(),
        name=name.reshape(-1).astype("<u4").tobytes(),
        cause=rows.cause.astype(np.uint8).tobytes(),
        kind=kind,
        left_out=left_out,
    )
