"""Replayed graphs get the ops of their capture.

A kernel that a graph launch replays has no op and no shapes: those were on the host when the graph was
captured. Where that capture was recorded, the kernels of a replay and the launches of the capture are laid
side by side in order. A kernel gets the op of its launch, and is then judged as if that op had launched it;
where more than one op fits equally well, it gets none.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from findwall.model.events import COLUMN_TYPES, DEVICE_KINDS, Bool, Events, Kind, Timeline
from findwall.model.intervals import I64
from findwall.step.cores import WEIGHTLESS
from findwall.step.kernel_classes import op_class
from findwall.step.links import ENQUEUES, GRAPH_LAUNCH, is_replayed, link, link_launches
from findwall.step.replay_alignment import affinity, align, evenly
from findwall.step.step_facts import Links

_BEGIN, _END = (re.compile(f"{one}capture", re.IGNORECASE) for one in ("begin", "end"))
# Kernels times launches: beyond it, laying them side by side takes hundreds of megabytes. Chosen by hand.
MOST_PAIRS = 20_000_000
# Captures laid beside a replay, the likeliest first. Chosen by hand: a server captures dozens of batch sizes.
CAPTURES_TRIED = 8
# Ops that launch more than one kernel of their class: a product and the sum of its slices, say.
_SEVERAL = ("matmul", "conv", "attention", "norm", "reduce", "softmax", "optimizer")


def with_captured_ops(
    timeline: Timeline, captures: Sequence[Timeline], noted: Mapping[int, int] | None = None
) -> Timeline:
    """The timeline with a row for every captured op that a replayed kernel does, linked to the kernel.

    `noted`: by a graph launch's correlation, which of the captures it replays (-1 none of them). Rows of
    captured ops are of no time: on a thread of their own they only nest as the ops did.
    """
    if not captures:
        return timeline
    links = link_launches(timeline)
    events = timeline.events
    found = [captured_launches(capture) for capture in captures]
    every = [launches for one in found for launches in one]
    captured = CapturedRows(timeline)
    known: dict[tuple[object, ...], Match | None] = {}
    for rows in _replays(timeline, links):
        which = (noted or {}).get(int(events.correlation[rows[0]]))
        key = (*(column[rows].tobytes() for column in (events.name, events.kind)), which)
        if key not in known:
            candidates = every if which is None else found[which] if 0 <= which < len(found) else []
            known[key] = _best(timeline, rows, candidates)
        match = known[key]
        if match is not None:
            captured.add(rows, match)
    return captured.timeline()


def noted_replays(timeline: Timeline, replays: Sequence[int]) -> dict[int, int]:
    """Which capture each graph launch of a whole trace replays, where the job's replays were noted in order.

    Where notes and launches differ in number, nobody knows which is which: if some replay a graph whose
    capture was not recorded, it may be any of them.
    """
    calls = timeline.rows_named(GRAPH_LAUNCH, Kind.RUNTIME)
    calls = calls[np.argsort(timeline.events.start[calls], kind="stable")]
    launches = timeline.events.correlation[calls].tolist()
    if len(calls) == len(replays):
        return dict(zip(launches, replays, strict=True))
    return dict.fromkeys(launches, -1) if -1 in replays else {}


def captured_launches(capture: Timeline) -> list[Launches]:
    """Every capture in a file: what was launched from the beginning of a capture to its end."""
    links = link(capture)
    events = capture.events
    calls = capture.rows(Kind.RUNTIME)
    calls = calls[np.argsort(events.start[calls], kind="stable")]
    if len(calls) == 0:
        ops = _ops_in_order(capture, links)
        return [ops] if len(ops) else []
    answered = np.zeros(len(events), bool)
    answered[links.launch[links.launch >= 0]] = True
    issues = capture.bears(ENQUEUES, calls) & ~capture.bears(GRAPH_LAUNCH, calls) & ~answered[calls]
    begins, ends = (np.flatnonzero(capture.bears(one, calls)) for one in (_BEGIN, _END))
    found = []
    for begin in begins.tolist() or [-1]:
        later = ends[ends > begin]
        end = int(later[0]) if len(later) else len(calls)
        inside = calls[begin + 1 : end][issues[begin + 1 : end]]
        op = links.op[inside]
        kernel = tuple(map(_kernel_of, [capture] * len(inside), inside.tolist(), op.tolist()))
        found.append(Launches(capture, links, op, kernel, counted=True))
    return [launches for launches in found if len(launches)]


def _kernel_of(capture: Timeline, call: int, op: int) -> str:
    """The kernel's name: HIP's calls tell it, and a compiled kernel's own range does."""
    extra = capture.extra_of(call)
    if extra is not None and extra.kernel:
        return extra.kernel
    around = capture.name_of(op) if op >= 0 else ""
    return around if around.startswith("triton_") else ""


