"""From chunks to one timeline: ids made global, rows in one canonical order, times from zero.

The order depends on what the events are, never on where they stood in the file or how their
process, thread and stream were numbered.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from findwall.model.events import (
    COLUMN_TYPES,
    DEVICE_KINDS,
    I32,
    Details,
    Events,
    Header,
    Kind,
    MemorySamples,
    ReadQuality,
    Timeline,
)
from findwall.readers.allowance import COPIES_OF_TEXT, ENTRY_BYTES, LONGEST_TEXT, ROW_BYTES
from findwall.readers.torch_trace.begin_end_pairs import pair_edges
from findwall.readers.torch_trace.columns import CHUNK_COLUMNS, DETAIL_FIELDS, Chunk, object_of
from findwall.readers.torch_trace.device_tracks import check_devices, settle_tracks
from findwall.readers.torch_trace.many_names import fold_names
from findwall.readers.torch_trace.row_order import canonical_order, first_seen
from findwall.units import NS_PER_S

_DAY_NS = 24 * 3600 * 10**9
_TABLES = ("name", "thread", "inputs", "launch", "extra")
# Rows of one file held at a time: with them reading and analysing stay below 400 MB. Of more, the first part
# of the recording is read: whatever began before one moment, on the host and on the device. Its hundreds of
# steps say no less than thousands would. Calibrated on the peak of the process tree, benchmarks/ingest.py.
MOST_ROWS = 1_500_000
LATER = "later than what was read"


class Assembler:
    """Takes chunks as they come; `finish` makes the timeline."""

    def __init__(self) -> None:
        self._columns: dict[str, list[NDArray[Any]]] = {name: [] for name in CHUNK_COLUMNS}
        self._tables: dict[str, dict[Any, int]] = {name: {} for name in _TABLES}
        self._memory: list[NDArray[np.int64]] = []
        self._labels: dict[tuple[str, str], str] = {}
        self._edges: list[tuple[NDArray[Any], ...]] = []
        self._ignored: Counter[str] = Counter()
        self._damaged: Counter[str] = Counter()
        self.events = 0
        self._repaired = 0
        self._folded: list[str] = []  # notes on names that were too many
        self._new_text = 0  # bytes, of the tables' entries that the last chunk brought
        self._held = 0  # rows
        self._until: int | None = None  # what begins later is not held

    def add(self, chunk: Chunk) -> tuple[int, int]:
        """Take over a chunk's rows, its ids translated; how many it had, and the memory they will take: less
        than nothing where rows had to go."""
        rows, before = len(chunk.columns["start"]) + chunk.rows_beside, self._held
        if self._until is not None:
            self._ignored[LATER] += chunk.keep_before(self._until)
        entries = self._take_over(chunk)
        if self._held > MOST_ROWS:
            self._shorten()
        return rows, ROW_BYTES * (
            self._held - before
        ) + ENTRY_BYTES * entries + COPIES_OF_TEXT * self._new_text

    def _shorten(self) -> None:
        """Hold what began in the first half of what is held."""
        starts = np.concatenate(self._columns["start"] or [np.empty(0, np.int64)])
        times = np.concatenate(
            [starts, *(part[0] for part in self._edges), *(part[0] for part in self._memory)]
        )
        until = self._until = max(
            int(np.partition(times, len(times) // 2)[len(times) // 2]), int(times.min()) + 1
        )
        inside = [part < until for part in self._columns["start"]]
        for name, parts in self._columns.items():
            self._columns[name] = [part[rows] for part, rows in zip(parts, inside, strict=True)]
        self._edges = [tuple(column[part[0] < until] for column in part) for part in self._edges]
        self._memory = [part[:, part[0] < until] for part in self._memory]
        held = int((times < until).sum())
        self._ignored[LATER] += self._held - held
        self._held = held

    def _take_over(self, chunk: Chunk) -> int:
        """The chunk's rows beside the others; how many entries the tables grew by."""
        entries, self._new_text = sum(map(len, self._tables.values())) + len(self._labels), 0
        tables: dict[str, list[Any]] = {
            "name": [name[:LONGEST_TEXT] for name in chunk.names],
            "thread": chunk.threads,
            "inputs": chunk.inputs,
            "launch": chunk.launch,
            "extra": chunk.extra,
        }
        translations = {name: self._translation(name, table) for name, table in tables.items()}
        for name, column in chunk.columns.items():
            if name in translations:
                column = translations[name][column]
            self._columns[name].append(column)
        if chunk.edges is not None:
            edges = chunk.edges
            thread, name_ids = translations["thread"][edges.thread], translations["name"][edges.name]
            self._edges.append((edges.time, thread, name_ids, edges.kind, edges.begins))
        if chunk.memory.shape[1]:
            chunk.memory[-1] = translations["thread"][chunk.memory[-1]]
            self._memory.append(chunk.memory)
        for pid, tid, label in chunk.labels:
            self._labels[pid, tid] = max(label, self._labels.get((pid, tid), ""))
        self.events += chunk.events
        self._ignored.update(chunk.ignored)
        self._damaged.update(chunk.damaged)
        self._repaired += chunk.repaired
        self._held += len(chunk.columns["start"]) + chunk.rows_beside
        return sum(map(len, self._tables.values())) + len(self._labels) - entries

    def _translation(self, name: str, entries: list[Any]) -> I32:
        """From a chunk's ids to ours; the last place answers for -1, "nothing recorded"."""
        table = self._tables[name]
        known = len(table)
        ids = [table.setdefault(entry, len(table)) for entry in entries]
        if len(table) > known:
            self._new_text += sum(len(entry) for entry, at in zip(entries, ids, strict=True) if at >= known)
        return np.array([*ids, -1], np.int32)

    def finish(self, path: str, header: Header, quality: ReadQuality) -> Timeline:
        """Sort, number, shift. The assembler is empty afterwards."""
        self._join_pairs()
        columns = self._take_columns()
        self._drop_far(columns)
        origin = self._origin(columns)
        names, details, threads, renumbered = self._sort(columns)
        check_devices(path, columns["device"])
        processes, thread_rows, events = _with_processes(columns, threads)
        memory = self._memory_samples(origin, renumbered)
        quality.events, quality.kept = self.events, len(events) + (0 if memory is None else len(memory.time))
        quality.ignored, quality.repaired = dict(sorted(self._ignored.items())), self._repaired
        quality.damaged = sum(self._damaged.values())
        quality.notes += _notes(events, quality, self._damaged) + self._folded
        if self._until is not None:
            seconds = (self._until - origin) / NS_PER_S
            quality.notes.append(
                f"The recording is long: {quality.kept} of {quality.events} events are looked at, those of "
                f"its first {seconds:.3g} s."
            )
        return Timeline(
            path=path,
            events=events,
            names=names,
            processes=processes,
            threads=thread_rows,
            details=details,
            header=_completed(header, events, memory, origin),
            quality=quality,
            memory=memory,
            thread_names={
                index: self._labels[thread]
                for index, thread in enumerate(threads)
                if self._labels.get(thread)
            },
        )

    def _join_pairs(self) -> None:
        """Begin and end entries become complete rows."""
        if not self._edges:
            return
        columns = [np.concatenate(parts) for parts in zip(*self._edges, strict=True)]
        rows, opened, closed = pair_edges(*columns)
        self._ignored.update({"B": opened - len(rows["start"]), "E": closed})
        self._ignored = +self._ignored
        for name in CHUNK_COLUMNS:
            dtype = COLUMN_TYPES[name]
            filled = rows[name] if name in rows else np.full(len(rows["start"]), -1, dtype)
            self._columns[name].append(filled.astype(dtype, copy=False))

    def _take_columns(self) -> dict[str, NDArray[Any]]:
        """One array a column; the parts are let go one column at a time, so memory never doubles."""
        joined = {}
        for name in CHUNK_COLUMNS:
            parts = self._columns.pop(name)
            joined[name] = np.concatenate(parts) if parts else np.empty(0, COLUMN_TYPES[name])
            parts.clear()
        return joined

    def _drop_far(self, columns: dict[str, NDArray[Any]]) -> None:
        """One broken timestamp would stretch the span by years: no trace is longer than a day."""
        start, end = columns["start"], columns["end"]
        if len(start) == 0:
            return
        middle = np.partition(start, len(start) // 2)[len(start) // 2]
        near = (np.abs(start - middle) <= _DAY_NS) & (end - start <= _DAY_NS)
        if near.all():
            return
        self._damaged["more than a day away from the rest"] += int((~near).sum())
        for name in columns:
            columns[name] = columns[name][near]

    def _origin(self, columns: dict[str, NDArray[Any]]) -> int:
        origin = int(columns["start"].min()) if len(columns["start"]) else 0
        columns["start"] -= origin
        columns["end"] -= origin
        return origin

    def _sort(
        self, columns: dict[str, NDArray[Any]]
    ) -> tuple[list[str], Details, list[tuple[str, str]], I32]:
        """Rows into canonical order, then every table in the order its entries first appear; the new number
        of each thread."""
        tables = {name: list(table) for name, table in self._tables.items()}
        self._tables.clear()
        for name in DETAIL_FIELDS:
            columns[name], tables[name] = _as_objects(name, columns[name], tables[name])
        self._folded = fold_names(columns, tables["name"])
        settle_tracks(columns, tables["thread"])
        order = canonical_order(columns, tables)
        for name in columns:
            columns[name] = columns[name][order]
        del order
        renumbered = np.full(len(tables["thread"]) + 1, -1, np.int32)
        for name in _TABLES:
            columns[name], kept = first_seen(columns[name], len(tables[name]))
            if name == "thread":
                renumbered[kept] = np.arange(len(kept))
            tables[name] = [tables[name][index] for index in kept]
        details = Details(tables["inputs"], tables["launch"], tables["extra"])
        return tables["name"], details, tables["thread"], renumbered

    def _memory_samples(self, origin: int, renumbered: I32) -> MemorySamples | None:
        """In the order of time. Beside a device's allocations the host's say nothing of it."""
        if not self._memory:
            return None
        joined = np.concatenate(self._memory, axis=1)
        of_host = joined[1] < 0
        if of_host.any() and not of_host.all():
            self._ignored["i"] += int(of_host.sum())
            joined = joined[:, ~of_host]
        joined[6] = renumbered[joined[6]]
        joined = joined[:, np.lexsort(joined[::-1])]
        joined[0] -= origin
        near = np.abs(joined[0]) <= _DAY_NS
        if not near.all():
            self._damaged["more than a day away from the rest"] += int((~near).sum())
        time, device, allocated, reserved, address, size, thread = joined[:, near]
        return MemorySamples(
            time,
            device.astype(np.int32),
            allocated,
            reserved,
            address.astype(np.uint64),
            size,
            thread.astype(np.int32),
        )


def _as_objects(name: str, ids: I32, keys: list[bytes]) -> tuple[I32, list[bytes]]:
    """Keys made objects, each once; equal ones may have been written with other spaces between."""
    objects: dict[bytes, int] = {}
    numbers = []
    for key in keys:
        made = object_of(name, key)
        numbers.append(objects.setdefault(made, len(objects)) if made else -1)
    return np.array([*numbers, -1], np.int32)[ids], list(objects)


def _with_processes(
    columns: dict[str, NDArray[Any]], threads: list[tuple[str, str]]
) -> tuple[list[str], list[tuple[int, str]], Events]:
    """A thread's process is the same for all its rows."""
    numbers: dict[str, int] = {}
    of_thread = np.array([numbers.setdefault(pid, len(numbers)) for pid, _ in threads], np.int32)
    columns["process"] = of_thread[columns["thread"]] if len(threads) else np.empty(0, np.int32)
    rows = [(numbers[pid], tid) for pid, tid in threads]
    return list(numbers), rows, Events(**columns)


def _completed(header: Header, events: Events, memory: MemorySamples | None, origin: int) -> Header:
    """What the header does not say, the events may show; the base becomes the time of our zero."""
    recorded = bool((events.kind == Kind.OP).any())
    shapes = bool((events.inputs >= 0).any())
    stacks = bool((events.kind == Kind.PYTHON).any())
    return replace(
        header,
        shapes=shapes or header.shapes or (False if recorded else None),
        stacks=stacks or header.stacks or (False if recorded else None),
        memory=memory is not None or header.memory or (False if recorded else None),
        base_time_ns=header.base_time_ns + origin,
    )


def _notes(events: Events, quality: ReadQuality, damaged: Counter[str]) -> list[str]:
    notes = []
    if quality.damaged:
        reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(damaged.items()))
        notes.append(f"{quality.damaged} of {quality.events} events were left out as damaged: {reasons}.")
    if quality.repaired:
        notes.append(f"{quality.repaired} fields of events could not be read and count as missing.")
    repeated, device_rows = _repeated_device_rows(events)
    if repeated:
        notes.append(f"{repeated} of {device_rows} device events appear more than once.")
    return notes


def _repeated_device_rows(events: Events) -> tuple[int, int]:
    """Rows of one device that are the same in everything: a file merged with itself."""
    rows = np.flatnonzero(events.is_kind(*DEVICE_KINDS))
    columns = (events.start, events.end, events.name, events.device, events.stream, events.correlation)
    same = np.ones(max(len(rows) - 1, 0), np.bool_)
    for column in columns:
        values = column[rows]
        same &= values[1:] == values[:-1]
    graph = events.graph_node[rows]
    return int((same & (graph[1:] == graph[:-1])).sum()), len(rows)
