"""Which op's work a device row does: the innermost op with a model, evaluated once per distinct inputs."""

from __future__ import annotations

import msgspec
import numpy as np

from findwall.model.events import I32, Bool, Kind, Timeline
from findwall.model.intervals import I64
from findwall.step.links import is_replayed
from findwall.step.step_facts import Links
from findwall.work.op_arguments import Work
from findwall.work.op_families.convolution import HALVES, Results, without_namespace
from findwall.work.op_work import op_work


class Owners(msgspec.Struct):
    """For each device row the op that owns its work and that op's work; -1 where there is none."""

    op: I64
    work: I64  # -> works
    works: list[Work] = msgspec.field(default_factory=list)


class _Evaluated:
    """Work by (op name, inputs), each worked out once."""

    def __init__(self, timeline: Timeline, links: Links) -> None:
        self.timeline = timeline
        self.links = links
        self.works: list[Work] = []
        self._index: dict[tuple[int, int], int] = {}
        self._results = Results(timeline)
        self._halves = np.array([without_namespace(name) in HALVES for name in timeline.names], bool)

    def of(self, ops: I64) -> I64:
        """The index of each op's work, -1 where it has none."""
        events = self.timeline.events
        names: I32 = events.name[ops]
        half = self._halves[names]
        source = np.where(half, np.maximum(self.links.parent[ops], 0), ops) if half.any() else ops
        inputs: I32 = events.inputs[source]
        width = int(inputs.max(initial=-1)) + 2
        distinct, inverse = np.unique(names.astype(np.int64) * width + inputs + 1, return_inverse=True)
        found = [self._one(int(key) // width, int(key) % width - 1) for key in distinct]
        return np.array(found, np.int64)[inverse] if len(found) else np.zeros(0, np.int64)

    def _one(self, name: int, inputs: int) -> int:
        index = self._index.get((name, inputs))
        if index is None:
            op_name, recorded = self.timeline.names[name], self.timeline.details.inputs_of(inputs)
            work = op_work(op_name, recorded) or op_work(op_name, self._results.completed(op_name, recorded))
            index = -1
            if work is not None:
                index = len(self.works)
                self.works.append(work)
            self._index[(name, inputs)] = index
        return index


def owners(timeline: Timeline, links: Links, rows: I64) -> Owners:
    """Climb from each row's innermost op to the nearest one with a model."""
    evaluated = _Evaluated(timeline, links)
    op = links.op[rows].copy()
    op[_without_op(timeline, links, rows)] = -1
    work = np.full(len(rows), -1, np.int64)
    climbed = np.zeros(len(rows), bool)
    while len(open_rows := np.flatnonzero((work < 0) & (op >= 0))):
        work[open_rows] = evaluated.of(op[open_rows])
        still = open_rows[work[open_rows] < 0]
        op[still] = _op_above(links, op[still])
        climbed[still] = True
    work[climbed & (work >= 0) & _shared_with_inner_ops(links, op, work, climbed)] = -1
    op[work < 0] = links.op[rows[work < 0]]
    return Owners(op, work, evaluated.works)


def _op_above(links: Links, ops: I64) -> I64:
    parent = links.parent[ops]
    return np.where(parent >= 0, links.op[np.maximum(parent, 0)], -1)


def _without_op(timeline: Timeline, links: Links, rows: I64) -> Bool:
    """Kernels of a graph launch that no capture explains: the op around the launch is not the op they do."""
    op = links.op[rows]
    captured = (op >= 0) & (timeline.events.kind[np.maximum(op, 0)] == Kind.CAPTURED)
    found: Bool = is_replayed(timeline, links, rows) & ~captured
    return found


def _shared_with_inner_ops(links: Links, op: I64, work: I64, climbed: np.ndarray) -> np.ndarray:
    """Rows that climbed to an op whose other kernels are already paid for by ops inside it."""
    covered: set[int] = set()
    above = op[(work >= 0) & ~climbed]
    while len(above := np.unique(_op_above(links, above[above >= 0]))):
        covered.update(above.tolist())
    return np.isin(op, np.fromiter(covered, np.int64, len(covered)))
