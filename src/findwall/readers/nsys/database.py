"""An Nsight Systems export as a database: opened to read, asked which columns it has, read as columns.

An export also carries the environment and the output of the program that was recorded. Only the tables named
here can be read at all: the connection refuses every other one.
"""

from __future__ import annotations

import sqlite3
import warnings
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from findwall.errors import InputError
from findwall.model.intervals import I64
from findwall.readers.allowance import LONGEST_TEXT
from findwall.readers.nsys.opening import AGAIN, Pace, connect, real_tables, restrict

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
_TOLD_BY = frozenset({KERNELS, COPIES, MEMSETS, GRAPHS, CALLS, RANGES, OS_CALLS, EXPORT, "ANALYSIS_DETAILS"})
_LONGEST_REASON = 200  # characters of SQLite's words for what is wrong
_IDS_AT_ONCE = 500  # of strings: below what every SQLite takes as parameters
_ROWS_AT_ONCE = 10_000
_SPARSE = 100  # times the rows that there are: so far an export's numbers never run


class Database:
    """One export. Every error that SQLite has becomes a line for a person."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._pace = Pace(path)
        with self.told():
            self._connection = connect(path, self._pace)
        try:
            with self.told():
                tables = real_tables(self._connection, path, READABLE | _TOLD_BY)
                restrict(self._connection, READABLE)
            self._columns = {table: names for table, names in tables.items() if table in READABLE}
            self._check(tables)
        except InputError:
            self.close()
            raise

    def _check(self, tables: Collection[str]) -> None:
        if not _TOLD_BY.intersection(tables):
            raise InputError(
                f"{self.path} is an SQLite database, but no export of Nsight Systems.",
                "Give one that this wrote: nsys export --type sqlite REPORT.nsys-rep",
            )

    def close(self) -> None:
        self._connection.close()

    def has(self, table: str, *columns: str) -> bool:
        """Whether the table is there, with all of these columns. Tables are made only when they get a row."""
        return table in self._columns and self._columns[table].issuperset(columns)

    def has_rows(self, table: str) -> bool:
        return self.row_numbers(table) is not None

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
        text = begin_of(text) if text else ""
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
            asked = f"SELECT id, {begin_of('value')} FROM {STRINGS} WHERE id IN ({marks})"
            for number, value in self.rows(asked, some):
                found[int(number)] = text_of(value)
        return found

    @contextmanager
    def told(self) -> Iterator[None]:
        """SQLite's errors, in words for a person."""
        try:
            with self._pace.counted():
                yield
        except UnicodeDecodeError as error:  # in the names of tables, or in what SQLite says of them
            raise InputError(f"{self.path} is damaged: its schema is no text.", AGAIN) from error
        except (MemoryError, OverflowError) as error:  # a value that is longer, or a number that is larger
            raise InputError(f"{self.path} is damaged: it holds values that cannot be.", AGAIN) from error
        except sqlite3.Error as error:
            text = " ".join(str(error).split())[:_LONGEST_REASON]  # it may quote the file
            if text == "interrupted":
                raise self._pace.refusal() from error
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


def begin_of(text: str) -> str:
    """What is asked for instead of a text, so that none is endless."""
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
