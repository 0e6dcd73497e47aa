"""What the reader makes of each generation's traces."""

from __future__ import annotations

import gzip
import json
import os
import random
import signal
import threading
from pathlib import Path

import numpy as np
import pytest
from timeline_checks import as_rows, check_consistent, same_timeline
from trace_samples import Number, complete, dump, modern, rocm, save, torch_1_8

from findwall.model.events import Kind, Timeline
from findwall.readers.torch_trace import decoding_pool as pool
from findwall.readers.torch_trace import read_trace
from findwall.readers.torch_trace import text_blocks as blocks


def rows_named(timeline: Timeline, name: str) -> list[int]:
    number = timeline.names.index(name)
    return np.flatnonzero(timeline.events.name == number).tolist()


@pytest.fixture
def timeline(tmp_path: Path) -> Timeline:
    return read_trace(save(tmp_path / "trace.json", modern()))


def test_every_kind_of_row_is_told_by_its_category(timeline: Timeline) -> None:
    check_consistent(timeline)
    counts = {kind.name: len(timeline.rows(kind)) for kind in Kind}
    assert counts == {
        "OP": 12,
        "ANNOTATION": 3,
        "RUNTIME": 15,
        "PYTHON": 12,
        "OVERHEAD": 3,
        "KERNEL": 12,
        "MEMCPY": 3,
        "MEMSET": 3,
        "DEVICE_ANNOTATION": 3,
        "SYNC": 3,
        "OTHER": 0,
        "CAPTURED": 0,
    }


def test_a_kernel_keeps_its_ids_and_its_launch(timeline: Timeline) -> None:
    row = timeline.rows(Kind.KERNEL)[1]
    events, launch = timeline.events, timeline.launch_of(row)
    assert timeline.name_of(row) == "void at::native::vectorized_elementwise_kernel<4>"
    assert (events.device[row], events.stream[row]) == (0, 7)
    call = np.flatnonzero((events.kind == Kind.RUNTIME) & (events.correlation == events.correlation[row]))
    assert [timeline.name_of(r) for r in call] == ["cudaLaunchKernel"]
    assert launch is not None
    assert (launch.grid, launch.block, launch.shared_memory, launch.registers) == (
        (2, 1, 1),
        (128, 1, 1),
        1024,
        32,
    )
    assert events.duration[row] == 30_217


def test_an_op_keeps_its_inputs(timeline: Timeline) -> None:
    row = rows_named(timeline, "aten::op2")[0]
    inputs = timeline.inputs_of(row)
    assert inputs is not None
    assert inputs.dims == [[32, 16], [16]]
    assert inputs.types == ["float", "float"]
    assert inputs.strides == [[16, 1], [1]]
    assert timeline.events.sequence[row] == 2
    assert timeline.events.stream[row] == -1


def test_equal_arguments_are_kept_once(timeline: Timeline) -> None:
    assert len(timeline.details.inputs) == 4
    assert len(timeline.details.launch) == 4


def test_copies_syncs_and_memory(timeline: Timeline) -> None:
    events = timeline.events
    assert events.nbytes[timeline.rows(Kind.MEMCPY)].tolist() == [4096] * 3
    assert len(timeline.rows(Kind.SYNC))
    assert timeline.memory is not None
    assert timeline.memory.time.tolist() == [5125, 1_005_125, 2_005_125]
    assert timeline.memory.allocated.tolist() == [1024, 1025, 1026]


def test_the_header_and_the_names_of_threads(timeline: Timeline) -> None:
    header = timeline.header
    assert (header.rank, header.world_size, header.backend) == (3, 8, "nccl")
    assert (header.shapes, header.stacks, header.memory) == (True, True, True)
    assert header.devices[0].name == "NVIDIA H200"
    assert header.base_time_ns == 1790857026000000000 + 1_000_000_000_000_000
    assert "thread 7 (main)" in timeline.thread_names.values()


def test_nothing_is_dropped_in_silence(timeline: Timeline) -> None:
    quality = timeline.quality
    assert quality.events == 100
    assert quality.ignored == {"M": 2, "X Trace": 1, "i": 1, "s": 12, "f": 12}
    assert (quality.damaged, quality.repaired, quality.cut_off, quality.notes) == (0, 0, False, [])


