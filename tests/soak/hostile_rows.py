"""Exports of values that cannot be, of very many rows, and files that are damaged."""

from __future__ import annotations

import gzip
import shutil
import sqlite3
from itertools import pairwise
from pathlib import Path

from nsys_tables import global_id
from soak.exports import MS, PROCESS, TABLES, THREAD, Many, changed, filled, hostile, kernel, nvtx

# Values that cannot be.


@hostile
def text_where_numbers_belong(path: Path) -> None:
    changed(path, "UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET start = 'soon', globalTid = 'main', nameId = 'x'")


@hostile
def blobs_where_numbers_belong(path: Path) -> None:
    changed(
        path, "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET deviceId = x'00ff', start = x'01', globalPid = x'02'"
    )


@hostile
def fractions_and_infinities(path: Path) -> None:
    changed(
        path,
        "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = 9e999 WHERE rowid % 2",
        "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET end = -9e999 WHERE rowid % 3",
        "UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET start = start + 0.5",
    )


@hostile
def the_largest_numbers(path: Path) -> None:
    most, least = 2**63 - 1, -(2**63)
    changed(
        path,
        f"UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET end = {most}, correlationId = {most} WHERE rowid % 2",
        f"UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = {least} WHERE rowid % 5 = 0",
        f"UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET end = {most}, start = {most - 5}, globalTid = {most}",
        f"UPDATE NVTX_EVENTS SET start = {least}, end = {most} WHERE rowid % 7 = 0",
        f"UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET gridX = {most}, blockX = {least}",
        f"UPDATE TARGET_INFO_SESSION_START_TIME SET utcEpochNs = {most}",
        f"UPDATE TARGET_INFO_GPU SET totalMemory = {most}, smCount = {least}",
    )


@hostile
def every_row_ends_before_it_starts(path: Path) -> None:
    for table in TABLES:
        changed(path, f"UPDATE CUPTI_ACTIVITY_KIND_{table} SET end = start - 1000000000")
    changed(path, "UPDATE NVTX_EVENTS SET end = start - 5")


@hostile
def rows_of_no_length(path: Path) -> None:
    for table in TABLES:
        changed(path, f"UPDATE CUPTI_ACTIVITY_KIND_{table} SET end = start")
    changed(path, "UPDATE NVTX_EVENTS SET end = start")


@hostile
def everything_at_one_moment(path: Path) -> None:
    for table in TABLES:
        changed(path, f"UPDATE CUPTI_ACTIVITY_KIND_{table} SET start = 5, end = 6")
    changed(path, "UPDATE NVTX_EVENTS SET start = 5, end = 6")


@hostile
def one_number_for_every_launch(path: Path) -> None:
    changed(path, "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET correlationId = 1")
    changed(path, "UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET correlationId = 1")


@hostile
def nothing_but_nulls(path: Path) -> None:
    for table in ("KERNEL", "RUNTIME"):
        changed(path, f"UPDATE CUPTI_ACTIVITY_KIND_{table} SET correlationId = NULL")
    changed(path, "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET deviceId = NULL, streamId = NULL, globalPid = NULL")
    changed(path, "UPDATE NVTX_EVENTS SET text = NULL, end = NULL, globalTid = NULL WHERE rowid % 2")


@hostile
def row_numbers_far_apart(path: Path) -> None:
    changed(path, "UPDATE NVTX_EVENTS SET rowid = 9223372036854775807 WHERE rowid = 1")
    changed(path, "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET rowid = -9223372036854775807 WHERE rowid = 1")


@hostile
def devices_without_names_twice(path: Path) -> None:
    changed(
        path, "UPDATE TARGET_INFO_GPU SET name = ''", "INSERT INTO TARGET_INFO_GPU VALUES (0, NULL, -1, 'x')"
    )
    changed(path, "INSERT INTO TARGET_INFO_GPU VALUES ('zero', 'B200', 1.5, 0)")


# Many.


