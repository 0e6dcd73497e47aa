"""Rows for the ops of graph captures in the timeline that replays them.

They are of no time: on a thread of their own they only nest as the ops did.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from findwall.model.events import COLUMN_TYPES, Bool, Events, Kind, Timeline
from findwall.model.intervals import I64
from findwall.structure.links import Links

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
        at = np.searchsorted(kept, op)
        return _Ops(self._rows(capture, kept, doubt), np.where(op >= 0, at, -1))

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
