"""From the decoded entries of one block to columns, with the text of the block interned.

This runs once an event in the whole file, so it goes column by column and leaves the loops to
`map` and numpy. The order of rows inside a chunk has no meaning: the timeline is sorted at the end.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import compress
from typing import Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from findwall.model.events import COLUMN_TYPES, I32, U8, Bool, Kind
from findwall.model.intervals import I64
from findwall.readers.torch_trace.categories import KIND_OF, RANGE_NAME, SKIP
from findwall.readers.torch_trace.entries import (
    ABSENT,
    PHASE_OF,
    Args,
    Begin,
    Complete,
    End,
    Entry,
    Instant,
    Label,
)
from findwall.readers.torch_trace.timestamps import to_nanoseconds

_HOST = (Kind.OP, Kind.ANNOTATION)
_DEVICE = (Kind.KERNEL, Kind.MEMCPY, Kind.MEMSET, Kind.DEVICE_ANNOTATION, Kind.SYNC)
# Which rows carry the same arguments: 0 host, 1 calls and frames, 2 device; SKIP (-1) has the last place.
_GROUP_OF = np.array([0 if k in _HOST else 2 if k in _DEVICE else 1 for k in Kind] + [-1], np.int8)
CHUNK_COLUMNS = tuple(name for name in COLUMN_TYPES if name != "process")  # a thread knows its process

Kinds = NDArray[np.int16]
_Kind = TypeVar("_Kind")
_NO_ARGS = Args()
_INT64 = np.iinfo(np.int64)
MEMORY = "[memory]"  # how the profiler names what the allocator does
_SEPARATOR = b"\0"  # stands in no JSON text
_KEY = _SEPARATOR.join  # one bytes object to look up, several times quicker than a tuple of them
_INPUTS = ("dims", "dims", "types", "strides", "concrete")  # the first two: new and old spelling
_LAUNCH = ("grid", "block", "shared_memory", "registers")
_EXTRA = (
    "collective",
    "in_elements",
    "out_elements",
    "group_size",
    "group_name",
    "dtype",
    "call_stack",
    "module",
    "kernel",
)
DETAIL_FIELDS = {"inputs": _INPUTS, "launch": _LAUNCH, "extra": _EXTRA}
_EMPTY_VALUES = (b"", b'""', b"null")


class Edges(msgspec.Struct):
    """Begin and end entries: two halves of a row, joined when all of them are known."""

    time: I64
    thread: I32
    name: I32
    kind: U8
    begins: Bool

    def take(self, rows: Bool) -> Edges:
        return Edges(*[getattr(self, name)[rows] for name in self.__struct_fields__])


class Chunk(msgspec.Struct):
    """The rows of one block. Ids point into the chunk's own tables."""

    columns: dict[str, NDArray[Any]]
    names: list[str]
    threads: list[tuple[str, str]]  # (pid, tid) as text
    inputs: list[bytes]  # keys, as `object_of` takes them
    launch: list[bytes]
    extra: list[bytes]
    memory: NDArray[np.int64]  # a row a column of MemorySamples
    labels: list[tuple[str, str, str]] = msgspec.field(default_factory=list)  # pid, tid, thread name
    edges: Edges | None = None
    events: int = 0
    ignored: dict[str, int] = msgspec.field(default_factory=dict)
    damaged: dict[str, int] = msgspec.field(default_factory=dict)  # reason -> count
    repaired: int = 0

    def keep_before(self, moment: int) -> int:
        """Only what begins before this moment; how many entries went."""
        went = 0
        inside = self.columns["start"] < moment
        if not inside.all():
            went += int((~inside).sum())
            self.columns = {name: column[inside] for name, column in self.columns.items()}
        inside = self.memory[0] < moment
        if not inside.all():
            went += int((~inside).sum())
            self.memory = self.memory[:, inside]
        if self.edges is not None:
            inside = self.edges.time < moment
            went += int((~inside).sum())
            self.edges = self.edges.take(inside)
        if went and len(self.columns["start"]) + self.rows_beside == 0:
            self.names, self.threads, self.inputs, self.launch, self.extra = [], [], [], [], []
        return went

    @property
    def rows_beside(self) -> int:
        return int(self.memory.shape[1]) + (0 if self.edges is None else len(self.edges.time))


class _Table(defaultdict[Any, int]):
    """Distinct values in order of arrival; looking one up gives its number."""

    def __init__(self) -> None:
        super().__init__()
        self.default_factory = self.__len__

    def ids(self, keys: Iterable[Any], count: int) -> I32:
        return np.fromiter(map(self.__getitem__, keys), np.int32, count)