@hostile
def ranges_in_ranges_in_ranges(path: Path) -> None:
    rows = (nvtx(20 * MS + at, 20 * MS + Many.rows - at, "deeper") for at in range(Many.rows // 2 - 1))
    filled(path, "NVTX_EVENTS", rows)


@hostile
def ranges_that_cross_each_other(path: Path) -> None:
    rows = (
        nvtx(20 * MS + 2 * at, 20 * MS + 2 * at + 50_000, f"cross {at % 9}") for at in range(Many.rows // 2)
    )
    filled(path, "NVTX_EVENTS", rows)


@hostile
def a_process_for_every_kernel(path: Path) -> None:
    name = 17
    rows = (
        kernel(20 * MS + at, 20 * MS + at + 1, at, name, process=global_id(at % (1 << 23)))
        for at in range(Many.rows)
    )
    filled(path, "CUPTI_ACTIVITY_KIND_KERNEL", rows)


@hostile
def as_many_processes_as_are_read(path: Path) -> None:
    rows = (
        kernel(20 * MS + at, 20 * MS + at + 1, at, 17, process=global_id(at % 120 + 20))
        for at in range(20_000)
    )
    filled(path, "CUPTI_ACTIVITY_KIND_KERNEL", rows)


@hostile
def a_context_for_every_kernel_of_nobody(path: Path) -> None:
    changed(path, "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET globalPid = NULL")
    rows = (kernel(20 * MS + at, 20 * MS + at + 1, at, 17) for at in range(20_000))
    filled(path, "CUPTI_ACTIVITY_KIND_KERNEL", rows)
    changed(path, "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET globalPid = NULL, contextId = rowid")
    calls = ((20 * MS + at, 20 * MS + at + 1, 0, global_id(at, at), at, 18, 0) for at in range(20_000))
    filled(path, "CUPTI_ACTIVITY_KIND_RUNTIME", calls)


@hostile
def a_stream_for_every_kernel(path: Path) -> None:
    rows = (kernel(20 * MS + at, 20 * MS + at + 900, at, 17, stream=at) for at in range(Many.rows // 4))
    filled(path, "CUPTI_ACTIVITY_KIND_KERNEL", rows)


@hostile
def a_device_for_every_kernel(path: Path) -> None:
    rows = (
        kernel(20 * MS + at, 20 * MS + at + 900, at, 17, device=at % 65_536) for at in range(Many.rows // 4)
    )
    filled(path, "CUPTI_ACTIVITY_KIND_KERNEL", rows)


@hostile
def a_thread_for_every_call(path: Path) -> None:
    calls = (
        (20 * MS + at, 20 * MS + at + 9, 0, global_id(PROCESS, at), at, 18, 0) for at in range(Many.rows // 4)
    )
    filled(path, "CUPTI_ACTIVITY_KIND_RUNTIME", calls)
    rows = (
        nvtx(20 * MS + at, 20 * MS + at + 9, "aten::add", global_id(PROCESS, at))
        for at in range(Many.rows // 4)
    )
    filled(path, "NVTX_EVENTS", rows)


@hostile
def counters_that_all_have_one_number(path: Path) -> None:
    changed(
        path,
        "CREATE TABLE GPU_METRICS (timestamp INTEGER, typeId INTEGER, metricId INTEGER, value INTEGER)",
        "CREATE TABLE TARGET_INFO_GPU_METRICS (typeId INTEGER, metricId INTEGER, metricName TEXT)",
    )
    filled(path, "GPU_METRICS", ((20 * MS, 0, 0, 7) for _ in range(Many.rows)))
    filled(path, "TARGET_INFO_GPU_METRICS", ((0, 0, f"SMs Active {at}") for at in range(Many.rows)))


@hostile
def messages_without_end(path: Path) -> None:
    payload = (
        (0).to_bytes(16, "little") + (16).to_bytes(8, "little") + (48).to_bytes(8, "little") + b"\7" * 16
    )
    changed(
        path,
        "CREATE TABLE NVTX_PAYLOAD_SCHEMA_ENTRIES (domainId, schemaId, name TEXT, offset INTEGER)",
        "INSERT INTO NVTX_PAYLOAD_SCHEMA_ENTRIES VALUES (0, 0, 'Message size [bytes]', 0)",
        "INSERT INTO StringIds VALUES (901, 'ncclDevKernel_AllReduce_Sum_f32_RING_LL')",
        "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET demangledName = 901",
    )
    rows = (
        nvtx(20 * MS + at, 20 * MS + at + 1, "ncclAllReduce", payload=payload) for at in range(Many.rows // 4)
    )
    filled(path, "NVTX_EVENTS", rows)
    count = Many.rows // 8
    kernels = (kernel(20 * MS + 3 * at, 20 * MS + 3 * at + 2, at + 100, 901) for at in range(count))
    filled(path, "CUPTI_ACTIVITY_KIND_KERNEL", kernels)
    calls = ((20 * MS + 2 * at, 20 * MS + 2 * at + 1, 0, THREAD, at + 100, 18, 0) for at in range(count))
    filled(path, "CUPTI_ACTIVITY_KIND_RUNTIME", calls)


@hostile
def payloads_of_megabytes(path: Path) -> None:
    changed(
        path,
        "CREATE TABLE NVTX_PAYLOAD_SCHEMA_ENTRIES (domainId, schemaId, name TEXT, offset INTEGER)",
        f"INSERT INTO NVTX_PAYLOAD_SCHEMA_ENTRIES VALUES (0, 0, 'Message size', {2**62})",
    )
    rows = [nvtx(5 * MS, 6 * MS, "nccl", payload=b"\0" * 4_000_000) for _ in range(10)]
    filled(path, "NVTX_EVENTS", rows)


# Files.


@hostile
def pages_that_point_at_each_other(path: Path) -> None:
    """Every page of a table an inner one, whose children are all the page after it: rows without end."""
    filled(path, "NVTX_EVENTS", (nvtx(20 * MS + at, 20 * MS + at + 1, "x" * 300) for at in range(20_000)))
    connection = sqlite3.connect(path)
    ((root,),) = connection.execute(
        "SELECT rootpage FROM sqlite_master WHERE name = 'NVTX_EVENTS'"
    ).fetchall()
    ((size,),) = connection.execute("PRAGMA page_size").fetchall()
    connection.close()
    data = bytearray(path.read_bytes())
    pages = [root, *range(root + 30, root + 42)]
    for here, following in pairwise(pages):
        _inner_page(data, here, following, size)
    path.write_bytes(data)


def _inner_page(data: bytearray, page: int, child: int, size: int) -> None:
    begin, cells = (page - 1) * size, 200
    body = bytearray(size)
    body[0] = 5
    body[3:5] = cells.to_bytes(2, "big")
    first = size - 6 * cells
    body[5:7] = first.to_bytes(2, "big")
    body[8:12] = child.to_bytes(4, "big")
    for at in range(cells):
        place = first + 6 * at
        body[12 + 2 * at : 14 + 2 * at] = place.to_bytes(2, "big")
        body[place : place + 5] = child.to_bytes(4, "big") + bytes([min(at, 127)])
    data[begin : begin + size] = body


@hostile
def pages_of_noise(path: Path) -> None:
    data = bytearray(path.read_bytes())
    for place in range(4096 * 2, len(data), 97):
        data[place] ^= 0x5A
    path.write_bytes(data)


@hostile
def cut_in_the_middle(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


@hostile
def a_header_and_nothing_else(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:100])


@hostile
def a_header_without_pages(path: Path) -> None:
    data = bytearray(path.read_bytes()[:4096])
    data[16:18], data[28:32] = b"\0\0", b"\0\0\0\0"
    path.write_bytes(data)


@hostile
def an_encrypted_file(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:16] + bytes((byte * 31 + at) & 255 for at, byte in enumerate(data[16:])))


@hostile
def a_log_that_is_missing(path: Path) -> None:
    changed(path, "PRAGMA journal_mode = WAL", "UPDATE NVTX_EVENTS SET end = end + 1")
    for ending in ("-wal", "-shm"):
        path.with_name(path.name + ending).unlink(missing_ok=True)


@hostile
def a_log_of_somebody_else(path: Path) -> None:
    changed(path, "PRAGMA journal_mode = WAL")
    path.with_name(path.name + "-wal").write_bytes(b"\x37\x7f\x06\x82" + b"\xff" * 5_000)


@hostile
def a_journal_that_is_a_folder(path: Path) -> None:
    path.with_name(path.name + "-journal").mkdir()


@hostile
def text_of_two_bytes_a_letter(path: Path) -> None:
    other = path.with_name("utf16.sqlite")
    connection = sqlite3.connect(other)
    connection.execute("PRAGMA encoding = 'UTF-16le'")
    old = sqlite3.connect(path)
    connection.executescript("\n".join(old.iterdump()))
    connection.close()
    old.close()
    shutil.move(other, path)


@hostile
def a_packed_bomb(path: Path) -> Path:
    packed = path.with_name("bomb.sqlite.gz")
    packed.write_bytes(gzip.compress(path.read_bytes()) + 600 * gzip.compress(bytes(1 << 20)))
    return packed


@hostile
def a_packed_export_that_is_cut(path: Path) -> Path:
    packed = path.with_name("cut.sqlite.gz")
    packed.write_bytes(gzip.compress(path.read_bytes())[:-500])
    return packed


@hostile
def a_folder_of_links_to_itself(path: Path) -> Path:
    folder = path.with_name("folder")
    folder.mkdir()
    for at in range(50):
        (folder / f"{at}.sqlite").symlink_to(path)
    (folder / "loop").symlink_to(folder)
    return folder
