"""What the host called: the CUDA runtime and driver, the operating system, and the profiler's own time."""

from __future__ import annotations

import numpy as np

from findwall.model.events import I32, Kind
from findwall.model.intervals import I64
from findwall.readers.nsys.database import CALLS, OS_CALLS, OVERHEAD, PROFILER, Database
from findwall.readers.nsys.export_rows import Rows, host_rows, interned, numbered
from findwall.readers.nsys.nsys_names import OVERHEAD_NAMES, call_name

_SQL_LIST = 900  # threads named in one query: below what every SQLite takes


def runtime_calls(database: Database) -> Rows | None:
    """Calls of the CUDA runtime and driver; each has the correlation id of what it launched."""
    if not database.has(CALLS, "start", "end", "globalTid", "nameId"):
        return None
    correlation = "correlationId" if database.has(CALLS, "correlationId") else "-1"
    start, end, thread, name_id, ids = database.integers(
        CALLS, ["start", "end", "globalTid", "nameId", correlation]
    )
    name, names = _named(database, name_id)
    rows = host_rows(start, end, Kind.RUNTIME, name, [call_name(one) for one in names], thread)
    rows.columns |= {"correlation": ids, "global": thread}
    return rows


def _named(database: Database, ids: I64) -> tuple[I32, list[str]]:
    return interned(ids, database.strings(np.unique(ids).tolist()))


def operating_system_calls(database: Database, threads: list[int]) -> Rows | None:
    """Calls of the system's libraries (read, poll, pthread_cond_wait) on the threads that launch work."""
    if not database.has(OS_CALLS, "start", "end", "globalTid", "nameId") or not threads:
        return None
    asked = ", ".join(str(int(one)) for one in threads[:_SQL_LIST])
    start, end, thread, name_id = database.integers(
        OS_CALLS, ["start", "end", "globalTid", "nameId"], f"globalTid IN ({asked})"
    )
    name, names = _named(database, name_id)
    return host_rows(start, end, Kind.OTHER, name, names, thread)


def overhead(database: Database) -> list[Rows]:
    """Time that the profiler took, and what the driver did beside a call: loading code, a full queue."""
    found = []
    for table in (PROFILER, OVERHEAD):
        if not database.has(table, "start", "end", "globalTid", "overheadType"):
            continue
        start, end, thread, kind = database.integers(table, ["start", "end", "globalTid", "overheadType"])
        distinct, name = numbered(kind)
        names = [OVERHEAD_NAMES.get(int(one), OVERHEAD_NAMES[0]) for one in distinct]
        found.append(host_rows(start, end, Kind.OVERHEAD, name, names, thread))
    return found