class ChunkBuilder:
    """Collects the rows of one block kind by kind."""

    def __init__(self) -> None:
        self.names, self.threads = _Table(), _Table()
        self.inputs, self.launch, self.extra = _Table(), _Table(), _Table()
        self.parts: list[dict[str, NDArray[Any]]] = []
        self.damaged: Counter[str] = Counter()
        self.repaired = 0

    def add_host(self, rows: list[Complete], kinds: Kinds) -> None:
        """Operators and ranges: what they were given, and which backward belongs to which forward."""
        args = [row.args or _NO_ARGS for row in rows]
        part = self._shared(rows, kinds)
        part["external"] = self._ints([a.external for a in args])
        part["sequence"] = self._ints([a.sequence for a in args])
        keys = [_KEY((a.dims, a.dims_old, a.types, a.strides, a.concrete)) for a in args]
        part["inputs"] = self.inputs.ids(keys, len(rows))
        marked = [
            a.collective is not ABSENT or a.call_stack is not ABSENT or a.module is not ABSENT for a in args
        ]
        part["extra"] = self._extras(args, marked)
        self._keep(rows, part)

    def add_calls(self, rows: list[Complete], kinds: Kinds) -> None:
        """Runtime calls, Python frames, the profiler's own rows."""
        args = [row.args or _NO_ARGS for row in rows]
        part = self._shared(rows, kinds)
        part["correlation"] = self._ints([a.correlation for a in args])
        part["external"] = self._external(args)
        part["extra"] = self._extras(args, [a.kernel is not ABSENT for a in args])
        self._keep(rows, part)

    def add_device(self, rows: list[Complete], kinds: Kinds) -> None:
        """Whatever ran, or waited, on a device."""
        args = [row.args or _NO_ARGS for row in rows]
        part = self._shared(rows, kinds)
        part["correlation"] = self._ints([a.correlation for a in args])
        part["external"] = self._external(args)
        part["device"] = _within_32_bits(self._ints([a.device for a in args]))
        part["stream"] = self._ints([a.stream for a in args])
        part["nbytes"] = self._ints([a.nbytes for a in args])
        part["graph_node"] = self._ints([a.graph_node for a in args])
        keys = [_KEY((a.grid, a.block, a.shared_memory, a.registers)) for a in args]
        part["launch"] = self.launch.ids(keys, len(rows))
        part["extra"] = self._extras(args, [a.collective is not ABSENT for a in args])
        self._keep(rows, part)

    def add_edges(self, rows: list[Complete]) -> Edges | None:
        if not rows:
            return None
        time, readable = to_nanoseconds([row.ts for row in rows])
        self._count_damaged(readable)
        kinds = np.fromiter(map(KIND_OF.__getitem__, [row.cat for row in rows]), np.int16, len(rows))
        shared = self._shared(rows, kinds)
        begins = np.fromiter((type(row) is Begin for row in rows), np.bool_, len(rows))
        columns: list[NDArray[Any]] = [time, shared["thread"], shared["name"], shared["kind"], begins]
        return Edges(*[column[readable] for column in columns])

    def _shared(self, rows: list[Complete], kinds: Kinds) -> dict[str, NDArray[Any]]:
        count = len(rows)
        name = self.names.ids([row.name for row in rows], count)
        tracks = zip([row.pid for row in rows], [row.tid for row in rows], strict=True)
        thread = self.threads.ids(tracks, count)
        return {"name": name, "kind": kinds.astype(np.uint8), "thread": thread}

    def _ints(self, values: list[int]) -> I64:
        try:
            return np.array(values, np.int64)
        except OverflowError:  # an id beyond 64 bits is no id: the field becomes missing
            fitting = [value if _INT64.min <= value <= _INT64.max else -1 for value in values]
            self.repaired += sum(a is not b for a, b in zip(values, fitting, strict=True))
            return np.array(fitting, np.int64)

    def _external(self, args: list[Args]) -> I64:
        new, old = self._ints([a.external for a in args]), self._ints([a.external_old for a in args])
        either: I64 = np.where(new >= 0, new, old)
        return either

    def _extras(self, args: list[Args], marked: list[bool]) -> I32:
        ids = np.full(len(args), -1, np.int32)
        rows = np.flatnonzero(marked)
        keys = [_KEY([getattr(args[row], name) for name in _EXTRA]) for row in rows]
        ids[rows] = self.extra.ids(keys, len(rows))
        return ids

    def _keep(self, rows: list[Complete], part: dict[str, NDArray[Any]]) -> None:
        start, start_known = to_nanoseconds([row.ts for row in rows])
        length, length_known = to_nanoseconds([row.dur for row in rows])
        good = start_known & length_known & (length >= 0)
        part["start"], part["end"] = start, start + length
        if not good.all():
            self._count_damaged(start_known & length_known, length >= 0)
            part = {name: column[good] for name, column in part.items()}
        self.parts.append(part)

    def _count_damaged(self, readable: Bool, forward: Bool | None = None) -> None:
        unreadable = int((~readable).sum())
        backward = 0 if forward is None else int((readable & ~forward).sum())
        if unreadable:
            self.damaged["no readable time"] += unreadable
        if backward:
            self.damaged["negative duration"] += backward