def test_torch_1_8(tmp_path: Path) -> None:
    timeline = read_trace(save(tmp_path / "t.json", torch_1_8(), {"schemaVersion": 1}))
    check_consistent(timeline)
    kinds = [Kind(kind).name for kind in timeline.events.kind]
    assert kinds == ["ANNOTATION", "OP", "RUNTIME", "KERNEL", "MEMSET"]
    assert timeline.events.external.tolist() == [2, 2, 2, 2, -1]
    assert timeline.events.stream.tolist() == [-1, -1, -1, 7, 7]
    extra = timeline.extra_of(1)
    assert extra is not None
    assert extra.call_stack == "a.py(3): f;b.py(9): <module>"
    assert timeline.header.base_time_ns == 1623142623460100_000


def test_rocm(tmp_path: Path) -> None:
    header = {"roctracer_version": 4.1, "hip_runtime_version": 60443483}
    timeline = read_trace(save(tmp_path / "t.json", rocm(), header))
    check_consistent(timeline)
    assert timeline.quality.repaired == 0
    assert [Kind(kind).name for kind in timeline.events.kind] == ["RUNTIME", "KERNEL"]
    assert timeline.events.device.tolist() == [-1, 2]


@pytest.mark.parametrize(
    ("category", "kind"),
    [
        ("hip_runtime", Kind.RUNTIME),
        ("cuda_driver", Kind.RUNTIME),
        ("xpu_runtime", Kind.RUNTIME),
        ("privateuse1_driver", Kind.RUNTIME),
        ("concurrent_kernel", Kind.KERNEL),
        ("Memcpy", Kind.MEMCPY),
        ("something new", Kind.OTHER),
        ("", Kind.OTHER),
    ],
)
def test_other_categories(tmp_path: Path, category: str, kind: Kind) -> None:
    timeline = read_trace(save(tmp_path / "t.json", [complete(category, "name", "5", "1")]))
    assert timeline.events.kind.tolist() == [kind]


def test_nanoseconds_survive(tmp_path: Path) -> None:
    """A float64 cannot hold these."""
    events = [complete("kernel", "k", f"1712195495519689.{n:03d}", "0.001", pid=0) for n in (47, 48, 49)]
    timeline = read_trace(save(tmp_path / "t.json", events, {}))
    assert timeline.events.start.tolist() == [0, 1, 2]
    assert timeline.events.duration.tolist() == [1, 1, 1]
    assert timeline.header.base_time_ns == 1712195495519689047


@pytest.mark.parametrize("style", ["compact", "indented", "array"])
def test_the_layout_of_the_text_does_not_matter(tmp_path: Path, timeline: Timeline, style: str) -> None:
    other = read_trace(save(tmp_path / "other.json", modern(), style=style))
    assert same_timeline(timeline, other)
    assert (other.header == timeline.header) == (style != "array")


def test_compression_is_recognised_by_content(tmp_path: Path, timeline: Timeline) -> None:
    text = dump(modern())
    half = len(text) // 2
    misnamed = tmp_path / "not-compressed-by-its-name.json"
    misnamed.write_bytes(gzip.compress(text[:half]) + gzip.compress(text[half:]) + b"\0\0")
    assert same_timeline(timeline, read_trace(misnamed))


def test_zstd(tmp_path: Path, timeline: Timeline) -> None:
    zstandard = pytest.importorskip("zstandard")
    path = tmp_path / "t.json.zst"
    path.write_bytes(zstandard.compress(dump(modern())))
    assert same_timeline(timeline, read_trace(path))


