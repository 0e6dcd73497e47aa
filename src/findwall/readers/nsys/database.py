"""An Nsight Systems export as a database: opened to read, asked which columns it has, read as columns.

An export also carries the environment and the output of the program that was recorded. Only the tables named
here can be read at all: the connection refuses every other one.
"""

from __future__ import annotations

import sqlite3
import struct
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from findwall.errors import InputError
from findwall.model.intervals import I64
from findwall.readers.allowance import LONGEST_TEXT

MAGIC = b"SQLite format 3\0"
KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
COPIES = "CUPTI_ACTIVITY_KIND_MEMCPY"
MEMSETS = "CUPTI_ACTIVITY_KIND_MEMSET"
GRAPHS = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
SYNCHRONIZATIONS = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
CALLS = "CUPTI_ACTIVITY_KIND_RUNTIME"
OVERHEAD = "CUPTI_ACTIVITY_KIND_OVERHEAD"
PROFILER = "PROFILER_OVERHEAD"
RANGES = "NVTX_EVENTS"
PAYLOADS = "NVTX_PAYLOAD_SCHEMA_ENTRIES"
OS_CALLS = "OSRT_API"
METRICS, METRIC_NAMES = "GPU_METRICS", "TARGET_INFO_GPU_METRICS"
GPUS, CUDA_DEVICES = "TARGET_INFO_GPU", "TARGET_INFO_CUDA_DEVICE"
BEGIN = "TARGET_INFO_SESSION_START_TIME"
STRINGS = "StringIds"
EXPORT = "META_DATA_EXPORT"  # of the exporter alone; the capture's own table holds the environment

# StringIds holds the program's output too: only the ids that rows of these tables name are looked up.
READABLE = frozenset(
    {
        KERNELS,
        COPIES,
        MEMSETS,
        GRAPHS,
        SYNCHRONIZATIONS,
        CALLS,
        OVERHEAD,
        PROFILER,
        RANGES,
        PAYLOADS,
        OS_CALLS,
    }
    | {METRICS, METRIC_NAMES, GPUS, CUDA_DEVICES, BEGIN, STRINGS, EXPORT}
)
_TOLD_BY = (KERNELS, COPIES, MEMSETS, GRAPHS, CALLS, RANGES, OS_CALLS, EXPORT, "ANALYSIS_DETAILS")
_SCHEMA = "sqlite_master"
_WAIT_S = 1.0  # for a writer to let go of the file
_IDS_AT_ONCE = 500  # of strings: below what every SQLite takes as parameters
_ROWS_AT_ONCE = 10_000
_SPARSE = 100  # times the rows that there are: so far an export's numbers never run
_WAL_MODE = 2
AGAIN = "Export it again: nsys export --type sqlite --force-overwrite true REPORT.nsys-rep"


