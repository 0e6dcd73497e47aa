"""NVTX ranges: torch's ops with their shapes and autograd numbers, the job's own ranges, NCCL's calls.

`torch.autograd.profiler.emit_nvtx`, which `nsys profile --pytorch=autograd-shapes-nvtx` switches on, writes
an op as `aten::mm, seq = 5, op_id = 7, sizes = [[8, 16], [16, 4]], input_op_ids = [(3, 0)]`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from findwall.model.events import Kind
from findwall.readers.categories import RANGE_NAME
from findwall.readers.nsys.database import RANGES, Database
from findwall.readers.nsys.rows import Rows, host_rows

# ENUM_NSYS_EVENT_TYPE: ranges that a thread opens and closes in order, and ranges that may end anywhere.
_NESTED, _FREE = (59, 70), (60, 71)
# Torch gives its ops a namespace, and its autograd functions a number.
_NAMESPACE = re.compile(r"^[A-Za-z_][\w.]*::")
_OP_WITHOUT_ONE = re.compile(
    r"Backward\d*$|^record_param_comms$|^triton_|^detach_?$|^struct torch::autograd::"
)
_NOT_OPS = re.compile(r"^FSDP::|^(?:nccl|gloo|mpi|ucc):")
_SIZES = re.compile(r"\[(?:\[(?:-?\d{1,18}(?:, ?)?)*\](?:, ?)?)*\]")
_ROWS_AT_ONCE = 20_000


class _Texts(defaultdict[Any, int]):
    """Distinct values in order of arrival; looking one up gives its number."""

    def __init__(self) -> None:
        super().__init__()
        self.default_factory = self.__len__


class _Parsed:
    """Columns of the ranges read so far."""

    def __init__(self) -> None:
        self.names, self.sizes = _Texts(), _Texts()
        self.numbered: set[int] = set()  # names that have come with an autograd number
        self.parts: list[NDArray[np.int64]] = []

    def add(self, rows: list[tuple[Any, ...]]) -> None:
        """Start, end, thread and domain as they are; of the text its name, number and sizes."""
        texts = [self._text(row[4]) for row in rows]
        self.parts.append(np.array([row[:4] for row in rows], np.int64))
        self.parts[-1] = np.concatenate([self.parts[-1], np.array(texts, np.int64)], axis=1)

    def _text(self, text: str) -> tuple[int, int, int]:
        name, number, size = text, -1, -1
        if " = " in text:
            name, _, _ = name.partition(", input_op_ids = ")
            name, _, sizes = name.partition(", sizes = ")
            name, _, _ = name.partition(", op_id = ")
            name, _, sequence = name.partition(", seq = ")
            if sizes:
                size = self.sizes[sizes]
            if sequence.isdecimal():
                number = int(sequence)
        place = self.names[name]
        if number >= 0:
            self.numbered.add(place)
        return place, number, size


def ranges(database: Database) -> list[Rows]:
    """The ranges of all threads that have an end."""
    if not database.has(RANGES, "start", "end", "globalTid"):
        return []
    parsed, ignored = _Parsed(), {}
    for rows in _batches(database):
        parsed.add(rows)
    if database.has(RANGES, "eventType"):
        ignored = _without_end(database)
    if not parsed.parts:
        return []
    table = np.concatenate(parsed.parts)
    names = list(parsed.names)
    kinds = np.array([_kind(name, place in parsed.numbered) for place, name in enumerate(names)], np.uint8)
    place = table[:, 4].astype(np.int32)
    found = host_rows(table[:, 0], table[:, 1], kinds[place], place, names, table[:, 2])
    found.columns |= {"sequence": table[:, 5], "inputs": table[:, 6].astype(np.int32)}
    found.columns["domain"] = table[:, 3]
    found.inputs = [_inputs(sizes) for sizes in parsed.sizes]
    found.ignored = ignored
    return [found]


def _batches(database: Database) -> Iterator[list[tuple[Any, ...]]]:
    """(start, end, thread, domain, text) of ranges that ended; free ranges on a thread of their own."""
    kinds = database.has(RANGES, "eventType")
    nested = f"eventType IN {_NESTED}" if kinds else "1"
    free = f"eventType IN {_FREE}" if kinds else "0"
    domain = "IFNULL(domainId, 0)" if database.has(RANGES, "domainId") else "0"
    # What may end anywhere would break the nesting of its thread: thread 0 of the process has no calls.
    thread = f"CASE WHEN {free} THEN (globalTid >> 24) << 24 ELSE globalTid END"
    where = f"start IS NOT NULL AND end IS NOT NULL AND globalTid IS NOT NULL AND ({nested} OR {free})"
    texts = _texts(database)
    for column in ("text", "textId"):
        if not database.has(RANGES, column):
            continue
        only = "text IS NULL AND " if column == "textId" and database.has(RANGES, "text") else ""
        query = f"SELECT start, end, {thread}, {domain}, {column} FROM {RANGES}"
        rows = database.rows(f"{query} WHERE {only}{column} IS NOT NULL AND {where}")
        while batch := [row for _, row in zip(range(_ROWS_AT_ONCE), rows, strict=False)]:
            if column == "textId":
                batch = [(*row[:4], texts.get(row[4], "(no name)")) for row in batch]
            yield [row for row in batch if isinstance(row[4], str)]


def _texts(database: Database) -> dict[int, str]:
    if not database.has(RANGES, "textId"):
        return {}
    ids = database.rows(f"SELECT DISTINCT textId FROM {RANGES} WHERE textId IS NOT NULL")
    return database.strings([int(one) for (one,) in ids if isinstance(one, int)])


def _without_end(database: Database) -> dict[str, int]:
    """Ranges that were still open when the recording stopped; marks are points and count as nothing."""
    kinds = (*_NESTED, *_FREE)
    asked = f"SELECT COUNT(*) FROM {RANGES} WHERE end IS NULL AND eventType IN {kinds}"
    ((count,),) = list(database.rows(asked))
    return {"NVTX ranges without an end": int(count)} if count else {}


def _kind(name: str, numbered: bool) -> Kind:
    """An op of torch, or a range that somebody put around work."""
    if RANGE_NAME.search(name) or _NOT_OPS.search(name):
        return Kind.ANNOTATION
    is_op = numbered or _NAMESPACE.match(name) or _OP_WITHOUT_ONE.search(name)
    return Kind.OP if is_op else Kind.ANNOTATION


def _inputs(sizes: str) -> bytes:
    """Sizes as a key of the table of inputs: shapes alone, since no types or strides are written."""
    return (sizes.encode("ascii") if _SIZES.fullmatch(sizes) else b"") + b"\0\0\0\0"