def test_small_blocks_give_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, timeline: Timeline
) -> None:
    """Names and nested lists that look like a border between events are cut wrongly, and mended."""
    events = modern(steps=6)
    for number in range(40):
        args = {"External id": number, "parts": [{"a": 1}, {"b": [{"c": 2}, {"d": 3}]}]}
        events.append(
            complete("cpu_op", f'odd }},  {{ "{number}"', f"{1_000_000_000_000 + number}.5", "1", args=args)
        )
    plain, packed = save(tmp_path / "t.json", events), save(tmp_path / "t.json.gz", events)
    whole = read_trace(plain)
    assert whole.quality.damaged == 0
    for size in (300, 700, 2000, 9000):
        monkeypatch.setattr(blocks, "BLOCK_BYTES", size)
        monkeypatch.setattr(blocks, "_TAIL_BYTES", 200)
        for path in (plain, packed):
            cut = read_trace(path, workers=1)
            assert same_timeline(whole, cut), (size, path)
            assert cut.quality.events == whole.quality.events
            assert cut.header == whole.header


@pytest.mark.skipif(threading.active_count() > 1, reason="forking needs a single thread")
@pytest.mark.parametrize("name", ["t.json", "t.json.gz"])
def test_workers_give_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 4000)
    monkeypatch.setattr(blocks, "_TAIL_BYTES", 1000)
    monkeypatch.setattr(pool, "_may_fork", lambda: True)
    path = save(tmp_path / name, modern(steps=30))
    heard: list[tuple[int, int]] = []
    parallel = read_trace(path, lambda done, total: heard.append((done, total)), workers=3)
    assert same_timeline(parallel, read_trace(path, workers=1))
    assert heard == sorted(heard)
    assert heard[-1] == (path.stat().st_size, path.stat().st_size)


def test_a_worker_that_dies_costs_nothing_but_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 4000)
    monkeypatch.setattr(blocks, "_TAIL_BYTES", 1000)
    monkeypatch.setattr(pool, "_may_fork", lambda: True)
    parent, decode = os.getpid(), pool.decode_block

    def dies_in_workers(text: bytes) -> object:
        if os.getpid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)
        return decode(text)

    path = save(tmp_path / "t.json", modern(steps=30))
    expected = read_trace(path, workers=1)
    monkeypatch.setattr(pool, "decode_block", dies_in_workers)
    assert same_timeline(expected, read_trace(path, workers=2))


def test_begin_and_end_become_one_row(tmp_path: Path) -> None:
    def edge(phase: str, name: str, ts: str) -> dict[str, object]:
        return {"ph": phase, "cat": "cpu_op", "name": name, "pid": 1, "tid": 2, "ts": Number(ts)}

    events = [edge("B", "outer", "10"), edge("B", "inner", "12"), edge("E", "", "15"), edge("E", "", "20.5")]
    events += [edge("E", "stray", "1"), edge("B", "left open", "30")]
    timeline = read_trace(save(tmp_path / "t.json", events))
    check_consistent(timeline)
    found = [(timeline.name_of(row), timeline.events.duration[row]) for row in range(2)]
    assert found == [("outer", 10_500), ("inner", 3_000)]
    assert timeline.quality.ignored == {"B": 1, "E": 3}


def test_flags_inside_metadata(tmp_path: Path) -> None:
    kwargs = {"record_shapes": True, "with_stack": False, "profile_memory": True}
    header = {"metadata": {"profiler": {"torch_profiler_kwargs": kwargs}}}
    timeline = read_trace(save(tmp_path / "t.json", rocm(), header))
    assert (timeline.header.shapes, timeline.header.stacks, timeline.header.memory) == (True, None, True)


def test_members_after_the_events_count(tmp_path: Path) -> None:
    text = json.dumps({"traceEvents": [], "distributedInfo": {"rank": 5}})
    path = tmp_path / "t.json"
    path.write_bytes(text.replace("[]", dump(rocm(), style="array").decode()).encode())
    assert read_trace(path).header.rank == 5


def test_triton_and_nccl_metadata(tmp_path: Path) -> None:
    triton = {"kernel_backend": "triton", "kernel_file": "/tmp/k.py", "stream": 0, "Input Dims": [[4]]}
    nccl = {
        "Collective name": "allreduce",
        "In msg nelems": 10,
        "Group size": 2,
        "dtype": "Float",
        "device": 0,
    }
    events = [
        complete("cpu_op", "triton_poi_fused_add_0", "1", "1", args=triton),
        complete(
            "kernel", "ncclDevKernel", "3", "1", pid=0, args={**nccl, "stream": 20, "graph node id": 99}
        ),
    ]
    timeline = read_trace(save(tmp_path / "t.json", events))
    on_host, on_device = timeline.extra_of(0), timeline.extra_of(1)
    assert (on_host, timeline.events.stream[0], timeline.events.device[0]) == (None, -1, -1)
    assert on_device is not None
    assert (on_device.collective, on_device.in_elements, on_device.group_size) == ("allreduce", 10, 2)
    assert timeline.events.graph_node[1] == 99