class Database:
    """One export. Every error that SQLite has becomes a line for a person."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with self.told():
            self._connection = _open(path)
            rows = self._connection.execute(f"SELECT name FROM {_SCHEMA} WHERE type IN ('table', 'view')")
            found = {text_of(name) for (name,) in rows.fetchall()}
            self._columns = {table: self._columns_of(table) for table in sorted(READABLE & found)}
        if not found.intersection(_TOLD_BY):
            self.close()
            raise InputError(
                f"{path} is an SQLite database, but no export of Nsight Systems.",
                "Give one that this wrote: nsys export --type sqlite REPORT.nsys-rep",
            )

    def close(self) -> None:
        self._connection.close()

    def _columns_of(self, table: str) -> frozenset[str]:
        asked = self._connection.execute(f"SELECT * FROM {table} LIMIT 0")
        return frozenset(column[0] for column in asked.description)

    def has(self, table: str, *columns: str) -> bool:
        """Whether the table is there, with all of these columns. Tables are made only when they get a row."""
        return table in self._columns and self._columns[table].issuperset(columns)

    def count(self, table: str) -> int:
        if table not in self._columns:
            return 0
        with self.told():
            return int(self._connection.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0])

    def integers(self, table: str, columns: Sequence[str], where: str = "") -> list[I64]:
        """These expressions over the rows of a table, -1 where one is empty. Text among them is damage."""
        parts = [part for part, _ in self.chunks(table, columns, where=where)]
        if not parts:
            return [np.empty(0, np.int64) for _ in columns]
        return [np.concatenate(column) for column in zip(*parts, strict=True)]

    def chunks(
        self,
        table: str,
        columns: Sequence[str],
        text: str = "",
        where: str = "",
        bounds: tuple[int, int] | None = None,
    ) -> Iterator[tuple[list[I64], list[bytes]]]:
        """These integers, and one column of text, of thousands of rows at a time.

        SQLite joins them to one text a column, which costs a third of fetching them row by row.
        """
        first, last = bounds or self.row_numbers(table) or (0, -1)
        values = [f"IFNULL({column}, -1)" for column in columns]
        condition = f" AND ({where})" if where else ""
        joined = ", ".join([f"GROUP_CONCAT({value})" for value in values])
        text = _begin_of(text) if text else ""
        joined += f", GROUP_CONCAT({text}, x'00')" if text else ""
        query = f"SELECT COUNT(*), {joined} FROM {table} WHERE rowid BETWEEN ? AND ?{condition}"
        plain = ", ".join([*values, text] if text else values)
        plain = f"SELECT {plain} FROM {table} WHERE rowid BETWEEN ? AND ?{condition}"
        for begin in range(first, last + 1, _ROWS_AT_ONCE):
            within = (begin, min(begin + _ROWS_AT_ONCE - 1, last))
            with self.told():
                count, *found = self._connection.execute(query, within).fetchone()
                if count == 0:
                    continue
                numbers = [_numbers(one) for one in found[: len(values)]]
                texts = found[-1].split(b"\0") if text else []
                lengths = {len(one) for one in numbers} | ({len(texts)} if text else set())
                if lengths != {count}:  # a text with a zero in it, or a number that is none
                    rows = self._connection.execute(plain, within).fetchall()
                    numbers, texts = self._one_by_one(table, rows, bool(text))
            yield numbers, texts

    def _one_by_one(
        self, table: str, rows: list[tuple[Any, ...]], with_text: bool
    ) -> tuple[list[I64], list[bytes]]:
        columns = list(zip(*rows, strict=True))
        texts = [one if isinstance(one, bytes) else b"" for one in columns.pop()] if with_text else []
        if any(not isinstance(value, int) for column in columns for value in column):
            raise InputError(f"{self.path} is damaged: {table} has text where numbers belong.", AGAIN)
        return [np.array(column, np.int64) for column in columns], texts

    def rows(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """The rows of a query that gives few; their texts as bytes."""
        with self.told():
            return self._connection.execute(statement, tuple(parameters)).fetchall()

    def row_numbers(self, table: str) -> tuple[int, int] | None:
        """The first and the last number of a table's rows; None where it has none."""
        if table not in self._columns:
            return None
        with self.told():
            asked = f"SELECT MIN(rowid), MAX(rowid), COUNT(*) FROM {table}"
            first, last, count = self._connection.execute(asked).fetchone()
        if first is None:
            return None
        if last - first > _SPARSE * (count + _ROWS_AT_ONCE):
            raise InputError(f"{self.path} is damaged: {table} has rows that no export numbers so.", AGAIN)
        return int(first), int(last)

    def strings(self, ids: Iterable[int]) -> dict[int, str]:
        """The texts behind these ids alone."""
        wanted = sorted({one for one in ids if one >= 0})
        found: dict[int, str] = {}
        if not self.has(STRINGS, "id", "value"):
            return found
        for first in range(0, len(wanted), _IDS_AT_ONCE):
            some = wanted[first : first + _IDS_AT_ONCE]
            marks = ",".join("?" * len(some))
            asked = f"SELECT id, {_begin_of('value')} FROM {STRINGS} WHERE id IN ({marks})"
            for number, value in self.rows(asked, some):
                found[int(number)] = text_of(value)
        return found

    @contextmanager
    def told(self) -> Iterator[None]:
        """SQLite's errors, in words for a person."""
        try:
            yield
        except UnicodeDecodeError as error:  # in the names of tables, or in what SQLite says of them
            raise InputError(f"{self.path} is damaged: its schema is no text.", AGAIN) from error
        except sqlite3.Error as error:
            text = str(error)
            if "locked" in text or "busy" in text:
                raise InputError(
                    f"{self.path} is locked: another program is writing it.",
                    "Wait until nsys is done with it, then read it again.",
                ) from error
            if "unable to open" in text:
                raise InputError(
                    f"{self.path} cannot be opened: {text}.", "Check its owner and mode."
                ) from error
            raise InputError(f"{self.path} is damaged: {text}.", AGAIN) from error


