"""How an export is opened: to read, a few real tables of it, and not for ever.

A database may hold more than rows: views, virtual tables and computed columns make SQLite work as long as
whoever wrote the file wants, and pages that point at each other never end. An export has none of these.
"""

from __future__ import annotations

import sqlite3
import struct
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from findwall.errors import InputError

AGAIN = "Export it again: nsys export --type sqlite --force-overwrite true REPORT.nsys-rep"
SCHEMA = "sqlite_master"
_WAIT_S = 1.0  # for a writer to let go of the file
_WAL_MODE = 2
_LIMIT_LENGTH = 0  # SQLITE_LIMIT_LENGTH, which older Pythons do not name
# What SQLite may take: so long for any file, and for its bytes as on a disk of four megabytes a second. Both
# chosen by hand; a local disk was ten times as quick.
_FREE_S, _S_PER_BYTE = 4.0, 2.5e-7
_STEPS_PER_LOOK = 10_000  # of SQLite's machine: a look costs nothing beside them
_LONGEST_VALUE = 1 << 28  # bytes: of ten thousand joined rows that is a hundred times what they take
# All that is asked of the database; whatever else a schema calls could take any time and memory.
_FUNCTIONS = frozenset({"ifnull", "group_concat", "count", "min", "max", "total", "length", "substr", "like"})
_OWN_NUMBER = frozenset({"rowid", "oid", "_rowid_"})


class Pace:
    """The time that SQLite has spent on a file, and may."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.allowed_s = _FREE_S + _S_PER_BYTE * path.stat().st_size
        self._spent_s = 0.0
        self._since: float | None = None

    @contextmanager
    def counted(self) -> Iterator[None]:
        self._since = time.monotonic()
        try:
            yield
        finally:
            self._spent_s += time.monotonic() - self._since
            self._since = None

    def is_over(self) -> bool:
        running = 0.0 if self._since is None else time.monotonic() - self._since
        return self._spent_s + running > self.allowed_s

    def refusal(self) -> InputError:
        return InputError(
            f"{self.path} is damaged or very slow to read: SQLite was not done with it in "
            f"{self.allowed_s:.0f} s.",
            "Copy it to a local disk, or export it again with nsys export --type sqlite.",
        )


def connect(path: Path, pace: Pace) -> sqlite3.Connection:
    """Checked, and ended where SQLite takes too long. Anything may be asked yet: see `restrict`."""
    head = _head(path)
    _check_written(path)
    _check_length(path, head)
    # Where the file keeps a log, SQLite would make files beside it, and where nobody writes it needs no lock.
    logged = head[18] == _WAL_MODE
    address = f"file:{quote(str(path.absolute()))}?mode=ro{'&immutable=1' if logged else ''}"
    connection = sqlite3.connect(address, uri=True, timeout=_WAIT_S)
    connection.text_factory = bytes  # most texts come often and are made text once, with whatever is in them
    connection.set_progress_handler(pace.is_over, _STEPS_PER_LOOK)
    if hasattr(connection, "setlimit"):  # Python 3.11
        connection.setlimit(_LIMIT_LENGTH, _LONGEST_VALUE)
    connection.execute("PRAGMA cell_size_check = ON")
    connection.execute("PRAGMA trusted_schema = OFF")
    return connection


def real_tables(
    connection: sqlite3.Connection, path: Path, known: Collection[str]
) -> dict[str, frozenset[str]]:
    """Those of the known tables that are there, with their columns; refused where one only looks like one."""
    asked = f"SELECT type, name, sql FROM {SCHEMA} WHERE type IN ('table', 'view')"
    found = {}
    for kind, name, sql in connection.execute(asked).fetchall():
        table = name.decode("utf-8", "replace") if isinstance(name, bytes) else ""
        if table not in known:
            continue
        columns = _columns(connection, table) if _is_plain(kind, sql) else []
        names = frozenset(column for column, hidden in columns if not hidden)
        if len(names) < len(columns) or not columns or names & _OWN_NUMBER:
            raise InputError(
                f"{path} is no plain export: {table} is not a table of rows as nsys writes them.", AGAIN
            )
        found[table] = names
    return found


def _is_plain(kind: object, sql: object) -> bool:
    """By what SQLite itself goes by: a virtual table is a table to the schema, too."""
    return kind == b"table" and isinstance(sql, bytes) and sql[:13].upper() == b"CREATE TABLE "


def _columns(connection: sqlite3.Connection, table: str) -> list[tuple[str, int]]:
    """Names, and whether each is hidden or computed."""
    rows = connection.execute(f"PRAGMA table_xinfo({table})").fetchall()
    return [(row[1].decode("utf-8", "replace"), int(row[6])) for row in rows]


def restrict(connection: sqlite3.Connection, readable: Collection[str]) -> None:
    """From here on, nothing but reading these tables."""

    def allow(
        action: int, table: str | None, name: str | None, _database: str | None, within: str | None
    ) -> int:
        if within is not None:  # on behalf of a view or a trigger
            return sqlite3.SQLITE_DENY
        good = (
            action == sqlite3.SQLITE_SELECT
            or (action == sqlite3.SQLITE_FUNCTION and str(name).lower() in _FUNCTIONS)
            or (action == sqlite3.SQLITE_READ and table in readable)
        )
        return sqlite3.SQLITE_OK if good else sqlite3.SQLITE_DENY

    connection.set_authorizer(allow)


def _check_written(path: Path) -> None:
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
