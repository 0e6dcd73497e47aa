"""What a trace says of the allocator (`profile_memory=True`), in the same columns as a snapshot.

An event has a time and a thread, and no stack: that is what runs around it there. Every level of the rows of
a thread is stretches that do not overlap, so one search a level finds it for all events together.
"""

from __future__ import annotations

import re

import msgspec
import numpy as np

from findwall.memory.device_memory import device_memory
from findwall.memory.lives import BEFORE, walk
from findwall.memory.memory_kinds import STATE, holder
from findwall.model.catalogue import MAJORITY_SHARE
from findwall.model.events import Bool, Inputs, Kind, MemorySamples, Timeline
from findwall.model.memory_history import (
    ALLOC,
    ALLOCATED,
    BACKWARD_PASS,
    FORWARD_PASS,
    FREE_REQUESTED,
    HOST,
    I32,
    I64,
    U8,
    UPDATE_PASS,
    Blocks,
    CodeFrame,
    DeviceHistory,
    KnownMemory,
    MemoryEvents,
    MemoryHistory,
    ModuleCalls,
    Segments,
)
from findwall.step.call_names import OPTIMIZER_STEP, PROFILED_FRAME, PROFILER_STEP
from findwall.step.links import BACKWARD as ENGINE

# What is another name in every step or every module, or names an address.
_PASSED_OVER = re.compile(rf"{PROFILER_STEP.pattern}|^<built-in ")
_MODULE = re.compile(r"^nn\.Module: ")
_NUMBERED_MODULE = re.compile(r"^(nn\.Module: .+?)_\d+$")
_PRODUCT = re.compile(r"^aten::(?:addmm|mm|baddbmm|bmm|convolution)$")
_SIXTEEN_BITS = ("bfloat16", "half")


def traced_history(timeline: Timeline, known: KnownMemory | None = None) -> MemoryHistory | None:
    """None where the trace has no such events. `known`: what the run itself knew of addresses."""
    found = timeline.memory
    if found is None or not (found.size != 0).any():
        return None
    kept = np.flatnonzero(found.size != 0)
    found = MemorySamples(**{name: getattr(found, name)[kept] for name in found.__struct_fields__})
    around = _Around(timeline, found)
    on_host = bool((found.device == HOST).all())
    history = MemoryHistory(
        timeline.path,
        tuple(
            _device(found, np.flatnonzero(found.device == device), around, device, known)
            for device in np.unique(found.device).tolist()
        ),
        around.frames,
        around.stacks,
        of="requested" if on_host else "allocated",  # a device's allocator tells the size of its blocks
        known=known,
        is_narrow=_is_narrow(timeline),
    )
    return history if on_host else _split(history)


def _is_narrow(timeline: Timeline) -> bool | None:
    given, times = np.unique(
        timeline.events.inputs[timeline.rows_named(_PRODUCT, Kind.OP)], return_counts=True
    )
    told = [
        (first.lower().endswith(_SIXTEEN_BITS), count)
        for one, count in zip(given.tolist(), times.tolist(), strict=True)
        if (first := _first_type(timeline.details.inputs_of(one)))
    ]
    narrow = sum(count for is_one, count in told if is_one)
    return narrow > MAJORITY_SHARE * sum(count for _, count in told) if told else None


def _first_type(inputs: Inputs | None) -> str:
    types = inputs.types if inputs is not None else []
    return types[0] if types and isinstance(types[0], str) else ""


def _device(
    found: MemorySamples, rows: I64, around: _Around, device: int, known: KnownMemory | None
) -> DeviceHistory:
    size = np.abs(found.size[rows])
    action = np.where(found.size[rows] > 0, ALLOC, FREE_REQUESTED).astype(np.uint8)
    events = MemoryEvents(action, found.address[rows], size, found.time[rows], around.stack[rows])
    last = found.allocated[rows[-1]]
    is_whole = last >= 0 and device != HOST  # a host's total is of what its recordings saw, stale or not
    history = DeviceHistory(
        device,
        events,
        _whole(int(last) if is_whole else 0, int(found.reserved[rows].max())),
        _blocks(np.zeros(0, np.uint64), np.zeros(0, np.int64)),
        around.passes[rows] if around.tells_passes else None,
        found.reserved[rows] if device != HOST and (found.reserved[rows] >= 0).all() else None,
        around.calls(rows),
    )
    history = _with_known(history, known)
    if is_whole:
        before = int(found.allocated[rows[0]] - found.size[rows[0]])
        lives = walk(history).lives
        left = before - int(lives.asked[lives.born == BEFORE].sum())
        if left > 0:
            history = _with_blocks(history, np.zeros(1, np.uint64), np.array([left]))
        return history
    return msgspec.structs.replace(history, segments=_whole(int(walk(history).asked[-1]), 0))