def renumbered(events: list[dict[str, object]], seed: int) -> list[dict[str, object]]:
    """The same events under other pids, tids, streams and ids, in another order, without flow arrows."""
    chance = random.Random(seed)
    numbers: dict[tuple[str, object], int] = {}

    def other(what: str, value: object) -> int:
        return numbers.setdefault((what, value), chance.randrange(10**6) * 1000 + len(numbers))

    changed = []
    for event in events:
        if event["ph"] in "sf":
            continue
        args = dict(event.get("args", {}))  # type: ignore[call-overload]
        for name in ("correlation", "External id", "stream"):
            if name in args:
                args[name] = other(name, args[name])
        changed.append(
            {**event, "args": args, "pid": other("pid", event["pid"]), "tid": other("tid", event["tid"])}
        )
    chance.shuffle(changed)
    return changed


def test_shuffled_and_renumbered_files_give_the_same_rows(tmp_path: Path, timeline: Timeline) -> None:
    numbers = ("correlation", "external", "stream")
    expected = as_rows(timeline, numbers)
    for seed in range(5):
        events = renumbered(modern(), seed)
        other = read_trace(save(tmp_path / f"{seed}.json", events))
        assert as_rows(other, numbers) == expected


def test_a_shuffled_file_gives_the_same_timeline(tmp_path: Path, timeline: Timeline) -> None:
    events = modern()
    random.Random(1).shuffle(events)
    assert same_timeline(timeline, read_trace(save(tmp_path / "s.json", events)))


def test_time_may_be_shifted(tmp_path: Path, timeline: Timeline) -> None:
    text = dump(modern()).replace(b'"ts": 10000000', b'"ts": 10000777')
    path = tmp_path / "shifted.json"
    path.write_bytes(text)
    shifted = read_trace(path)
    assert same_timeline(timeline, shifted)
    assert shifted.header.base_time_ns > timeline.header.base_time_ns


def test_several_devices_in_one_process(tmp_path: Path) -> None:
    events = modern(2)
    for number, event in enumerate(modern(2)):
        if event.get("pid") == 0:
            args = {**event.get("args", {}), "correlation": 10_000 + number}
            if "device" in args:
                args["device"] = 1
            events.append({**event, "pid": 1, "args": args})
    timeline = read_trace(save(tmp_path / "t.json", events))
    check_consistent(timeline)
    kernels = timeline.rows(Kind.KERNEL)
    assert np.bincount(timeline.events.device[kernels]).tolist() == [8, 8]
    shadows = timeline.rows(Kind.DEVICE_ANNOTATION)  # they name no device themselves
    assert sorted(timeline.events.device[shadows].tolist()) == [0, 0, 1, 1]
    assert not timeline.quality.notes


def test_merged_processes_stay_apart(tmp_path: Path) -> None:
    """Two ranks in one file: the same thread ids and correlation ids under other pids."""
    other = []
    for event in modern(2):
        args = dict(event.get("args", {}))
        if "device" in args:
            args["device"] = 4
        pid = {100: 200, 0: 4}.get(event["pid"], event["pid"])
        other.append({**event, "pid": pid, "args": args})
    timeline = read_trace(save(tmp_path / "t.json", modern(2) + other))
    check_consistent(timeline)
    hosts = timeline.events.process[timeline.rows(Kind.OP)]
    assert {timeline.processes[number] for number in hosts.tolist()} == {"100", "200"}
    assert np.bincount(hosts).max() == 8
    assert len({timeline.threads[t] for t in timeline.events.thread[timeline.rows(Kind.OP)].tolist()}) == 2
    assert sorted(set(timeline.events.device[timeline.rows(Kind.KERNEL)].tolist())) == [0, 4]
    assert not timeline.quality.notes
