"""Timelines written out as the tables of an Nsight Systems export, to be read back.

What such an export cannot hold is left out: number formats, strides, Python frames, the profiler's own steps.
Names are spelled as Nsight Systems spells them.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from findwall.model.events import Inputs, Kind, Timeline

SCHEMA = """
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE META_DATA_EXPORT (name TEXT NOT NULL, value TEXT);
CREATE TABLE META_DATA_CAPTURE (name TEXT NOT NULL, value TEXT);
CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER, utcTime TEXT, localTime TEXT);
CREATE TABLE TARGET_INFO_GPU (id INTEGER, name TEXT, totalMemory INTEGER, smCount INTEGER);
CREATE TABLE TARGET_INFO_CUDA_DEVICE (gpuId INTEGER, cudaId INTEGER, pid INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER,
  contextId INTEGER, greenContextId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER,
  demangledName INTEGER, shortName INTEGER, registersPerThread INTEGER, gridX INTEGER, gridY INTEGER,
  gridZ INTEGER, blockX INTEGER, blockY INTEGER, blockZ INTEGER, staticSharedMemory INTEGER,
  dynamicSharedMemory INTEGER, graphNodeId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER,
  contextId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER, bytes INTEGER,
  copyKind INTEGER, srcKind INTEGER, dstKind INTEGER, graphNodeId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER,
  contextId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER, bytes INTEGER,
  graphNodeId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER,
  globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER);
CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER,
  category INTEGER, color INTEGER, text TEXT, globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER,
  domainId INTEGER, jsonText TEXT, binaryData TEXT);
CREATE TABLE PROFILER_OVERHEAD (start INTEGER NOT NULL, end INTEGER NOT NULL, globalTid INTEGER,
  nameId INTEGER, overheadType INTEGER);