def _with_known(history: DeviceHistory, known: KnownMemory | None) -> DeviceHistory:
    """With what the job held when the recording ended, and no event tells of."""
    if known is None:
        return history
    mine = np.flatnonzero(known.device == history.device)
    lives = walk(history).lives
    mine = mine[holder(lives, len(history.events) - 1, known.address[mine]) < 0]
    _, first = np.unique(known.address[mine], return_index=True)
    return _with_blocks(history, known.address[mine[first]], known.size[mine[first]])


def _with_blocks(history: DeviceHistory, address: np.ndarray, size: I64) -> DeviceHistory:
    old = history.blocks
    return msgspec.structs.replace(
        history, blocks=_blocks(np.concatenate([old.address, address]), np.concatenate([old.size, size]))
    )


def _blocks(address: np.ndarray, size: I64) -> Blocks:
    count = len(size)
    state = np.full(count, ALLOCATED, np.uint8)
    stack = np.full(count, -1, np.int32)
    return Blocks(np.zeros(count, np.int32), address.astype(np.uint64), size, size, state, stack)


def _whole(allocated: int, reserved: int) -> Segments:
    """All that is known of segments: one of everything."""
    one = np.ones(1, np.int64)
    return Segments(
        np.zeros(1, np.uint64), one * reserved, one * allocated, one * allocated, np.zeros(1, np.bool_)
    )


# -- what was there before: only its sum is told -----------------------------------------------------------