def _ops_in_order(capture: Timeline, links: Links) -> Launches:
    """Only ops were recorded: those with no op of the same class inside them, as they began."""
    ops = capture.rows(Kind.OP)
    ops = ops[~capture.bears(WEIGHTLESS, ops)]
    ops = ops[np.argsort(capture.events.start[ops], kind="stable")]
    inner = set(ops.tolist())
    for row in ops.tolist():
        own = op_class(capture.name_of(row))
        for above in links.ancestors(row):
            if op_class(capture.name_of(above)) in (None, own):
                inner.discard(above)
    ops = np.array([row for row in ops.tolist() if row in inner], np.int64)
    kernel = tuple(_kernel_of(capture, row, row) for row in ops.tolist())
    return Launches(capture, links, ops, kernel, counted=False)


def _replays(timeline: Timeline, links: Links) -> list[I64]:
    """Device rows of each graph launch, in the order in which they ran."""
    events = timeline.events
    rows = timeline.rows(*DEVICE_KINDS)
    rows = rows[is_replayed(timeline, links, rows)]
    rows = rows[np.lexsort((events.start[rows], links.launch[rows]))]
    cuts = np.flatnonzero(np.diff(links.launch[rows])) + 1
    return [mine for mine in np.split(rows, cuts) if len(mine)]


def _best(timeline: Timeline, rows: I64, found: list[Launches]) -> Match | None:
    """The capture that fits a replay best. Captures that fit equally well may differ in their shapes."""
    names = [timeline.name_of(row) for row in rows.tolist()]
    kinds = timeline.events.kind[rows].tolist()
    counts = Counter(names)
    tried: list[tuple[int, Launches, I64]] = []
    for launches in sorted(found, key=lambda one: _unlike(counts, one))[:CAPTURES_TRIED]:
        position = side_by_side(names, kinds, launches)
        # Launches that no kernel of the replay answers speak against a capture that counted them.
        surplus = len(launches) - int((position >= 0).sum()) if launches.counted else 0
        tried.append((int((position >= 0).sum()) - surplus, launches, position))
    if not tried:
        return None
    highest = max(score for score, _, _ in tried)
    equal = [(launches, position) for score, launches, position in tried if score == highest]
    launches, position = equal[0]
    if not (position >= 0).any():
        return None
    certain = np.ones(len(rows), bool)
    for other, place in equal[1:]:
        certain &= [_does(launches, a) == _does(other, b) for a, b in zip(position, place, strict=True)]
    return Match(launches, position, certain)


def _does(launches: Launches, position: int) -> tuple[str, bytes] | None:
    """The op at a place and its inputs, as text."""
    row = int(launches.op[position]) if position >= 0 else -1
    if row < 0:
        return None
    inputs = int(launches.timeline.events.inputs[row])
    return launches.timeline.name_of(row), launches.timeline.details.inputs[inputs] if inputs >= 0 else b""


def _unlike(counts: Counter[str], launches: Launches) -> tuple[int, int]:
    """How far a capture is from a replay, without laying them side by side: the nearest sort first."""
    told = Counter(name for name in launches.kernel if name)
    return -sum((counts & told).values()), abs(sum(counts.values()) - len(launches))


def side_by_side(names: list[str], kinds: list[int], launches: Launches) -> I64:
    """For each replayed row the launch of the capture that it is; -1 where none is, or several may be."""
    if tuple(names) == launches.kernel:
        return np.arange(len(names), dtype=np.int64)
    if len(names) * len(launches) > MOST_PAIRS:
        return np.full(len(names), -1, np.int64)
    kernel_keys, kernel_at = _distinct(list(zip(names, kinds, strict=True)))
    ops = [launches.timeline.name_of(row) if row >= 0 else None for row in launches.op.tolist()]
    launch_keys, launch_at = _distinct(list(zip(ops, launches.kernel, strict=True)))
    table = np.array(
        [[affinity(*kernel, *launch, launches.counted) for launch in launch_keys] for kernel in kernel_keys],
        np.int32,
    )
    _, alike = _distinct([_does(launches, at) or at for at in range(len(launches))])
    several = np.array(
        [not launches.counted and op is not None and op_class(op) in _SEVERAL for op in ops], bool
    )
    return evenly(align(table[kernel_at][:, launch_at], alike, several), alike, kernel_at)


def _distinct(keys: list[Any]) -> tuple[list[Any], I64]:
    """Each distinct key once, and for each key its number."""
    numbers: dict[Any, int] = {}
    at = np.array([numbers.setdefault(key, len(numbers)) for key in keys], np.int64)
    return list(numbers), at


# -- rows for captured ops --------------------------------------------------------------------------------
#
# Those that replays do get rows in the timeline that replays them. They are of no time: on a thread of
# their own they only nest as the ops did.


CAPTURED_THREAD = "captured"


class Launches(msgspec.Struct, frozen=True):
    """What one capture launched, in order."""

    timeline: Timeline
    links: Links
    op: I64  # row in the capture's timeline; -1 where no op stood around the launch
    kernel: tuple[str, ...]  # names; "" where the file does not say
    counted: bool  # an entry is a launch; else it is an op that may have launched none, one or several

    def __len__(self) -> int:
        return len(self.op)