def _begin_of(text: str) -> str:
    # By bytes: a text that is counted in characters ends at its first zero.
    whole = f"CAST({text} AS BLOB)"
    cut = f"CAST(SUBSTR({whole}, 1, {LONGEST_TEXT}) AS TEXT)"
    return f"CASE WHEN LENGTH({whole}) > {LONGEST_TEXT} THEN {cut} ELSE {text} END"


def _numbers(joined: object) -> I64:
    """Integers that SQLite has joined by commas; too few of them where something else is in between."""
    if not isinstance(joined, bytes):
        return np.empty(0, np.int64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # what follows a value that is no number
        try:
            return np.fromstring(joined, np.int64, sep=",")
        except ValueError:
            return np.empty(0, np.int64)


def text_of(value: object) -> str:
    """A text of the database; what is no text is written as one."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _open(path: Path) -> sqlite3.Connection:
    head = _head(path)
    for ending in ("-wal", "-journal"):
        beside = path.with_name(path.name + ending)
        try:
            unwritten = beside.stat().st_size > 0
        except OSError:
            continue
        if unwritten:
            raise InputError(
                f"{path} is being written: {beside.name} holds changes that are not in it yet.",
                "Wait until nsys is done with it, then read it again.",
            )
    _check_length(path, head)
    # Where the file keeps a log, SQLite would make files beside it, and where nobody writes it needs no lock.
    logged = len(head) > 19 and head[18] == _WAL_MODE
    address = f"file:{quote(str(path.absolute()))}?mode=ro{'&immutable=1' if logged else ''}"
    connection = sqlite3.connect(address, uri=True, timeout=_WAIT_S)
    connection.text_factory = bytes  # most texts come often and are made text once, with whatever is in them
    connection.set_authorizer(_allow)
    return connection


def _head(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(100)
    except OSError as error:
        raise InputError(f"{path} cannot be opened: {error.strerror}.", "Check the path.") from error


def _check_length(path: Path, head: bytes) -> None:
    """A file shorter than its header says is cut off: what is left of it would be half an answer."""
    if len(head) < 100:
        raise InputError(f"{path} is cut off within its header.", AGAIN)
    page, changed, pages, valid_for = (
        int.from_bytes(head[16:18], "big"),
        *struct.unpack(">II", head[24:32]),
        int.from_bytes(head[92:96], "big"),
    )
    whole = pages * (65536 if page == 1 else page)
    if changed == valid_for and path.stat().st_size < whole:
        raise InputError(f"{path} is cut off: {path.stat().st_size:,} of {whole:,} bytes are here.", AGAIN)


def _allow(action: int, table: str | None, column: str | None, *_: str | None) -> int:
    """Reading what is named above, and nothing else."""
    if action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_FUNCTION):
        return sqlite3.SQLITE_OK
    readable = action == sqlite3.SQLITE_READ and (table in READABLE or table == _SCHEMA)
    return sqlite3.SQLITE_OK if readable else sqlite3.SQLITE_DENY
