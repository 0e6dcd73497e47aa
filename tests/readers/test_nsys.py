"""Nsight Systems exports: recorded ones, made ones of every schema, and what a reader must refuse."""

from __future__ import annotations

import gzip
import os
import sqlite3
import stat
import struct
from pathlib import Path

import numpy as np
import pytest

from findwall import api
from findwall.errors import InputError
from findwall.model.events import Kind, Timeline
from findwall.readers import open_run
from findwall.readers.nsys import range_processes, read_export
from findwall.readers.nsys.database import LONGEST_TEXT, Database
from findwall.readers.nsys.nsys_names import WHOLE_GRAPH, call_name, copy_name, kernel_name
from findwall.step.links import link
from nsys_tables import SCHEMA, Export, global_id

MS = 1_000_000
ADD = "void at::native::vectorized_elementwise_kernel<(int)4, at::native::CUDAFunctor_add<float>>(int, T2)"


def kernel(
    export: Export, start: int, correlation: int, process: int = 10, device: int = 0
) -> tuple[object, ...]:
    place = (start, start + MS, device, 1, 0, 7, correlation, global_id(process))
    name = export.string(ADD)
    return *place, name, name, 32, 512, 1, 1, 128, 1, 1, 0, 0, None


def launch(export: Export, start: int, correlation: int, process: int = 10) -> tuple[object, ...]:
    thread = global_id(process, process)
    return start, start + 5_000, 0, thread, correlation, export.string("cudaLaunchKernel_v7000"), 0


def nvtx(start: int, end: int | None, text: str, process: int = 10, kind: int = 59) -> tuple[object, ...]:
    return start, end, kind, None, None, None, text, global_id(process, process), None, None, 0, None, None


def small(path: Path, processes: tuple[int, ...] = (10,)) -> Path:
    """Four launches of one op a process, correlation ids the same in each."""
    export = Export(path)
    for device, process in enumerate(processes):
        starts = [(at + 1) * 2 * MS for at in range(4)]
        kernels = [kernel(export, start + 10_000, at + 1, process, device) for at, start in enumerate(starts)]
        export.insert("CUPTI_ACTIVITY_KIND_KERNEL", kernels)
        calls = [launch(export, start, at + 1, process) for at, start in enumerate(starts)]
        export.insert("CUPTI_ACTIVITY_KIND_RUNTIME", calls)
        text = (
            "aten::add, seq = {}, op_id = {}, sizes = [[256, 1024], [256, 1024], []], input_op_ids = [(1, 0)]"
        )
        export.insert(
            "NVTX_EVENTS",
            [
                nvtx(start - 5_000, start + 8_000, text.format(at, at), process)
                for at, start in enumerate(starts)
            ],
        )
    export.close()
    return path


def changed(path: Path, *statements: str) -> Path:
    connection = sqlite3.connect(path)
    connection.executescript(";".join(statements))
    connection.commit()
    connection.close()
    return path


def only(path: Path) -> Timeline:
    (rank,) = read_export(path).ranks
    assert rank.timeline is not None
    return rank.timeline


def names_of(timeline: Timeline, *kinds: Kind) -> list[str]:
    return [timeline.name_of(row) for row in timeline.rows(*kinds).tolist()]


# --- recorded


