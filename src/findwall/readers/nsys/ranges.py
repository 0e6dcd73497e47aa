"""NVTX ranges: torch's ops with their shapes and autograd numbers, the job's own ranges, NCCL's calls.

`torch.autograd.profiler.emit_nvtx`, which `nsys profile --pytorch=autograd-shapes-nvtx` switches on, writes
an op as `aten::mm, seq = 5, op_id = 7, sizes = [[8, 16], [16, 4]], input_op_ids = [(3, 0)]`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np

from findwall.model.events import I32, Kind
from findwall.model.intervals import I64
from findwall.readers.nsys.database import RANGES, Database, text_of
from findwall.readers.nsys.export_rows import Rows, host_rows
from findwall.readers.nsys.export_rows import numbered as numbered_ids
from findwall.readers.torch_trace.categories import RANGE_NAME

# ENUM_NSYS_EVENT_TYPE: ranges that a thread opens and closes in order, and ranges that may end anywhere.
_NESTED, _FREE = (59, 70), (60, 71)
# Torch gives its ops a namespace, and its autograd functions a number.
_NAMESPACE = re.compile(r"^[A-Za-z_][\w.]*::")
_OP_WITHOUT_ONE = re.compile(
    r"Backward\d*$|^record_param_comms$|^triton_|^detach_?$|^struct torch::autograd::"
)
_NOT_OPS = re.compile(r"^FSDP::|^(?:nccl|gloo|mpi|ucc):")
_SIZE = rb"-?\d{1,18}"
_DIMS = rb"\[(?:%b(?:, ?%b)*)?\]" % (_SIZE, _SIZE)
_SIZES = re.compile(rb"\[(?:%b(?:, ?%b)*)?\]" % (_DIMS, _DIMS))  # every text has one way to match: linear
_DIGITS = 18  # at most: what is longer is no number of 64 bits
_NO_NAME = b"(no name)"


class Part(msgspec.Struct):
    """The ranges of some rows of the table, as columns."""

    start: I64
    end: I64
    thread: I64  # as a global id
    name: I32  # -> names
    sequence: I64
    size: I32  # -> sizes
    names: list[str]
    sizes: list[bytes]
    numbered: list[str]  # names that have come with an autograd number


class _Texts(defaultdict[Any, int]):
    """Distinct values in order of arrival; looking one up gives its number."""

    def __init__(self) -> None:
        super().__init__()
        self.default_factory = self.__len__


def read_part(database: Database, bounds: tuple[int, int] | None = None) -> Part | None:
    """The ranges that have an end, of all rows or of those with these numbers."""
    if not database.has(RANGES, "start", "end", "globalTid"):
        return None
    names, sizes, numbered = _Texts(), _Texts(), set[int]()
    parts: list[list[Any]] = []
    for columns, texts, of_row in _batches(database, bounds):
        parsed = _parse(texts, names, sizes, numbered)
        parts.append([*columns, *(parsed if of_row is None else (column[of_row] for column in parsed))])
    if not parts:
        return None
    start, end, thread, name, sequence, size = (np.concatenate(column) for column in zip(*parts, strict=True))
    listed = [text_of(one) for one in names]
    tagged = [listed[one] for one in sorted(numbered)]
    return Part(start, end, thread, name, sequence, size, listed, list(sizes), tagged)


def _parse(texts: Sequence[bytes], names: _Texts, sizes: _Texts, numbered: set[int]) -> tuple[I32, I64, I32]:
    """Name, autograd number and sizes of each text. Once an op of the job: everything in it counts."""
    found: list[int] = []
    numbers: list[int] = []
    shapes: list[int] = []
    for text in texts:
        head, mark, tail = text.partition(b", op_id = ")
        if not mark:  # an older torch, or a range of somebody else's
            head, mark, tail = text.partition(b", sizes = ")
            tail = b"-, sizes = " + tail if mark else b""
        name, mark, number = head.partition(b", seq = ")
        place = names[name]
        found.append(place)
        if mark and number.isdigit() and len(number) <= _DIGITS:
            numbers.append(int(number))
            numbered.add(place)
        else:
            numbers.append(-1)
        shape = tail.partition(b", sizes = ")[2]
        shapes.append(sizes[shape.partition(b", input_op_ids")[0]] if shape else -1)
    count = len(texts)
    return (
        np.fromiter(found, np.int32, count),
        np.fromiter(numbers, np.int64, count),
        np.fromiter(shapes, np.int32, count),
    )


def _batches(
    database: Database, bounds: tuple[int, int] | None
) -> Iterator[tuple[list[I64], Sequence[bytes], I32 | None]]:
    """Start, end and thread of ranges that ended; their texts, and which of these each has, where that is not
    one a row. Free ranges are on a thread of their own."""
    kinds = database.has(RANGES, "eventType")
    nested = f"eventType IN {_NESTED}" if kinds else "1"
    free = f"eventType IN {_FREE}" if kinds else "0"
    # What may end anywhere would break the nesting of its thread: thread 0 of the process has no calls.
    thread = f"CASE WHEN {free} THEN (globalTid >> 24) << 24 ELSE globalTid END"
    where = f"start IS NOT NULL AND end IS NOT NULL AND globalTid IS NOT NULL AND ({nested} OR {free})"
    columns = ["start", "end", thread]
    if database.has(RANGES, "text"):
        for found, written in database.chunks(
            RANGES, columns, "text", f"text IS NOT NULL AND {where}", bounds
        ):
            yield found, written, None
        where = f"text IS NULL AND {where}"
    if not database.has(RANGES, "textId"):
        return
    texts = _texts(database)
    for found, _ in database.chunks(
        RANGES, [*columns, "textId"], "", f"textId IS NOT NULL AND {where}", bounds
    ):
        distinct, of_row = numbered_ids(found[3])
        yield found[:3], [texts.get(one, _NO_NAME) for one in distinct.tolist()], of_row


def _texts(database: Database) -> dict[int, bytes]:
    ids = database.rows(f"SELECT DISTINCT textId FROM {RANGES} WHERE textId IS NOT NULL")
    texts = database.strings([int(one) for (one,) in ids if isinstance(one, int)])
    return {number: text.encode() for number, text in texts.items()}


def ranges(database: Database, parts: Sequence[Part]) -> list[Rows]:
    """All parts as rows; a name that is an op's in one of them is an op's in all."""
    numbered = {name for part in parts for name in part.numbered}
    found = []
    for part in parts:
        kinds = np.array([_kind(name, name in numbered) for name in part.names], np.uint8)
        rows = host_rows(part.start, part.end, kinds[part.name], part.name, part.names, part.thread)
        rows.columns |= {"sequence": part.sequence, "inputs": part.size}
        rows.inputs = [_inputs(sizes) for sizes in part.sizes]
        found.append(rows)
    if found and database.has(RANGES, "eventType"):
        found[0].ignored = _without_end(database)
    return found


def _without_end(database: Database) -> dict[str, int]:
    """Ranges that were still open when the recording stopped; marks are points and count as nothing."""
    kinds = (*_NESTED, *_FREE)
    asked = f"SELECT COUNT(*) FROM {RANGES} WHERE end IS NULL AND eventType IN {kinds}"
    ((count,),) = database.rows(asked)
    return {"NVTX ranges without an end": int(count)} if count else {}


def _kind(name: str, numbered: bool) -> Kind:
    """An op of torch, or a range that somebody put around work."""
    if RANGE_NAME.search(name) or _NOT_OPS.search(name):
        return Kind.ANNOTATION
    is_op = numbered or _NAMESPACE.match(name) or _OP_WITHOUT_ONE.search(name)
    return Kind.OP if is_op else Kind.ANNOTATION


def _inputs(sizes: bytes) -> bytes:
    """Sizes as a key of the table of inputs: shapes alone, since no types or strides are written."""
    return (sizes if _SIZES.fullmatch(sizes) else b"") + b"\0\0\0\0"
