"""The counted steps as the replay plays them, without the profiler, and what each moment counts for.

Four tracks beside the streams: what each gap is blamed on, the wall of every stretch, the floor of each
kernel, and the critical path. `ms_per_step` of a slice is its part of the budget, so the slices of a cause
sum to what the budget gives it. What the budget holds and no played step shows (steps that are rare, time
that nobody can explain) comes after the last step.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import msgspec
import numpy as np

from findwall.facts.facts import Facts
from findwall.model.catalogue import WALL_OF
from findwall.model.causes import CAUSES, UNKNOWN, ByCause, cause_index
from findwall.model.intervals import F64, I64
from findwall.model.tracks import BLAME, FLOORS, PATH, STREAM, WALLS, OwnTrack, OwnTracks
from findwall.replay.graph import LAUNCHING, Node
from findwall.replay.simulate import critical_path
from findwall.units import NOT_ZERO_NS, ms
from findwall.work.work_facts import WorkFacts

LEAST_NS = 0.5  # of a slice: what is shorter is told with what comes after the steps
NOT_PLAYED = "in no gap of these steps"
MOMENTS = {
    Node.OPEN: "the thread begins",
    Node.RESUME: "another thread goes on",
    Node.ARRIVAL: "a batch arrives",
    Node.WAIT: "a stream waits for another",
    Node.CLOSE: "the thread ends",
}


class _Slices(msgspec.Struct, frozen=True):
    """Pieces of time that a cause has. `counts` is what each adds to the mean step, in ns."""

    start: F64
    length: F64
    cause: I64
    counts: F64

    def take(self, rows: I64) -> _Slices:
        return _Slices(self.start[rows], self.length[rows], self.cause[rows], self.counts[rows])


class _Played(msgspec.Struct, frozen=True):
    """Device rows of the replay in the order they begin. Times are ns from the start of the repeat."""

    row: I64  # of the timeline
    start: F64
    end: F64
    gap: F64  # idle before it
    busy: F64
    order: I64  # of the graph's device rows
    length: float  # of the repeat


def own_tracks(facts: Facts) -> OwnTracks:
    played = _played(facts)
    gaps = _gaps(facts, played)
    tracks = [
        _of_causes(BLAME, "blame of each gap", gaps, facts.reading.likely.idle, played.length),
        _of_causes(
            WALLS, "wall of each stretch", _stretches(facts, played, gaps), facts.spent(), played.length
        ),
        _path(facts, played),
        _floors(facts, played),
        *_streams(facts, played),
    ]
    return OwnTracks(facts.graph.steps, played.length, tracks)


def _played(facts: Facts) -> _Played:
    graph, replay = facts.graph, facts.reading.likely.gaps.replay
    end = replay.times[graph.rows]
    begins = float(end.max(initial=0.0)) - replay.length
    start = end - replay.lags.own[graph.rows]
    order = np.argsort(start, kind="stable")
    return _Played(
        row=graph.row[graph.rows][order],
        start=start[order] - begins,
        end=end[order] - begins,
        gap=replay.gap[order],
        busy=replay.busy[order],
        order=order,
        length=replay.length,
    )


def _gaps(facts: Facts, played: _Played) -> _Slices:
    """The pieces of every gap, each as long as its share of the gap."""
    blamed = facts.reading.likely.gaps
    columns = {cause_index(cause): column for cause, column in blamed.before.items()}
    launching = cause_index(LAUNCHING)
    columns[launching] = columns.get(launching, np.zeros(len(blamed.row))) + blamed.turning
    columns = _as_budgeted(columns, facts.reading.likely.idle)
    counts = np.stack([column[played.order] for column in columns.values()], axis=1)
    length = counts * (played.gap / np.maximum(counts.sum(axis=1), NOT_ZERO_NS))[:, None]
    until = np.cumsum(length, axis=1) + (played.start - played.gap)[:, None]
    cause = np.broadcast_to(np.array(list(columns), np.int64), counts.shape)
    found = _Slices((until - length).ravel(), length.ravel(), cause.ravel(), counts.ravel())
    return found.take(np.flatnonzero((found.counts > 0) & (found.length >= LEAST_NS)))


def _as_budgeted(columns: dict[int, F64], idle: ByCause) -> dict[int, F64]:
    """The gaps as the budget has them: it may know more than the replay of one rank does.

    What it takes from a cause it gives to another of the same wall (a collective's wait to a straggler), or
    calls unknown; then it is the same gap under another name. Else the gap is shorter.
    """
    walls = [WALL_OF.get(cause) for cause in CAUSES]
    missing = np.array([float(idle.values[at]) for at in range(len(CAUSES))])
    for at, column in columns.items():
        missing[at] -= float(column.sum())
    found = dict(columns)
    for at, column in columns.items():
        over = -missing[at]
        if over <= 0:
            continue
        whole = float(column.sum())
        found[at] = found[at] - column * (over / whole)
        takers = [one for one in range(len(CAUSES)) if walls[one] == walls[at]] + [cause_index(UNKNOWN)]
        for taker in takers:
            moved = min(over, max(missing[taker], 0.0))
            if moved > 0:
                found[taker] = found.get(taker, np.zeros(len(column))) + column * (moved / whole)
                missing[taker] -= moved
                over -= moved
    return found


def _stretches(facts: Facts, played: _Played, gaps: _Slices) -> _Slices:
    """What each moment of the step counts for: kernels and gaps, neighbours of one cause together."""
    atoms, kernels = facts.atoms, facts.kernels
    place = np.full(len(facts.timeline.events), -1, np.int64)
    place[played.row] = np.arange(len(played.row))
    at = place[kernels.row[atoms.index]]
    known = at >= 0
    at = at[known]
    share = facts.own[known] / np.maximum(
        np.bincount(at, facts.own[known], minlength=len(played.row))[at], NOT_ZERO_NS
    )
    busy = _Slices(
        (played.end - played.busy)[at], played.busy[at] * share, atoms.cause[known], facts.own[known]
    )
    columns = [np.concatenate([getattr(busy, one), getattr(gaps, one)]) for one in _Slices.__struct_fields__]
    every = _Slices(*columns)
    return _merged(every.take(np.argsort(every.start, kind="stable")))


def _merged(found: _Slices) -> _Slices:
    if len(found.start) == 0:
        return found
    first = np.flatnonzero(np.diff(found.cause, prepend=-1))
    end = np.maximum.reduceat(found.start + found.length, first)
    # A kernel beside another one adds nothing to the track, but counts: it never reaches into what follows.
    end = np.minimum(end, np.append(found.start[first][1:], np.inf))
    start = found.start[first]
    counts = np.add.reduceat(found.counts, first)
    return _Slices(start, np.maximum(end - start, 0.0), found.cause[first], counts)


def _of_causes(kind: str, label: str, found: _Slices, budget: ByCause, end: float) -> OwnTrack:
    """A track whose slices sum to the budget; what no slice holds comes after the last step."""
    held = ByCause.summed(found.cause, found.counts)
    rest = {cause: budget[cause] - held[cause] for cause in CAUSES if budget[cause] > held[cause]}
    names = [*(CAUSES[at] for at in found.cause.tolist()), *rest]
    start = [*found.start.tolist(), *list(accumulate(rest.values(), initial=end))[:-1]]
    length = [*found.length.tolist(), *rest.values()]
    told = {
        "wall": [WALL_OF.get(cause) for cause in names],
        "cause": names,
        "ms_per_step": [ms(one) for one in (*found.counts.tolist(), *rest.values())],
    }
    shown = [*names[: len(found.start)], *(f"{cause} ({NOT_PLAYED})" for cause in rest)]
    return OwnTrack(kind, label, start, length, shown, told)


def _floors(facts: WorkFacts, played: _Played) -> OwnTrack:
    """Every kernel at the least time it could take, from where it begins; without a floor it is not there."""
    kernels = facts.kernels
    floor = np.full(len(facts.timeline.events), np.nan)
    floor[kernels.row] = kernels.floor
    recorded = facts.timeline.events.duration[played.row]
    own = played.end - played.start
    least = floor[played.row] * own / np.maximum(recorded, 1)
    # On one track slices may not overlap: a kernel beside a longer one is left to its stream.
    there = np.flatnonzero(~np.isnan(least) & (played.busy >= own - LEAST_NS))
    names = [facts.timeline.name_of(row) for row in played.row[there].tolist()]
    told = {
        "floor_ms": [ms(one) for one in least[there].tolist()],
        "ms": [ms(one) for one in own[there].tolist()],
    }
    start, length = played.start[there].tolist(), least[there].tolist()
    return OwnTrack(FLOORS, "floor of each kernel", start, length, names, told)


def _path(facts: Facts, played: _Played) -> OwnTrack:
    """The chain that makes the steps as long as they are, its pieces one after the other."""
    graph, replay = facts.graph, facts.reading.likely.gaps.replay
    path = critical_path(graph, replay)
    length = path.length[::-1]
    until = np.cumsum(length) + (played.length - float(length.sum()))
    nodes = path.node[::-1].tolist()
    told: dict[str, list[Any]] = {
        "where": ["device" if graph.kind[node] in (Node.ROW, Node.WAIT) else "host" for node in nodes],
        "ms": [ms(one) for one in length.tolist()],
    }
    names = [_moment(facts, node) for node in nodes]
    return OwnTrack(PATH, "critical path", (until - length).tolist(), length.tolist(), names, told)


def _moment(facts: Facts, node: int) -> str:
    row = int(facts.graph.row[node])
    return facts.timeline.name_of(row) if row >= 0 else MOMENTS.get(Node(int(facts.graph.kind[node])), "host")


def _streams(facts: WorkFacts, played: _Played) -> list[OwnTrack]:
    """The device's rows where the replay has them, with the cause their time counts for."""
    events = facts.timeline.events
    cause = np.full(len(events), cause_index(UNKNOWN), np.int64)
    cause[facts.kernels.row[facts.atoms.index]] = facts.atoms.cause
    tracks = []
    keys = np.stack([events.device[played.row].astype(np.int64), events.stream[played.row]], axis=1)
    for device, stream in np.unique(keys, axis=0).tolist() if len(keys) else ():
        mine = np.flatnonzero((keys == (device, stream)).all(axis=1))
        rows = played.row[mine]
        causes = [CAUSES[at] for at in cause[rows].tolist()]
        label = "the cores" if facts.rank.device_kind == "cpu" else f"GPU {device}, stream {stream}"
        told = {"wall": [WALL_OF.get(one) for one in causes], "cause": causes}
        names = [facts.timeline.name_of(row) for row in rows.tolist()]
        length = (played.end - played.start)[mine].tolist()
        tracks.append(OwnTrack(STREAM, label, played.start[mine].tolist(), length, names, told))
    return tracks
