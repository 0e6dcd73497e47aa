"""What ran on devices: kernels, whole graphs, copies, memsets, and waits between streams."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from findwall.model.events import I32, Kind
from findwall.model.intervals import I64
from findwall.readers.nsys.database import COPIES, GRAPHS, KERNELS, MEMSETS, SYNCHRONIZATIONS, Database
from findwall.readers.nsys.export_rows import (
    THREAD_BITS,
    TRACK_BITS,
    TRACK_MASK,
    Rows,
    device_rows,
    interned,
    numbered,
)
from findwall.readers.nsys.nsys_names import SYNC_NAMES, WHOLE_GRAPH, copy_name, kernel_name

_SHARED = ("start", "end", "deviceId", "streamId", "correlationId", "globalPid", "contextId")
_LAUNCH = ("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ")
# A launch's figures share two integers, as wide as the hardware lets each be: fewer columns are read quicker.
_GRID = "((gridX & 2147483647) << 32) | ((gridY & 65535) << 16) | (gridZ & 65535)"
_BLOCK = "((blockX & 2047) << 48) | ((blockY & 2047) << 37) | ((blockZ & 127) << 30)"
_REGISTERS = "((registersPerThread & 511) << 21)"
_MEMORY = "((staticSharedMemory + dynamicSharedMemory) & 2097151)"


def device_tables(database: Database) -> list[Rows]:
    """Everything that keeps a device busy, table by table; empty tables give nothing."""
    readers = (_kernels, _graphs, _copies, _memsets)
    return [rows for read in readers if (rows := read(database)) is not None and len(rows)]


def _shared(database: Database, table: str, more: list[str]) -> list[I64] | None:
    """The columns that all of these tables have; what an older one has not is -1."""
    if not database.has(table, "start", "end", "deviceId"):
        return None
    names = [name if database.has(table, name) else "-1" for name in _SHARED]
    track = f"(({names[2]} & 65535) << {TRACK_BITS}) | ({names[3]} & 4294967295)"
    return database.integers(table, [*names[:2], track, *names[4:], *more])


def _rows(columns: list[I64], kind: Kind, name: I32, names: list[str]) -> Rows:
    start, end, track, correlation, process, context = columns[:6]
    known = np.where(process >= 0, process >> THREAD_BITS, -1)
    rows = device_rows(start, end, kind, name, names, known, track)
    rows.columns |= {"correlation": correlation, "context": context}
    return rows


def _kernels(database: Database) -> Rows | None:
    named = next((name for name in ("demangledName", "shortName") if database.has(KERNELS, name)), None)
    if named is None:
        return None
    shaped = database.has(KERNELS, *_LAUNCH)
    block = _BLOCK
    block += f" | {_REGISTERS}" if database.has(KERNELS, "registersPerThread") else ""
    block += f" | {_MEMORY}" if database.has(KERNELS, "staticSharedMemory", "dynamicSharedMemory") else ""
    node = "graphNodeId" if database.has(KERNELS, "graphNodeId") else "-1"
    found = _shared(database, KERNELS, [named, node, *([_GRID, block] if shaped else [])])
    if found is None:
        return None
    name, texts = interned(found[6], database.strings(np.unique(found[6]).tolist()))
    rows = _rows(found, Kind.KERNEL, name, [kernel_name(text) for text in texts])
    rows.columns["graph_node"] = found[7]
    if shaped:
        rows.columns["launch"], rows.launch = _launches(found[8], found[9])
    return rows


def _launches(grid: I64, block: I64) -> tuple[I32, list[bytes]]:
    grids, of_grid = numbered(grid)
    blocks, of_block = numbered(block)
    pairs, of_row = numbered(of_grid.astype(np.int64) * len(blocks) + of_block)
    keys = [_launch(int(grids[one // len(blocks)]), int(blocks[one % len(blocks)])) for one in pairs.tolist()]
    return of_row, keys


def _launch(grid: int, block: int) -> bytes:
    """A launch as a key of the table of them: grid, block, shared memory, registers."""
    if grid < 0 or block < 0:
        return b"\0\0\0"
    blocks = [grid >> 32, (grid >> 16) & 65535, grid & 65535]
    threads = [(block >> 48) & 2047, (block >> 37) & 2047, (block >> 30) & 127]
    return b"%b\0%b\0%d\0%d" % (
        str(blocks).encode(),
        str(threads).encode(),
        block & 2097151,
        (block >> 21) & 511,
    )


def _graphs(database: Database) -> Rows | None:
    """A whole graph as one row: the device is busy with it, and what it holds is not recorded."""
    found = _shared(database, GRAPHS, [])
    if found is None:
        return None
    return _rows(found, Kind.KERNEL, np.zeros(len(found[0]), np.int32), [WHOLE_GRAPH])


def _copies(database: Database) -> Rows | None:
    kinds = [name if database.has(COPIES, name) else "-1" for name in ("copyKind", "srcKind", "dstKind")]
    number = "bytes" if database.has(COPIES, "bytes") else "-1"
    node = "graphNodeId" if database.has(COPIES, "graphNodeId") else "-1"
    # One more than each, so that an empty one is zero.
    packed = "((IFNULL({}, -1) + 1) << 10) | ((IFNULL({}, -1) + 1) << 5) | (IFNULL({}, -1) + 1)".format(
        *kinds
    )
    found = _shared(database, COPIES, [packed, number, node])
    if found is None:
        return None
    distinct, name = numbered(found[6])
    names = [copy_name((one >> 10) - 1, ((one >> 5) & 31) - 1, (one & 31) - 1) for one in distinct.tolist()]
    rows = _rows(found, Kind.MEMCPY, name, names)
    rows.columns |= {"nbytes": found[7], "graph_node": found[8]}
    return rows


def _memsets(database: Database) -> Rows | None:
    number = "bytes" if database.has(MEMSETS, "bytes") else "-1"
    node = "graphNodeId" if database.has(MEMSETS, "graphNodeId") else "-1"
    found = _shared(database, MEMSETS, [number, node])
    if found is None:
        return None
    rows = _rows(found, Kind.MEMSET, np.zeros(len(found[0]), np.int32), ["Memset (Device)"])
    rows.columns |= {"nbytes": found[6], "graph_node": found[7]}
    return rows


def waits(database: Database, device: list[Rows]) -> Rows | None:
    """Waits of streams, events and the host. Their device may be wrong: that of their context is right."""
    kind = "syncType" if database.has(SYNCHRONIZATIONS, "syncType") else "0"
    found = _shared(database, SYNCHRONIZATIONS, [kind])
    if found is None:
        return None
    used = {
        (process, context): number
        for rows in device
        for process, context, number in zip(*(column.tolist() for column in _distinct(rows)), strict=True)
    }
    process, context = found[4] >> THREAD_BITS, found[5]
    pairs, of_row = np.unique(np.stack([process, context]), axis=1, return_inverse=True)
    right = np.array([used.get((one, other), -1) for one, other in pairs.T.tolist()], np.int64)
    right = right[of_row.reshape(-1)]
    known = right >= 0
    found = [column[known] for column in found]
    found[2] = (right[known] << TRACK_BITS) | (found[2] & TRACK_MASK)
    name, names = _named(found[6], SYNC_NAMES)
    return _rows(found, Kind.SYNC, name, names)


def _distinct(rows: Rows) -> NDArray[np.int64]:
    """(process, context, device) of the rows, each once."""
    columns = [rows.process, rows.columns["context"], rows.columns["device"]]
    found: NDArray[np.int64] = np.unique(np.stack(columns), axis=1)
    return found


def _named(ids: I64, names: dict[int, str]) -> tuple[I32, list[str]]:
    distinct, of_row = numbered(ids)
    return of_row, [names.get(int(one), names[0]) for one in distinct]