class Match(msgspec.Struct, frozen=True):
    """A replay and the capture it fits best."""

    launches: Launches
    position: I64  # of each row: its launch; -1 none
    certain: Bool  # of each row: every capture that fits as well gives it the same inputs


class _Ops(msgspec.Struct, frozen=True):
    """The captured ops of one match, the same for each of its replays."""

    columns: dict[str, NDArray[Any]]
    at: I64  # of each row of the replay: which of the ops it does; -1 none


class CapturedRows:
    """Gathers the rows of captured ops."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._names = {name: at for at, name in enumerate(timeline.names)}
        self._inputs = {raw: at for at, raw in enumerate(timeline.details.inputs)}
        self._external = timeline.events.external.copy()
        self._next = max(int(self._external.max(initial=0)), 0) + 1
        self._ticks = 0
        self._ops: dict[int, _Ops] = {}  # by the identity of the match
        self._columns: dict[str, list[NDArray[Any]]] = {}

    def add(self, rows: I64, match: Match) -> None:
        """The ops of one replay, and those around them."""
        ops = self._ops.get(id(match))
        if ops is None:
            ops = self._ops[id(match)] = self._ops_of(match)
        count = len(ops.columns["name"])
        number = np.arange(self._next, self._next + count, dtype=np.int64)
        changed: dict[str, Any] = {
            "start": ops.columns["start"] + self._ticks,
            "end": ops.columns["end"] + self._ticks,
            "correlation": np.full(count, self._timeline.events.correlation[rows[0]]),
            "external": number,
        }
        for name in COLUMN_TYPES:
            self._columns.setdefault(name, []).append(changed.get(name, ops.columns[name]))
        self._external[rows[ops.at >= 0]] = number[ops.at[ops.at >= 0]]
        self._next += count
        self._ticks += 2 * count

    def _ops_of(self, match: Match) -> _Ops:
        capture, links = match.launches.timeline, match.launches.links
        op = np.where(match.position >= 0, match.launches.op[np.maximum(match.position, 0)], -1)
        wanted = {row for row in op.tolist() if row >= 0}
        around = {above for row in wanted for above in links.ancestors(row)}
        is_op = capture.events.kind == Kind.OP
        kept = np.array(sorted(wanted | {row for row in around if is_op[row]}), np.int64)
        # An op of which a shape is in doubt has no inputs, nor has one around it.
        doubt = {row for row in op[~match.certain].tolist() if row >= 0}
        doubt |= {above for row in doubt for above in links.ancestors(row)}
        return _Ops(self._rows(capture, kept, doubt), np.where(op >= 0, np.searchsorted(kept, op), -1))

    def _rows(self, capture: Timeline, kept: I64, doubt: set[int]) -> dict[str, NDArray[Any]]:
        """Columns of these ops, in the names and inputs of the timeline."""
        events = capture.events
        names = [
            self._names.setdefault(name, len(self._names)) for name in map(capture.name_of, kept.tolist())
        ]
        inputs = []
        for row, index in zip(kept.tolist(), events.inputs[kept].tolist(), strict=True):
            raw = capture.details.inputs[index] if index >= 0 and row not in doubt else None
            inputs.append(-1 if raw is None else self._inputs.setdefault(raw, len(self._inputs)))
        start, end = _nested(events.start[kept], events.end[kept], events.thread[kept])
        known: dict[str, Any] = {
            "start": start,
            "end": end,
            "kind": Kind.CAPTURED,
            "name": names,
            "process": max(len(self._timeline.processes) - 1, 0),
            "thread": len(self._timeline.threads),
            "inputs": inputs,
        }
        columns = {name: np.empty(len(kept), dtype) for name, dtype in COLUMN_TYPES.items()}
        for name, column in columns.items():
            column[:] = known.get(name, -1)
        return columns

    def timeline(self) -> Timeline:
        before = self._timeline
        if not self._ticks:
            return before
        own = replace(before.events, external=self._external)
        columns = {
            name: np.concatenate([getattr(own, name), *parts]) for name, parts in self._columns.items()
        }
        details = replace(before.details, inputs=list(self._inputs), _inputs={})
        return replace(
            before,
            events=Events(**columns),
            names=list(self._names),
            threads=[*before.threads, (max(len(before.processes) - 1, 0), CAPTURED_THREAD)],
            details=details,
        )


def _nested(start: I64, end: I64, thread: NDArray[Any]) -> tuple[I64, I64]:
    """Times of a nanosecond a beginning and an ending, that nest as these do; threads one after another."""
    order = np.lexsort((-end, start, thread))
    opened, closed = np.zeros(len(start), np.int64), np.zeros(len(start), np.int64)
    tick = 0
    inside: list[int] = []
    for row in order.tolist():
        while inside and (thread[inside[-1]] != thread[row] or end[inside[-1]] <= start[row]):
            closed[inside.pop()] = (tick := tick + 1)
        opened[row] = (tick := tick + 1)
        inside.append(row)
    for row in reversed(inside):
        closed[row] = (tick := tick + 1)
    return opened, closed
