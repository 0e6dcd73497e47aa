"""Exports whose texts keep a reader, or whose tables are none."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from nsys_tables import Export
from soak.exports import MS, THREAD, Many, changed, filled, hostile, kernel, nvtx, rewritten

# Texts.


@hostile
def sizes_and_more_behind_them(path: Path) -> None:
    text = "aten::mm, seq = 1, op_id = 2, sizes = [[" + "1" * 60_000 + "]]x"
    filled(path, "NVTX_EVENTS", [nvtx(5 * MS, 6 * MS, text)])


@hostile
def sizes_of_many_short_numbers(path: Path) -> None:
    text = "aten::mm, op_id = 2, sizes = [" + "[1, 2], " * 7_000 + "!"
    filled(path, "NVTX_EVENTS", [nvtx(5 * MS, 6 * MS, text) for _ in range(200)])


@hostile
def brackets_in_brackets(path: Path) -> None:
    texts = ["aten::mm, op_id = 2, sizes = " + "[" * 60_000, "a::" * 20_000, "<" * 60_000, ", seq = " * 8_000]
    filled(path, "NVTX_EVENTS", [nvtx(5 * MS, 6 * MS, text) for text in texts])


@hostile
def endless_names(path: Path) -> None:
    words = ("a", " ", "_", "(", "<", "::", "a<", "0", "Functor", "*&", "(int)1", "T1, ", "array<char*, 1")
    connection = sqlite3.connect(path)
    for at, word in enumerate(words):
        connection.execute("INSERT INTO StringIds VALUES (?, ?)", (900 + at, word * (60_000 // len(word))))
    connection.commit()
    connection.close()
    rows = [kernel(100 * MS + at * MS, 101 * MS + at * MS, 0, 900 + at) for at in range(len(words))]
    filled(path, "CUPTI_ACTIVITY_KIND_KERNEL", rows)


@hostile
def a_text_of_fifty_megabytes(path: Path) -> None:
    filled(path, "NVTX_EVENTS", [nvtx(5 * MS, 6 * MS, "aten::" + "x" * 50_000_000)])


@hostile
def one_long_text_a_hundred_thousand_times(path: Path) -> None:
    changed(path, f"INSERT INTO StringIds VALUES (900, '{'aten::mm, seq = ' + 'z' * 60_000}')")
    rows = (nvtx(20 * MS + at, 20 * MS + at + 1, None, text_id=900) for at in range(Many.rows // 2))
    filled(path, "NVTX_EVENTS", rows)


@hostile
def a_million_ranges_of_one_text(path: Path) -> None:
    filled(path, "NVTX_EVENTS", (nvtx(20 * MS + at, 20 * MS + at + 1, "step") for at in range(5 * Many.rows)))


@hostile
def a_name_for_every_range(path: Path) -> None:
    rows = (nvtx(20 * MS + 3 * at, 20 * MS + 3 * at + 1, f"aten::op{at}") for at in range(Many.rows))
    filled(path, "NVTX_EVENTS", rows)


@hostile
def texts_that_are_no_utf8(path: Path) -> None:
    changed(
        path,
        "UPDATE StringIds SET value = CAST(x'fffe00c328' AS TEXT)",
        "UPDATE NVTX_EVENTS SET text = CAST(x'61c3280061ff' AS TEXT)",
        "UPDATE TARGET_INFO_GPU SET name = CAST(x'4e56ff00' AS TEXT)",
    )


@hostile
def texts_of_escapes_and_markup(path: Path) -> None:
    said = "\\x1b]0;owned\\x07\\u202e</script><script>alert(1)</script>" + "\x1b[2J\x07\r\n"
    connection = sqlite3.connect(path)
    connection.execute("UPDATE StringIds SET value = ?", (said,))
    connection.execute("UPDATE NVTX_EVENTS SET text = ? WHERE rowid % 2", (said,))
    connection.commit()
    connection.close()


# Tables that are none.


@hostile
def a_view_that_counts_for_ever(path: Path) -> None:
    changed(
        path,
        "DROP TABLE NVTX_EVENTS",
        "CREATE VIEW NVTX_EVENTS AS WITH RECURSIVE n(start) AS (SELECT 1 UNION ALL SELECT start + 1 FROM n) "
        f"SELECT start, start + 1 AS end, 59 AS eventType, 'a' AS text, {THREAD} AS globalTid "
        "FROM n",
    )


@hostile
def a_view_of_every_row_with_every_row(path: Path) -> None:
    joined = ", ".join(f"CUPTI_ACTIVITY_KIND_RUNTIME r{at}" for at in range(9))
    changed(
        path,
        "ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL RENAME TO TARGET_INFO_GPU_METRICS",
        f"CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS SELECT k.* FROM TARGET_INFO_GPU_METRICS k, {joined}",
    )


@hostile
def a_view_called_a_table(path: Path) -> None:
    changed(path, "ALTER TABLE NVTX_EVENTS RENAME TO OSRT_API")
    changed(path, "CREATE VIEW NVTX_EVENTS AS SELECT a.* FROM OSRT_API a, OSRT_API b, OSRT_API c, OSRT_API d")
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA writable_schema = ON")
    connection.execute("UPDATE sqlite_master SET type = 'table', rootpage = 2 WHERE name = 'NVTX_EVENTS'")
    connection.commit()
    connection.close()


@hostile
def a_virtual_table(path: Path) -> None:
    changed(
        path,
        "DROP TABLE NVTX_EVENTS",
        "CREATE VIRTUAL TABLE NVTX_EVENTS USING fts5(start, end, eventType, text, globalTid)",
    )


@hostile
def a_computed_column(path: Path) -> None:
    endless = "(LENGTH(HEX(ZEROBLOB(400000000))) + LENGTH(HEX(ZEROBLOB(400000001))))"
    changed(path, f"ALTER TABLE CUPTI_ACTIVITY_KIND_RUNTIME ADD COLUMN later INTEGER AS {endless} VIRTUAL")
    sql = (
        "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, eventClass INTEGER, "
        f"globalTid INTEGER, correlationId INTEGER, nameId INTEGER, returnValue INTEGER AS {endless})"
    )
    rewritten(path, "CUPTI_ACTIVITY_KIND_RUNTIME", sql)


@hostile
def a_trigger_on_everything(path: Path) -> None:
    changed(
        path,
        "CREATE TRIGGER t AFTER INSERT ON NVTX_EVENTS BEGIN SELECT LOAD_EXTENSION('/tmp/evil.so'); END",
        "CREATE TRIGGER u BEFORE DELETE ON StringIds BEGIN DELETE FROM NVTX_EVENTS; END",
    )


@hostile
def an_index_over_a_costly_expression(path: Path) -> None:
    changed(path, "CREATE INDEX i ON NVTX_EVENTS (LENGTH(text || text || text), start, end)")


@hostile
def tables_without_row_numbers(path: Path) -> None:
    changed(
        path,
        "CREATE TABLE other (id INTEGER PRIMARY KEY, value TEXT) WITHOUT ROWID",
        "INSERT INTO other SELECT * FROM StringIds",
        "DROP TABLE StringIds",
        "ALTER TABLE other RENAME TO StringIds",
        "DROP TABLE NVTX_EVENTS",
        "CREATE TABLE NVTX_EVENTS (start INTEGER PRIMARY KEY, end INTEGER, eventType INTEGER, text TEXT, "
        "globalTid INTEGER) WITHOUT ROWID",
        f"INSERT INTO NVTX_EVENTS VALUES (5000000, 6000000, 59, 'a', {THREAD})",
    )


@hostile
def row_numbers_of_its_own(path: Path) -> None:
    changed(
        path,
        "ALTER TABLE NVTX_EVENTS ADD COLUMN rowid TEXT",
        "UPDATE NVTX_EVENTS SET rowid = 'zz' || start",
    )


@hostile
def a_schema_that_is_no_sql(path: Path) -> None:
    rewritten(path, "NVTX_EVENTS", "CREATE TABLE NVTX_EVENTS (\n[start\n" + "(" * 5_000)


@hostile
def two_thousand_columns(path: Path) -> None:
    columns = ", ".join(f"c{at} INTEGER" for at in range(1_900))
    changed(path, f"CREATE TABLE OSRT_API (start, end, {columns})")


@hostile
def no_tables_but_one(path: Path) -> None:
    path.unlink()
    changed(path, "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER)")


@hostile
def no_rows_at_all(path: Path) -> None:
    path.unlink()
    Export(path).close()


@hostile
def no_strings(path: Path) -> None:
    changed(path, "DROP TABLE StringIds")


@hostile
def a_table_in_another_case(path: Path) -> None:
    changed(path, "ALTER TABLE NVTX_EVENTS RENAME TO nvtx_e", "ALTER TABLE nvtx_e RENAME TO nvtx_events")