"""
BEGIN_NS = 1_700_000_000 * 10**9
MACHINE = 1 << 48
_DIRECTIONS = {"HtoD": 1, "DtoH": 2, "DtoD": 8, "PtoP": 10}
_MEMORY = {"Pageable": 0, "Pinned": 1, "Device": 2}
_OVERHEAD = {"Command Buffer Full": 8, "Lazy Function Loading": 7, "Buffer Flush": 3}


def global_id(process: int, thread: int = 0) -> int:
    return MACHINE | process << 24 | thread


class Export:
    """An export under construction."""

    def __init__(self, path: Path) -> None:
        self.connection = sqlite3.connect(path)
        self.connection.executescript(SCHEMA)
        self._strings: dict[str, int] = {}
        self.connection.execute("INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (?, '', '')", (BEGIN_NS,))
        self.connection.execute("INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_SCHEMA_VERSION', '3.25.0')")

    def string(self, value: str) -> int:
        if value not in self._strings:
            self._strings[value] = len(self._strings) + 17
            self.connection.execute("INSERT INTO StringIds VALUES (?, ?)", (self._strings[value], value))
        return self._strings[value]

    def insert(self, table: str, rows: Iterable[Sequence[Any]]) -> None:
        listed = list(rows)
        if listed:
            marks = ",".join("?" * len(listed[0]))
            self.connection.executemany(f"INSERT INTO {table} VALUES ({marks})", listed)

    def close(self) -> None:
        self.connection.commit()
        self.connection.close()


def write_export(path: Path, timeline: Timeline, process: int = 4711, steps: str | None = "step {}") -> None:
    """One rank. `steps`: what the job calls its own ranges around steps; None: it has none."""
    export = Export(path)
    add_rank(export, timeline, process, steps)
    export.close()


def add_rank(export: Export, timeline: Timeline, process: int, steps: str | None = "step {}") -> None:
    header = timeline.header
    gpus = [(one.id, one.name, one.total_memory, one.sm_count) for one in header.devices]
    export.insert("TARGET_INFO_GPU", gpus)
    export.insert("TARGET_INFO_CUDA_DEVICE", [(one.id, one.id, process) for one in header.devices])
    tids = _threads(timeline)
    _add_device(export, timeline, process)
    rows = timeline.rows(Kind.RUNTIME).tolist()
    export.insert(
        "CUPTI_ACTIVITY_KIND_RUNTIME", (_call(export, timeline, row, process, tids) for row in rows)
    )
    rows = timeline.rows(Kind.OP, Kind.ANNOTATION).tolist()
    export.insert("NVTX_EVENTS", _ranges(timeline, rows, process, tids, steps))
    rows = timeline.rows(Kind.OVERHEAD).tolist()
    export.insert("PROFILER_OVERHEAD", (_overhead(export, timeline, row, process, tids) for row in rows))


def _threads(timeline: Timeline) -> dict[int, int]:
    """Threads by number; torch's may be larger than an export's 24 bits."""
    return {index: index + 100 for index in range(len(timeline.threads))}


def _times(timeline: Timeline, row: int) -> tuple[int, int]:
    return int(timeline.events.start[row]) + 10**9, int(timeline.events.end[row]) + 10**9


def _or_none(value: Any) -> int | None:
    return int(value) if int(value) >= 0 else None


def _add_device(export: Export, timeline: Timeline, process: int) -> None:
    kernels, copies, memsets = [], [], []
    events, own = timeline.events, global_id(process)
    for row in timeline.rows(Kind.KERNEL, Kind.MEMCPY, Kind.MEMSET).tolist():
        start, end = _times(timeline, row)
        device, stream = int(events.device[row]), int(events.stream[row])
        correlation, node = _or_none(events.correlation[row]), _or_none(events.graph_node[row])
        name, kind = timeline.name_of(row), events.kind[row]
        if kind == Kind.KERNEL:
            named = export.string(nsys_kernel(name)), export.string(_short(name))
            shape = _shape(timeline, row)
            place = (start, end, device, 1, 0, stream, correlation, own)
            kernels.append((*place, *named, *shape, node))
            continue
        place = (start, end, device, 1, stream, correlation, own)
        if kind == Kind.MEMCPY:
            copies.append((*place, _or_none(events.nbytes[row]), *_copy(name), node))
        else:
            memsets.append((*place, _or_none(events.nbytes[row]), node))
    export.insert("CUPTI_ACTIVITY_KIND_KERNEL", kernels)
    export.insert("CUPTI_ACTIVITY_KIND_MEMCPY", copies)
    export.insert("CUPTI_ACTIVITY_KIND_MEMSET", memsets)


def _shape(timeline: Timeline, row: int) -> tuple[int, ...]:
    launch = timeline.launch_of(row)
    grid = (launch.grid if launch else None) or (0, 0, 0)
    block = (launch.block if launch else None) or (0, 0, 0)
    registers = (launch.registers if launch else None) or 0
    return registers, *grid, *block, 0, (launch.shared_memory if launch else None) or 0


def _copy(name: str) -> tuple[int, int | None, int | None]:
    found = re.match(r"Memcpy (\w+) \((\w+) -> (\w+)\)", name)
    if not found:
        return 0, None, None
    return _DIRECTIONS.get(found[1], 0), _MEMORY.get(found[2]), _MEMORY.get(found[3])


def _call(
    export: Export, timeline: Timeline, row: int, process: int, tids: dict[int, int]
) -> tuple[Any, ...]:
    name, thread = timeline.name_of(row), tids[int(timeline.events.thread[row])]
    name = f"{name}_v7000" if name.startswith("cuda") else name
    correlation = _or_none(timeline.events.correlation[row])
    of_driver = int(not name.startswith("cuda"))
    return *_times(timeline, row), of_driver, global_id(process, thread), correlation, export.string(name), 0


def _overhead(
    export: Export, timeline: Timeline, row: int, process: int, tids: dict[int, int]
) -> tuple[Any, ...]:
    name, thread = timeline.name_of(row), tids[int(timeline.events.thread[row])]
    kind = _OVERHEAD.get(name, 1)
    return *_times(timeline, row), global_id(process, thread), export.string(name), kind


def _ranges(
    timeline: Timeline, rows: list[int], process: int, tids: dict[int, int], steps: str | None
) -> list[tuple[Any, ...]]:
    found = []
    for number, row in enumerate(rows):
        text = _text(timeline, row, number + 1, steps)
        if text is None:
            continue
        thread = global_id(process, tids[int(timeline.events.thread[row])])
        place = (*_times(timeline, row), 59, None, None, None)
        found.append((*place, text, thread, None, None, 0, None, None))
    return found


def _text(timeline: Timeline, row: int, number: int, steps: str | None) -> str | None:
    """An op as emit_nvtx writes it."""
    name, sequence = timeline.name_of(row), int(timeline.events.sequence[row])
    if name.startswith("ProfilerStep"):
        return steps.format(name.partition("#")[2]) if steps else None
    text = f"{name}, seq = {sequence}" if sequence >= 0 else name
    sizes = _sizes(timeline.inputs_of(row))
    return f"{text}, op_id = {number}" + (f", sizes = {sizes}" if sizes else "")


def _sizes(inputs: Inputs | None) -> str:
    """Shapes alone; the members of a list one after the other, as if they were arguments."""
    flat: list[Any] = []
    for dims in inputs.dims if inputs is not None else []:
        nested = bool(dims) and all(isinstance(one, list) for one in dims)
        flat.extend(dims if nested else [dims])
    return str(flat) if flat else ""


def nsys_kernel(name: str) -> str:
    """A kernel's name as Nsight Systems demangles it."""
    name = name.replace("(anonymous namespace)", "<unnamed>")
    name = re.sub(r"#(\d+)\}", r" (instance \1)]", name.replace("{lambda", "[lambda"))
    name = re.sub(r"(?<=[<, ])(\d+)ul(?=[,>])", r"(unsigned long)\1", name)
    name = re.sub(r"(?<=[<, ])(\d+)u(?=[,>])", r"(unsigned int)\1", name)
    name = re.sub(r"(?<=[<, ])(-?\d+)(?=[,>])", r"(int)\1", name)
    name = re.sub(r"(?<=[<, ])true(?=[,>])", "(bool)1", name)
    name = re.sub(r"(?<=[<, ])false(?=[,>])", "(bool)0", name)
    return re.sub(r"(?<=[\w>])([*&])", r" \1", name.replace("operator()", "operator ()")).replace("> >", ">>")


def _short(name: str) -> str:
    return re.split(r"[<(]", name.removeprefix("void "))[0].rpartition("::")[2] or "kernel"


def copied(timeline: Timeline) -> int:
    """Device rows, to hold against what was read back."""
    return int(np.sum(timeline.events.is_kind(Kind.KERNEL, Kind.MEMCPY, Kind.MEMSET)))
