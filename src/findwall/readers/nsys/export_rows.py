"""Rows of an export as columns, whatever table they come from, and those of one process among them."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from findwall.model.events import COLUMN_TYPES, I32, Bool, Kind
from findwall.model.intervals import I64
from findwall.readers.torch_trace.columns import CHUNK_COLUMNS, Chunk

# A global id holds, from its highest bits down, the machine, its virtual machine, the process and the thread.
THREAD_BITS, PROCESS_BITS = 24, 24
THREAD_MASK = (1 << THREAD_BITS) - 1
PROCESS_MASK = (1 << PROCESS_BITS) - 1
TRACK_BITS = 32  # of a stream's number under its device's
TRACK_MASK = (1 << TRACK_BITS) - 1
NO_MEMORY: NDArray[np.int64] = np.empty((4, 0), np.int64)


class Rows(msgspec.Struct):
    """What one table gave. Columns that it does not have are -1 everywhere."""

    process: I64  # the upper bits of the global id; -1 unknown
    columns: dict[str, NDArray[Any]]
    names: list[str]
    threads: list[tuple[str, str]]
    inputs: list[bytes] = msgspec.field(default_factory=list)
    launch: list[bytes] = msgspec.field(default_factory=list)
    extra: list[bytes] = msgspec.field(default_factory=list)
    ignored: dict[str, int] = msgspec.field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.process)

    def take(self, mask: Bool) -> Rows:
        columns = {name: column[mask] for name, column in self.columns.items()}
        return msgspec.structs.replace(self, process=self.process[mask], columns=columns)

    def is_readable(self) -> Bool:
        """Rows that have a time, and those of a device its number."""
        start, end = self.columns["start"], self.columns["end"]
        good: Bool = (start >= 0) & (end >= start)
        return good & (self.columns["device"] >= 0) if "device" in self.columns else good

    def chunk(self, process: int) -> Chunk:
        """The rows of one process, as the assembler of timelines takes them."""
        mine = self.process == process
        good = self.is_readable()[mine]
        mine[mine] = good
        count = int(mine.sum())
        columns = {}
        for name in CHUNK_COLUMNS:
            dtype = COLUMN_TYPES[name]
            given = self.columns.get(name)
            columns[name] = (
                np.full(count, -1, dtype) if given is None else given[mine].astype(dtype, copy=False)
            )
        damaged = len(good) - count
        return Chunk(
            columns=columns,
            names=self.names,
            threads=self.threads,
            inputs=self.inputs,
            launch=self.launch,
            extra=self.extra,
            memory=NO_MEMORY,
            events=len(good) + sum(self.ignored.values()),
            ignored=self.ignored,
            damaged={"no readable time or device": damaged} if damaged else {},
        )


def host_rows(
    start: I64, end: I64, kind: Kind | NDArray[Any], name: I32, names: list[str], thread: I64
) -> Rows:
    """Rows of the host, each on the thread of its global id."""
    distinct, of_row = numbered(thread)
    columns = {"start": start, "end": end, "kind": _filled(kind, len(start)), "name": name, "thread": of_row}
    return Rows(thread >> THREAD_BITS, columns, names, [thread_of(int(one)) for one in distinct])


def device_rows(
    start: I64, end: I64, kind: Kind, name: I32, names: list[str], process: I64, track: I64
) -> Rows:
    """Rows of a device, each on the track of its stream: the stream's number under the device's."""
    distinct, of_row = numbered(track)
    columns = {"start": start, "end": end, "kind": _filled(kind, len(start)), "name": name, "thread": of_row}
    columns |= {"device": track >> TRACK_BITS, "stream": track & TRACK_MASK}
    return Rows(
        process,
        columns,
        names,
        [(str(one >> TRACK_BITS), str(one & TRACK_MASK)) for one in distinct.tolist()],
    )


def numbered(values: I64) -> tuple[I64, I32]:
    """The distinct values in order, and the place of each value among them. Few of them are quickly found."""
    distinct: I64 = np.unique(values)
    return distinct, np.searchsorted(distinct, values).astype(np.int32)


def thread_of(global_id: int) -> tuple[str, str]:
    return str(process_number(global_id >> THREAD_BITS)), str(global_id & THREAD_MASK)


def process_number(process: int) -> int:
    """The number that the system gave a process."""
    return process & PROCESS_MASK


def _filled(kind: Kind | NDArray[Any], count: int) -> NDArray[Any]:
    return kind if isinstance(kind, np.ndarray) else np.full(count, int(kind), np.uint8)


def interned(ids: I64, texts: dict[int, str]) -> tuple[I32, list[str]]:
    """Ids of strings as places in a list of them; a string that is missing is called so."""
    distinct, of_row = numbered(ids)
    return of_row, [texts.get(int(one), "(no name)") for one in distinct]
