"""Sizes of NCCL's messages, where the export holds the payloads of its ranges.

NCCL marks each call with its communicator, peer and number of bytes. A kernel carries what was asked for
between the launch before it and its own.
"""

from __future__ import annotations

import struct
from typing import Any

import msgspec
import numpy as np

from findwall.model.events import I32
from findwall.model.intervals import I64
from findwall.readers.nsys.database import PAYLOADS, RANGES, Database, begin_of, text_of
from findwall.readers.nsys.export_rows import Rows

_HEADER = struct.Struct("<IIIIQQ")  # domain, -, schema, -, bytes of the payload, bytes in all
_SIZE_NAME = "Message size%"
_LONGEST_PAYLOAD = 1 << 12  # bytes of one: NCCL's have dozens
MOST_BYTES = 1 << 48  # of a message: more than any machine holds, so whatever says so is no size
_COLLECTIVE_KERNEL = "nccl"
_RECEIVES = ("ncclRecv",)
_SENDS = ("ncclSend",)


class _Messages(msgspec.Struct, frozen=True):
    """NCCL's calls that say how much they move, by thread and then by time."""

    start: I64
    thread: I64
    nbytes: I64
    receives: I64  # 1: comes in, 0: goes out, -1: both
    name: list[str]


def add_messages(database: Database, device: list[Rows], calls: Rows | None) -> None:
    """Note on NCCL's kernels what they carry; nothing where payloads were not exported."""
    found = _messages(database)
    if found is None or calls is None:
        return
    for rows in device:
        is_nccl = np.array([name.lower().startswith(_COLLECTIVE_KERNEL) for name in rows.names], bool)
        mine = np.flatnonzero(is_nccl[rows.columns["name"]])
        if len(mine):
            _attach(rows, mine, calls, found)


def _messages(database: Database) -> _Messages | None:
    needed = ("start", "globalTid", "domainId", "binaryData")
    if not database.has(RANGES, *needed) or not database.has(
        PAYLOADS, "schemaId", "name", "offset", "domainId"
    ):
        return None
    asked = f"SELECT domainId, schemaId, offset FROM {PAYLOADS} WHERE name LIKE ?"
    offsets = {
        (domain, schema): offset or 0
        for domain, schema, offset in database.rows(asked, [_SIZE_NAME])
        if isinstance(offset, int | None) and (offset or 0) >= 0
    }
    if not offsets:
        return None
    name_id = "textId" if database.has(RANGES, "textId") else "-1"
    text = "text" if database.has(RANGES, "text") else "NULL"
    asked = (
        f"SELECT start, globalTid, SUBSTR(binaryData, 1, {_LONGEST_PAYLOAD}), {name_id}, "
        f"{begin_of(text)} FROM {RANGES} WHERE binaryData IS NOT NULL"
    )
    rows = [
        (start, thread, size, number, label)
        for start, thread, payload, number, label in database.rows(asked)
        if (size := _size(payload, offsets)) is not None
        and isinstance(start, int)
        and isinstance(thread, int)
    ]
    if not rows:
        return None
    texts = database.strings({int(row[3]) for row in rows if isinstance(row[3], int)})
    rows.sort(key=lambda row: (row[1], row[0]))
    names = [text_of(row[4]) if row[4] else texts.get(row[3], "nccl") for row in rows]
    way = [1 if name in _RECEIVES else 0 if name in _SENDS else -1 for name in names]
    columns = [np.array([row[at] for row in rows], np.int64) for at in range(3)]
    return _Messages(columns[0], columns[1], columns[2], np.array(way, np.int64), names)


def _size(payload: Any, offsets: dict[tuple[int, int], int]) -> int | None:
    """The message's bytes, where the payload's schema has them."""
    if not isinstance(payload, bytes) or len(payload) < _HEADER.size:
        return None
    domain, _, schema, _, length, _ = _HEADER.unpack_from(payload)
    at = offsets.get((domain, schema))
    if at is None or at + 8 > length or len(payload) < _HEADER.size + at + 8:
        return None
    size = int.from_bytes(payload[_HEADER.size + at : _HEADER.size + at + 8], "little")
    return size if size <= MOST_BYTES else None


def _attach(rows: Rows, mine: I64, calls: Rows, found: _Messages) -> None:
    launch = _launches(rows, mine, calls)
    known = np.flatnonzero(launch >= 0)
    thread = calls.columns["global"][launch[known]]
    until = calls.columns["end"][launch[known]]
    order = np.lexsort((until, thread))
    extras: dict[bytes, int] = {}
    extra: I32 = np.full(len(rows), -1, np.int32)
    before = (-1, -1)
    for at in order.tolist():
        here = (int(thread[at]), int(until[at]))
        since = before[1] if before[0] == here[0] else -1
        before = here
        first, last = np.searchsorted(found.thread, here[0]), np.searchsorted(found.thread, here[0], "right")
        begin, end = first + np.searchsorted(found.start[first:last], [since, here[1]], "right")
        if begin < end:
            extra[mine[known[at]]] = extras.setdefault(_extra(found, np.arange(begin, end)), len(extras))
    if extras:
        rows.columns["extra"], rows.extra = extra, list(extras)


def _launches(rows: Rows, mine: I64, calls: Rows) -> I64:
    """The call of each of these rows: the one of its process with its id."""
    found: I64 = np.full(len(mine), -1, np.int64)
    for process in np.unique(rows.process[mine]).tolist():
        theirs = np.flatnonzero(calls.process == process)
        ids = calls.columns["correlation"][theirs]
        order = np.argsort(ids, kind="stable")
        own = np.flatnonzero(rows.process[mine] == process)
        wanted = rows.columns["correlation"][mine[own]]
        at = np.minimum(np.searchsorted(ids[order], wanted), max(len(ids) - 1, 0))
        if len(ids):
            hit = ids[order][at] == wanted
            found[own[hit]] = theirs[order[at[hit]]]
    return found


def _extra(found: _Messages, own: I64) -> bytes:
    """Bytes in and out as a key of the table of rare arguments; a byte counts as an element of one byte."""
    way, nbytes = found.receives[own], found.nbytes[own]
    names = sorted({found.name[at] for at in own.tolist()})
    into, out = int(nbytes[way != 0].sum()), int(nbytes[way != 1].sum())
    label = "all_to_all" if set(names) >= {*_SENDS, *_RECEIVES} else names[0].removeprefix("nccl").lower()
    values = [msgspec.json.encode(label), b"%d" % out, b"%d" % into, b"", b"", b'"Byte"', b"", b"", b""]
    return b"\0".join(values)