def build_chunk(entries: Sequence[Entry]) -> Chunk:
    """Columns for the decoded entries of one block."""
    counts = Counter(map(type, entries))
    builder = ChunkBuilder()
    skipped = _add_complete(builder, _of(Complete, entries, counts))
    edges = builder.add_edges(_of(Begin, entries, counts) + _of(End, entries, counts))
    labels = _of(Label, entries, counts)
    memory = _memory_samples(builder, _of(Instant, entries, counts))
    ignored = {phase: counts[kind] for kind, phase in PHASE_OF.items()}
    ignored.update({"X Trace": skipped, "i": counts[Instant] - memory.shape[1], "M": len(labels)})
    return Chunk(
        columns=_joined(builder),
        names=list(builder.names),
        threads=[(str(pid), str(tid)) for pid, tid in builder.threads],
        inputs=list(builder.inputs),
        launch=list(builder.launch),
        extra=list(builder.extra),
        memory=memory,
        labels=[_label(entry) for entry in labels if entry.name == "thread_name"],
        edges=edges,
        events=len(entries),
        ignored={reason: count for reason, count in ignored.items() if count},
        damaged=dict(builder.damaged),
        repaired=builder.repaired,
    )


def _of(kind: type[_Kind], entries: Sequence[Entry], counts: Counter[type]) -> list[_Kind]:
    return [entry for entry in entries if type(entry) is kind] if counts[kind] else []


def _add_complete(builder: ChunkBuilder, rows: list[Complete]) -> int:
    """Sort the rows into the groups that carry the same arguments; returns how many are no events."""
    if not rows:
        return 0
    kinds = np.fromiter(map(KIND_OF.__getitem__, [row.cat for row in rows]), np.int16, len(rows))
    group = _GROUP_OF[kinds]
    for number, add in enumerate((builder.add_host, builder.add_calls, builder.add_device)):
        mask = group == number
        if mask.any():
            add(list(compress(rows, mask.tolist())), kinds[mask])
    return int((kinds == SKIP).sum())


def _joined(builder: ChunkBuilder) -> dict[str, NDArray[Any]]:
    """One array a column; what a group of rows does not carry is -1."""
    columns: dict[str, NDArray[Any]] = {}
    for name in CHUNK_COLUMNS:
        dtype = COLUMN_TYPES[name]
        arrays = [
            part[name].astype(dtype, copy=False) if name in part else np.full(len(part["start"]), -1, dtype)
            for part in builder.parts
        ]
        columns[name] = np.concatenate(arrays) if arrays else np.empty(0, dtype)
    is_range = np.fromiter((RANGE_NAME.match(name) is not None for name in builder.names), np.bool_)
    if is_range.any():
        columns["kind"][is_range[columns["name"]] & (columns["kind"] == Kind.OP)] = Kind.ANNOTATION
    return columns


def object_of(column: str, key: bytes) -> bytes:
    """One JSON object of the values in a key, in the field names of the model; empty if there are none."""
    names = DETAIL_FIELDS[column]
    values = key.split(_SEPARATOR)
    if len(values) != len(names):
        return b""  # a stray zero byte in one of them: they cannot be told apart
    present = {n: value for n, value in zip(names, values, strict=True) if value not in _EMPTY_VALUES}
    members = [b'"%b":%b' % (name.encode(), value) for name, value in present.items()]
    if not members:
        return b""
    text = msgspec.json.format(b"{%b}" % b",".join(members), indent=-1)
    # Values that were skipped over have not been checked for stray bytes yet.
    return text if text.isascii() else text.decode("utf-8", "replace").encode()


def _memory_samples(builder: ChunkBuilder, instants: list[Instant]) -> NDArray[np.int64]:
    """What the allocator did, each with its totals after it. The host's is no device: -1."""
    found = [entry for entry in instants if entry.name == MEMORY and entry.args is not None]
    time, readable = to_nanoseconds([entry.ts for entry in found])
    values = [
        (
            args.device if args.device_type else -1,
            args.allocated,
            args.reserved,
            args.address & _INT64.max,  # signed or not, as its writer has it
            args.size,
        )
        for args in (entry.args for entry in found)
        if args is not None
    ]
    try:
        table = np.array(values, np.int64).reshape(len(found), 5)
    except OverflowError:
        table, readable = np.zeros((len(found), 5), np.int64), np.zeros(len(found), np.bool_)
    thread = builder.threads.ids([(entry.pid, entry.tid) for entry in found], len(found))
    samples: NDArray[np.int64] = np.column_stack([time, table, thread]).T[:, readable]
    return samples


def _label(entry: Label) -> tuple[str, str, str]:
    return str(entry.pid), str(entry.tid), entry.args.name if entry.args is not None else ""


def _within_32_bits(device: I64) -> I64:
    device[(device < 0) | (device > np.iinfo(np.int32).max)] = -1
    return device


__all__ = ["CHUNK_COLUMNS", "DETAIL_FIELDS", "Chunk", "Edges", "build_chunk", "object_of"]