@pytest.fixture(scope="module")
def recorded(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("nsys")
    if not (shared / "nsys").is_dir():
        pytest.skip("../shared/nsys is not beside the project")
    for path in (shared / "nsys").glob("*.sqlite.gz"):
        (folder / path.stem).write_bytes(gzip.decompress(path.read_bytes()))
    return folder


def test_two_processes_of_an_export_are_two_ranks(recorded: Path) -> None:
    found = read_export(recorded / "mfu_2gpu_before.sqlite")
    assert [rank.number for rank in found.ranks] == [0, 1]
    kernels = []
    for timeline in found.timelines:
        links, rows = link(timeline), timeline.rows(Kind.KERNEL)
        launched = rows[links.launch[rows] >= 0]
        kernels.append(len(rows))
        assert len(launched) / len(rows) == pytest.approx(0.994, abs=5e-4)
        assert (links.op[launched] >= 0).all()
    assert kernels == [1993, 2017]
    first = found.timelines[0]
    rows = first.rows(Kind.KERNEL)
    spent = np.bincount(first.events.name[rows], first.events.duration[rows], len(first.names)) / MS
    by_word = {
        word: sum(float(ms) for name, ms in zip(first.names, spent, strict=True) if f"{word}<" in name)
        for word in ("::flash_fwd_kernel", "::elementwise_kernel", "::vectorized_elementwise_kernel")
    }
    assert list(by_word.values()) == pytest.approx([135.96, 43.02, 21.71], abs=5e-3)


def test_the_document_of_two_ranks(recorded: Path) -> None:
    found = api.read(recorded / "mfu_2gpu_before.sqlite")
    assert (found.source.kind, found.source.ranks, found.machine.device) == ("nsys", 2, None)
    idle = [one.idle_share for one in found.timeline.per_device]
    assert idle == pytest.approx([0.0868, 0.1051], abs=5e-5)
    assert found.timeline.comm_ms == pytest.approx(17.17, abs=5e-3)
    assert found.timeline.comm_hidden_share == 0.0
    assert found.ranks is not None and found.ranks.matched == 2 * 33
    assert found.ranks.replay_error == pytest.approx(0, abs=0.02)
    assert not any(one.named for one in found.ranks.suspects)  # one step names nobody
    assert found.wall.cause is None and any("--gpu" in note for note in found.notes)
    named = api.read(recorded / "mfu_2gpu_before.sqlite", gpu="H200")
    assert named.machine.device == "NVIDIA H200" and named.machine.ceilings["source"] == "table"


def test_a_program_that_hardly_uses_its_gpu(recorded: Path) -> None:
    found = api.read(recorded / "mock.sqlite")
    assert found.machine.device == "NVIDIA GeForce RTX 3080"
    assert found.timeline.idle_share == pytest.approx(0.9997, abs=5e-5)
    assert sum(row.calls for row in found.kernels if row.class_ != "memcpy") == pytest.approx(2)
    assert found.wall.cause is None and ["data", "loader-starved"] in found.wall.between


def test_the_environment_in_an_export_is_not_even_readable(recorded: Path) -> None:
    path = recorded / "mfu_2gpu_before.sqlite"
    assert b"planted-7f3a" in path.read_bytes()
    database = Database(path)
    with pytest.raises(InputError, match="prohibited"):
        list(database.rows("SELECT value FROM META_DATA_CAPTURE"))
    database.close()


# --- what rows become


def test_ops_have_shapes_numbers_and_kernels(tmp_path: Path) -> None:
    timeline = only(small(tmp_path / "a.sqlite"))
    links, rows = link(timeline), timeline.rows(Kind.KERNEL)
    assert names_of(timeline, Kind.OP) == ["aten::add"] * 4
    assert names_of(timeline, Kind.RUNTIME) == ["cudaLaunchKernel"] * 4
    assert (links.op[rows] >= 0).all()
    inputs = timeline.inputs_of(int(links.op[rows[0]]))
    assert inputs is not None and inputs.dims == [[256, 1024], [256, 1024], []] and inputs.types == []
    assert timeline.events.sequence[timeline.rows(Kind.OP)].tolist() == [0, 1, 2, 3]
    shape = timeline.launch_of(int(rows[0]))
    assert shape is not None and (shape.grid, shape.block, shape.registers) == ((512, 1, 1), (128, 1, 1), 32)


def test_correlation_ids_belong_to_their_process(tmp_path: Path) -> None:
    run = read_export(small(tmp_path / "a.sqlite", processes=(10, 11)))
    for timeline, number in zip(run.timelines, ("10", "11"), strict=True):
        links = link(timeline)
        assert links.ambiguous == 0 and links.kernels_without_launch == 0
        assert number in timeline.processes


def test_older_exports_do_not_name_the_process_of_a_kernel(tmp_path: Path) -> None:
    path = small(tmp_path / "a.sqlite", processes=(10, 11))
    changed(
        path,
        "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET contextId = deviceId + 1",
        "UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET correlationId = correlationId + 100 "
        "WHERE globalTid & 255 = 11",
        "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET correlationId = correlationId + 100 WHERE deviceId = 1",
        "ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN globalPid",
    )
    found = read_export(path)
    assert len(found.ranks) == 2
    assert all(link(timeline).kernels_without_launch == 0 for timeline in found.timelines)


def test_rows_that_nobody_launched_are_counted_not_guessed(tmp_path: Path) -> None:
    path = small(tmp_path / "a.sqlite", processes=(10, 11))
    changed(path, "ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN globalPid")
    with pytest.raises(InputError, match="does not say which process"):
        read_export(path)


def test_processes_whose_contexts_share_a_number_are_not_thrown_together(tmp_path: Path) -> None:
    path = small(tmp_path / "a.sqlite", processes=(10, 11))
    changed(
        path,
        # The one that launched more rows answers most ids, those of the other among them.
        "DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE deviceId = 0 AND correlationId > 2",
        "DELETE FROM CUPTI_ACTIVITY_KIND_RUNTIME WHERE globalTid & 255 = 10 AND correlationId > 2",
        "ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN globalPid",
    )
    with pytest.raises(InputError, match="does not say which process"):
        read_export(path)


def test_texts_may_lie_in_the_table_of_strings(tmp_path: Path) -> None:
    path = small(tmp_path / "a.sqlite")
    changed(
        path,
        "INSERT INTO StringIds VALUES (900, 'aten::add, seq = 1')",
        "UPDATE NVTX_EVENTS SET textId = 900, text = NULL",
    )
    assert names_of(only(path), Kind.OP) == ["aten::add"] * 4


@pytest.mark.parametrize(
    ("text", "kind", "name"),
    [
        ("aten::mm, seq = 5, op_id = 7, sizes = [[2, 3], [3, 4]]", Kind.OP, "aten::mm"),
        ("aten::mm, seq = 5, sizes = [[2, 3], [3, 4]]", Kind.OP, "aten::mm"),
        ("FlashAttnFunc, seq = 5, op_id = 7", Kind.OP, "FlashAttnFunc"),
        ("autograd::engine::evaluate_function: MmBackward0, op_id = 7", Kind.OP, None),
        ("Optimizer.step#AdamW.step, op_id = 9", Kind.ANNOTATION, "Optimizer.step#AdamW.step"),
        ("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__, op_id = 2", Kind.ANNOTATION, None),
        ("my block, op_id = 4", Kind.ANNOTATION, "my block"),
        ("nccl:all_reduce, op_id = 4", Kind.ANNOTATION, "nccl:all_reduce"),
        ("FSDP::pre_forward (blocks.19), op_id = 4", Kind.ANNOTATION, None),
        ("forward", Kind.ANNOTATION, "forward"),
    ],
)
def test_a_range_is_an_op_or_somebody_s_own(tmp_path: Path, text: str, kind: Kind, name: str | None) -> None:
    path = small(tmp_path / "a.sqlite")
    connection = sqlite3.connect(path)
    connection.execute("UPDATE NVTX_EVENTS SET text = ?", (text,))
    connection.commit()
    connection.close()
    found = names_of(only(path), kind)
    assert len(found) == 4 and (name is None or set(found) == {name})


def test_odd_texts_neither_break_nor_become_shapes(tmp_path: Path) -> None:
    path = small(tmp_path / "a.sqlite")
    connection = sqlite3.connect(path)
    texts = [
        "aten::mm, seq = 99999999999999999999, op_id = x, sizes = [[1, 2",
        "a\0b",
        "",
        "é, sizes = [[1]]",
    ]
    for number, text in enumerate(texts, 1):
        connection.execute("UPDATE NVTX_EVENTS SET text = ? WHERE rowid = ?", (text, number))
    connection.commit()
    connection.close()
    timeline = only(path)
    assert set(names_of(timeline, Kind.OP, Kind.ANNOTATION)) == {"aten::mm", "a\0b", "", "é"}
    assert timeline.details.inputs == [b'{"dims":[[1]]}']


def test_a_text_without_end_is_cut(tmp_path: Path) -> None:
    path = small(tmp_path / "a.sqlite")
    long = "x" * (LONGEST_TEXT + 10)
    changed(
        path,
        f"UPDATE NVTX_EVENTS SET text = '{long}'",
        f"UPDATE StringIds SET value = '{long}' WHERE value LIKE '%elementwise%'",
    )
    timeline = only(path)
    assert {len(name) for name in names_of(timeline, Kind.ANNOTATION, Kind.KERNEL)} == {LONGEST_TEXT}


def test_ranges_that_may_end_anywhere_nest_nothing(tmp_path: Path) -> None:
    export_path = small(tmp_path / "a.sqlite")
    connection = sqlite3.connect(export_path)
    rows = [
        nvtx(2 * MS, 2 * MS + 7_000, "loose", kind=60),
        nvtx(MS, None, "open"),
        nvtx(MS, None, "m", kind=34),
    ]
    connection.executemany(f"INSERT INTO NVTX_EVENTS VALUES ({','.join('?' * 13)})", rows)
    connection.commit()
    connection.close()
    timeline = only(export_path)
    links = link(timeline)
    (loose,) = (row for row in timeline.rows(Kind.ANNOTATION).tolist() if timeline.name_of(row) == "loose")
    assert loose not in links.parent.tolist()
    assert timeline.quality.ignored == {"NVTX ranges without an end": 1}


def test_copies_tell_pageable_from_pinned(tmp_path: Path) -> None:
    path = small(tmp_path / "a.sqlite")
    row = "({}, {}, 0, 1, 7, 50, {}, 4096, {}, {}, {}, NULL)"
    own = global_id(10)
    rows = [row.format(MS, 2 * MS, own, *kinds) for kinds in ((1, 0, 2), (1, 1, 2), (2, 2, 0), (8, 2, 2))]
    changed(path, *(f"INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES {one}" for one in rows))
    assert sorted(names_of(only(path), Kind.MEMCPY)) == [
        "Memcpy DtoD (Device -> Device)",
        "Memcpy DtoH (Device -> Pageable)",
        "Memcpy HtoD (Pageable -> Device)",
        "Memcpy HtoD (Pinned -> Device)",
    ]


def test_a_whole_graph_is_busy_and_its_contents_unknown(tmp_path: Path) -> None:
    path = small(tmp_path / "a.sqlite")
    own = global_id(10)
    changed(
        path,
        "CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INTEGER, end INTEGER, deviceId INTEGER, "
        "contextId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER, graphId INTEGER)",
        f"INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES ({20 * MS}, {30 * MS}, 0, 1, 7, 90, {own}, 1)",
    )
    timeline = only(path)
    assert names_of(timeline, Kind.KERNEL).count(WHOLE_GRAPH) == 1
    assert any("--cuda-graph-trace=node" in note for note in timeline.quality.notes)
    document = api.read(path, gpu="NVIDIA H200")
    assert document.timeline.busy_ms == pytest.approx(14.0)
    row = next(row for row in document.kernels if row.name == WHOLE_GRAPH)
    assert (row.class_, row.floor_ms, row.bound) == ("other", None, "unknown")


def test_nccl_s_payloads_tell_the_size_of_messages(tmp_path: Path) -> None:
    path = small(tmp_path / "a.sqlite")
    schema = 16777223
    connection = sqlite3.connect(path)
    name = (800, "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)")
    connection.execute("INSERT INTO StringIds VALUES (?, ?)", name)
    connection.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET demangledName = 800")
    connection.execute(
        "CREATE TABLE NVTX_PAYLOAD_SCHEMA_ENTRIES (domainId INTEGER, schemaId INTEGER, idx INTEGER, "
        "name TEXT, offset INTEGER)"
    )
    entry = "INSERT INTO NVTX_PAYLOAD_SCHEMA_ENTRIES VALUES (1, ?, 1, 'Message size [bytes]', 8)"
    connection.execute(entry, (schema,))
    payload = struct.pack("<IIIIQQ", 1, 0, schema, 0, 24, 56) + struct.pack("<QQQ", 7, 8 << 20, 0)
    row = nvtx(2 * MS - 1_000, 2 * MS + 6_000, "ncclAllReduce")
    no_size = struct.pack("<IIIIQQ", 1, 0, schema, 0, 24, 56) + struct.pack("<QQQ", 7, (1 << 64) - 1, 0)
    later = nvtx(4 * MS - 1_000, 4 * MS + 6_000, "ncclAllReduce")
    rows = [(*row[:12], payload), (*later[:12], no_size)]
    connection.executemany(f"INSERT INTO NVTX_EVENTS VALUES ({','.join('?' * 13)})", rows)
    connection.commit()
    connection.close()
    timeline = only(path)
    extras = [timeline.extra_of(row) for row in timeline.rows(Kind.KERNEL).tolist()]
    assert [one is not None for one in extras] == [True, False, False, False]
    assert extras[0] is not None
    assert (extras[0].collective, extras[0].in_elements, extras[0].dtype) == ("allreduce", 8 << 20, "Byte")


def test_calls_of_the_system_in_gaps_are_named(tmp_path: Path) -> None:
    path = small(tmp_path / "a.sqlite")
    thread = global_id(10, 10)
    changed(
        path,
        "CREATE TABLE OSRT_API (start INTEGER, end INTEGER, globalTid INTEGER, nameId INTEGER)",
        "INSERT INTO StringIds VALUES (700, 'fsync')",
        f"INSERT INTO OSRT_API VALUES ({4 * MS + MS + 20_000}, {6 * MS - 1000}, {thread}, 700)",
        f"INSERT INTO OSRT_API VALUES ({MS}, {9 * MS}, {thread + 1}, 700)",
        "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = start + 9000000, end = end + 9000000 "
        "WHERE start > 5000000",
    )
    timeline = only(path)
    assert names_of(timeline, Kind.OTHER) == ["fsync"]
    told = next(note for note in timeline.quality.notes if "calls of the system" in note)
    assert "fsync 979 us" in told


def test_sampled_metrics_are_told(tmp_path: Path) -> None:
    path = small(tmp_path / "a.sqlite")
    changed(
        path,
        "CREATE TABLE GPU_METRICS (timestamp INTEGER, typeId INTEGER, metricId INTEGER, value INTEGER)",
        "CREATE TABLE TARGET_INFO_GPU_METRICS (typeId INTEGER, metricId INTEGER, metricName TEXT)",
        "INSERT INTO TARGET_INFO_GPU_METRICS VALUES (256, 3, 'SMs Active [Throughput %]')",
        f"INSERT INTO GPU_METRICS VALUES ({3 * MS}, 256, 3, 40), ({4 * MS}, 256, 3, 60), (1, 256, 3, 0)",
    )
    assert any("SMs Active 50 %" in note for note in only(path).quality.notes)
    # The process calls the machine's third GPU its first.
    changed(
        path,
        "INSERT INTO TARGET_INFO_CUDA_DEVICE VALUES (2, 0, 10)",
        "INSERT INTO TARGET_INFO_GPU_METRICS VALUES (258, 3, 'SMs Active [Throughput %]')",
        f"INSERT INTO GPU_METRICS VALUES ({3 * MS}, 258, 3, 90)",
    )
    assert any("SMs Active 90 %" in note for note in only(path).quality.notes)


def test_several_exports_are_ranks_too(tmp_path: Path) -> None:
    paths = [small(tmp_path / f"rank{number}.sqlite", (10 + number,)) for number in range(2)]
    found = open_run(paths)
    assert (found.kind, len(found.ranks)) == ("nsys", 2)
    assert len(open_run([tmp_path]).ranks) == 2


def test_a_process_with_other_work_is_no_rank(tmp_path: Path) -> None:
    path = small(tmp_path / "a.sqlite", processes=(10, 11))
    changed(
        path,
        "INSERT INTO StringIds VALUES (600, 'quite_another_kernel')",
        "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET demangledName = 600 WHERE deviceId = 1",
        "DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE deviceId = 1 AND correlationId = 4",
    )
    timeline = only(path)
    assert any(note.startswith("Process 11 is left out") for note in timeline.quality.notes)


def test_ranges_read_beside_are_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = small(tmp_path / "a.sqlite", processes=(10, 11))
    alone = read_export(path, workers=1)
    monkeypatch.setattr(range_processes, "WORTH_A_PROCESS_ROWS", 2)
    monkeypatch.setattr(range_processes, "worker_count", lambda asked: 3)
    for one, other in zip(alone.timelines, read_export(path).timelines, strict=True):
        assert one.names == other.names and one.details.inputs == other.details.inputs
        for column in one.events.__struct_fields__:
            assert np.array_equal(getattr(one.events, column), getattr(other.events, column))


def test_names_as_other_recorders_spell_them() -> None:
    assert call_name("cudaLaunchKernel_v7000") == "cudaLaunchKernel"
    assert call_name("cudaMemcpyAsync_ptsz_v7000") == "cudaMemcpyAsync"
    assert call_name("cudaStreamGetCaptureInfo_v2_v11030") == "cudaStreamGetCaptureInfo_v2"
    assert call_name("cuMemAlloc_v2") == "cuMemAlloc_v2"
    given = (
        "void at::native::<unnamed>::k<(int)4, at::native::f(at::TensorIteratorBase &)::"
        "[lambda(float) (instance 1)], std::array<char *, (unsigned long)2>, (bool)0>(int, T2)"
    )
    assert kernel_name(given) == (
        "void at::native::(anonymous namespace)::k<4, at::native::f(at::TensorIteratorBase&)::"
        "{lambda(float)#1}, "
        "std::array<char*, 2ul>, false>(int, T2)"
    )
    assert copy_name(1, -1, -1) == "Memcpy HtoD (Host -> Device)"
    assert copy_name(0, 0, 2) == "Memcpy (unknown direction)"


# --- refusals: each one line and a hint


def refused(path: Path, match: str) -> InputError:
    with pytest.raises(InputError, match=match) as caught:
        open_run([path])
    assert caught.value.hint and "\n" not in str(caught.value)
    return caught.value


def test_foreign_and_empty_databases(tmp_path: Path) -> None:
    foreign = tmp_path / "other.sqlite"
    changed(foreign, "CREATE TABLE people (name TEXT)", "INSERT INTO people VALUES ('x')")
    refused(foreign, "no export of Nsight Systems")
    empty = tmp_path / "empty.sqlite"
    changed(empty, SCHEMA)
    error = refused(empty, "holds no GPU work")
    assert "--trace=cuda" in error.hint
    nothing = tmp_path / "nothing.sqlite"
    nothing.write_bytes(b"")
    refused(nothing, "nothing.sqlite")


def test_cut_off_and_damaged_databases(tmp_path: Path) -> None:
    whole = small(tmp_path / "a.sqlite").read_bytes()
    for share in (0.01, 0.3, 0.9):
        path = tmp_path / "cut.sqlite"
        path.write_bytes(whole[: int(share * len(whole))])
        refused(path, "cut off")
    torn = bytearray(whole)
    for page in range(1, len(whole) // 4096):
        torn[page * 4096 : page * 4096 + 100] = b"\xff" * 100
    path = tmp_path / "torn.sqlite"
    path.write_bytes(bytes(torn))
    assert "nsys export" in refused(path, "is damaged").hint


def test_text_where_numbers_belong(tmp_path: Path) -> None:
    path = changed(
        small(tmp_path / "a.sqlite"), "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = 'soon' WHERE rowid = 2"
    )
    refused(path, "has text where numbers belong")


def test_rows_that_end_before_they_start_are_left_out_and_told(tmp_path: Path) -> None:
    path = changed(
        small(tmp_path / "a.sqlite"), "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET end = 5 WHERE rowid = 2"
    )
    timeline = only(path)
    assert len(timeline.rows(Kind.KERNEL)) == 3 and timeline.quality.damaged == 1


def test_rows_that_are_all_damaged_are_no_job(tmp_path: Path) -> None:
    path = small(tmp_path / "a.sqlite")
    changed(path, "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET deviceId = NULL")
    refused(path, "none of its 4 device rows has a time and a device")


def test_locked_and_unfinished_databases(tmp_path: Path) -> None:
    path = small(tmp_path / "a.sqlite")
    writer = sqlite3.connect(path)
    writer.execute("BEGIN EXCLUSIVE")
    refused(path, "is locked")
    writer.rollback()
    writer.execute("PRAGMA journal_mode=WAL")
    writer.execute("INSERT INTO StringIds VALUES (999, 'more')")
    writer.commit()
    refused(path, "is being written")
    writer.close()
    before = sorted(tmp_path.iterdir())
    assert len(only(path).rows(Kind.KERNEL)) == 4
    assert sorted(tmp_path.iterdir()) == before


def test_an_export_may_be_read_only(tmp_path: Path) -> None:
    path = small(tmp_path / "a.sqlite")
    path.chmod(stat.S_IRUSR)
    tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        assert len(only(path).rows(Kind.KERNEL)) == 4
    finally:
        tmp_path.chmod(stat.S_IRWXU)


# --- reports


def test_a_report_names_the_export_to_type(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = tmp_path / "my run.nsys-rep"
    report.write_bytes(b"\x01\x02whatever a report begins with")
    monkeypatch.setenv("PATH", str(tmp_path))
    error = refused(report, "only nsys can open")
    assert f"nsys export --type sqlite --output '{tmp_path}/my run.sqlite'" in error.hint


@pytest.mark.parametrize("path", [".", "", ".:/bin", ":/bin", "bin"])
def test_no_nsys_of_the_current_folder_is_run(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    for place in (tmp_path, tmp_path / "bin"):
        (place / "nsys").write_text(f"#!/bin/sh\n/bin/touch '{tmp_path}/it-ran'\n")
        (place / "nsys").chmod(0o755)
    (tmp_path / "run.nsys-rep").write_bytes(b"\x01\x02")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", path)
    refused(Path("run.nsys-rep"), "nsys is not on PATH")
    assert not (tmp_path / "it-ran").exists()


def test_a_report_is_exported_where_nsys_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    export = small(tmp_path / "made.sqlite")
    tool = tmp_path / "nsys"
    tool.write_text(f'#!/bin/sh\n/bin/cp "{export}" "$5"\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/bin")
    report = tmp_path / "run.qdrep"
    report.write_bytes(b"\x01\x02")
    found = open_run([report])
    assert found.timelines[0].path == str(report) and len(found.timelines[0].rows(Kind.KERNEL)) == 4
    changed(export, "DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL")
    refused(report, f"{report} holds no GPU work")
    tool.write_text("#!/bin/sh\nexit 3\n")
    refused(report, "ended with 3")


def test_a_packed_export_is_the_same_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = small(tmp_path / "job.sqlite")
    packed = tmp_path / "job.sqlite.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    one, other = open_run([plain]).ranks[0].timeline, open_run([packed]).ranks[0].timeline
    assert one is not None and other is not None
    assert (other.path, list(other.names)) == (str(packed), list(one.names))
    assert np.array_equal(other.events.start, one.events.start)
    for content in (packed.read_bytes()[:-40], gzip.compress(plain.read_bytes()[:5000])):
        packed.write_bytes(content)
        with pytest.raises(InputError, match=r"job\.sqlite\.gz") as raised:
            open_run([packed])
        assert str(scratch) not in str(raised.value)
    assert list(scratch.iterdir()) == []