def _split(history: MemoryHistory) -> MemoryHistory:
    """The sum in whole copies of the gradients, as the walk of a snapshot finds them: a model, and, where the
    optimizer made no state in the recording, as many of state as there is room for."""
    parts = []
    for facts in device_memory(history):
        blocks = facts.history.blocks
        sizes = facts.weights
        unknown = np.flatnonzero(blocks.address == 0)
        if len(unknown) == 0 or len(sizes) == 0:
            parts.append(facts.history)
            continue
        left, copy = int(blocks.size[unknown].sum()), int(sizes.sum())
        has_state = bool(((facts.kinds == STATE) & np.isin(facts.walk.lives.asked, sizes)).any())
        copies = min(left // copy, 1 if has_state else left)
        pieces = np.concatenate([*[sizes] * copies, [left - copies * copy]])
        pieces = pieces[pieces > 0]
        kept = msgspec.structs.replace(
            facts.history,
            blocks=_blocks(np.delete(blocks.address, unknown), np.delete(blocks.size, unknown)),
        )
        # Places nobody has: blocks are told apart by them.
        parts.append(_with_blocks(kept, np.arange(1, len(pieces) + 1, dtype=np.uint64), pieces))
    return msgspec.structs.replace(history, devices=tuple(parts))


# -- what runs around an event -----------------------------------------------------------------------------


class _Around:
    """The stack of each event, and which pass of the step it says."""

    def __init__(self, timeline: Timeline, found: MemorySamples) -> None:
        self._timeline, self._found = timeline, found
        self._frame_of = np.full(len(timeline.names), -1, np.int64)  # of a name; -1: not looked at yet
        self.frames: list[CodeFrame] = []
        self._numbers: dict[str, int] = {}
        self._paths: list[tuple[int, int]] = [(0, -1)]  # the path it goes on from, and its frame
        self._path = np.zeros(len(found.time), np.int64)
        self._calls: list[I64] = []  # of each level: the way, the first and the last event of each call
        self.passes: U8 = np.zeros(len(found.time), np.uint8)
        for rows in _levels(timeline):
            self._go_in(rows)
        self.stacks = self._as_stacks()
        self.stack = (self._path - 1).astype(np.int32)
        self.tells_passes = bool(self.passes.any())

    def _go_in(self, rows: I64) -> None:
        """One level further in: what of it is open at each event."""
        events, found = self._timeline.events, self._found
        span = int(max(events.end.max(), found.time.max(), 0)) + 2
        # Times before the first row are negative: none is open then.
        key = events.thread[rows].astype(np.int64) * span + events.start[rows]
        wanted = found.thread.astype(np.int64) * span + np.maximum(found.time, 0)
        at = np.searchsorted(key, wanted, side="right") - 1
        row = rows[np.maximum(at, 0)]
        inside = (at >= 0) & (found.thread == events.thread[row]) & (found.time < events.end[row])
        mine = np.flatnonzero(inside)
        if len(mine):
            self._enter(mine, row[mine])

    def _enter(self, mine: I64, row: I64) -> None:
        timeline = self._timeline
        in_engine = timeline.bears(ENGINE, row)
        in_update = timeline.bears(OPTIMIZER_STEP, row)
        is_op = timeline.events.kind[row] == Kind.OP
        said = np.where(
            in_engine, BACKWARD_PASS, np.where(in_update, UPDATE_PASS, np.where(is_op, FORWARD_PASS, 0))
        )
        # Forward is what nothing else says; of backward and an update the one further in.
        before = self.passes[mine]
        self.passes[mine] = np.where((said > FORWARD_PASS) | (before == 0), said, before)
        frame = self._frames_of(timeline.events.name[row])
        # Autograd may run on the thread that called it: what is around it made nothing.
        path = np.where(in_engine & (before != BACKWARD_PASS), 0, self._path[mine])
        named = frame >= 0
        pairs = path[named] * (len(self.frames) + 1) + frame[named]
        _, first, place = np.unique(pairs, return_index=True, return_inverse=True)
        start = len(self._paths)
        self._paths += zip(path[named][first].tolist(), frame[named][first].tolist(), strict=True)
        path[named] = start + place.reshape(-1)
        self._path[mine] = path
        if (modules := timeline.bears(_MODULE, row)).any():
            at = mine[modules]
            _, first = np.unique(row[modules], return_index=True)
            _, last = np.unique(row[modules][::-1], return_index=True)
            self._calls.append(np.stack([path[modules][first], at[first], at[::-1][last]]))

    def _frames_of(self, names: I32) -> I64:
        for name in np.unique(names[self._frame_of[names] == -1]).tolist():
            self._frame_of[name] = self._frame(self._timeline.names[name])
        return self._frame_of[names]

    def _frame(self, name: str) -> int:
        """The number of a frame; -2 of what is none."""
        if _PASSED_OVER.match(name):
            return -2
        if module := _NUMBERED_MODULE.match(name):
            name = module[1]
        if name not in self._numbers:
            self._numbers[name] = len(self.frames)
            found = PROFILED_FRAME.match(name)
            self.frames.append(
                CodeFrame(found["function"], found["file"], int(found["line"]))
                if found
                else CodeFrame(name, "", 0)
            )
        return self._numbers[name]

    def calls(self, rows: I64) -> ModuleCalls | None:
        """Those in which one of these events lies, the events counted among them."""
        if not self._calls:
            return None
        way, first, last = np.concatenate(self._calls, axis=1)
        first, after = np.searchsorted(rows, first), np.searchsorted(rows, last, side="right")
        some = after > first
        names = [
            self.frames[frame].name.removeprefix("nn.Module: ") if frame >= 0 else ""
            for _, frame in self._paths
        ]
        return ModuleCalls(way[some], first[some], after[some] - 1, names)

    def _as_stacks(self) -> list[list[int]]:
        """Each path but the empty one as its frames, the innermost first."""
        found: list[list[int]] = [[]]
        for above, frame in self._paths[1:]:
            found.append([frame, *found[above]])
        return found[1:]


def _levels(timeline: Timeline) -> list[I64]:
    """Rows of the host by how many are open around them; those of one thread and level, in order of time."""
    events = timeline.events
    rows = timeline.rows(Kind.OP, Kind.ANNOTATION, Kind.PYTHON)
    rows = rows[events.end[rows] > events.start[rows]]
    if len(rows) == 0:
        return []
    opens: Bool = np.repeat([True, False], len(rows))
    edges = np.concatenate([rows, rows])
    time = np.where(opens, events.start[edges], events.end[edges])
    # The rows of a thread are in order of time, and of those that begin together the longest comes first.
    order = np.lexsort((edges, opens, time, events.thread[edges]))
    depth = np.cumsum(np.where(opens[order], 1, -1))[opens[order]] - 1
    opened = edges[order][opens[order]]
    by_depth = np.argsort(depth, kind="stable")
    counts = np.bincount(depth)
    return np.split(opened[by_depth], np.cumsum(counts)[:-1])
