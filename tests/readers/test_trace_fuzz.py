"""Real and made traces, damaged in thousands of ways: refused clearly or read consistently, never worse.

FINDWALL_FUZZ_EXAMPLES sets how many ways are tried for each kind of damage (by default 400, and 150 of those
that go through the whole examination).
"""

from __future__ import annotations

import gzip
import json
import os
import time
from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from timeline_checks import check_consistent
from trace_samples import dump, modern, rocm, torch_1_8

from captures import FIXTURES
from contradictions import impossible
from findwall.errors import InputError
from findwall.examine import examine
from findwall.model.diagnosis import to_json
from findwall.model.events import Timeline
from findwall.model.run import Rank, Run
from findwall.readers import blocks
from findwall.readers.torch_trace import read_trace

EXAMPLES = int(os.environ.get("FINDWALL_FUZZ_EXAMPLES", "400"))
LIMIT_S = 5.0
MOST_EVENTS = 60  # a few of each trace are enough to damage, and quick to read

FUZZ = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize="FINDWALL_FUZZ_EXAMPLES" not in os.environ,
    database=None,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.function_scoped_fixture,
        HealthCheck.data_too_large,
    ],
)


def _recorded() -> list[bytes]:
    """Pieces of real traces: the project's own recordings, and those beside it where there are any."""
    root = Path(__file__).resolve().parents[2]
    paths = sorted(root.glob("tests/fixtures/**/*.json.gz")) + sorted(root.glob("../shared/traces/*.json.gz"))
    texts = []
    for path in paths:
        document = json.loads(gzip.decompress(path.read_bytes()))
        events = document.pop("traceEvents", None) if isinstance(document, dict) else None
        if events:
            sparse = events[:: max(1, len(events) // MOST_EVENTS)]
            texts.append(json.dumps({**document, "traceEvents": sparse}).encode())
    return texts


SAMPLES: list[bytes] = [
    dump(modern(steps=2, ops=2)),
    dump(modern(steps=2, ops=2), style="indented"),
    dump(modern(steps=2, ops=2), style="array"),
    dump(torch_1_8(), {}),
    dump(rocm(), style="compact"),
    *_recorded(),
]

samples = st.integers(0, len(SAMPLES) - 1)  # by number: a failure does not print the whole text
ODD_VALUES: list[Any] = [
    *(None, True, "", "text", -1, 0, 2**31, 2**63, 2**64, -(2**63), 10**30, 1e300, -0.5, [], {}, [[]]),
    *("NaN", "-5", "1e9", "\ud800", "\x00", '"},{"', [None, {"ph": "X"}], {"ph": "X", "ts": 1}),
    *(float("nan"), float("inf"), -float("inf")),
]


def survives(path: Path, content: bytes) -> Timeline | None:
    path.write_bytes(content)
    began = time.perf_counter()
    try:
        timeline = read_trace(path, workers=1)
    except InputError as refusal:
        assert refusal.message
        assert "\n" not in str(refusal)
        timeline = None
    else:
        check_consistent(timeline)
    assert time.perf_counter() - began < LIMIT_S
    return timeline


@lru_cache
def whole(sample: int) -> Timeline:
    with NamedTemporaryFile() as file:
        file.write(SAMPLES[sample])
        file.flush()
        return read_trace(Path(file.name), workers=1)


def _durations(timeline: Timeline) -> Counter[tuple[str, int]]:
    rows = zip(timeline.events.name.tolist(), timeline.events.duration.tolist(), strict=True)
    return Counter((timeline.names[name], duration) for name, duration in rows)


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 5000)  # several blocks even in a small file
    monkeypatch.setattr(blocks, "_TAIL_BYTES", 1500)
    return tmp_path / "trace.json"


@FUZZ
@given(data=st.data(), sample=samples)
def test_bytes_changed(target: Path, data: st.DataObject, sample: int) -> None:
    text = SAMPLES[sample]
    damaged = bytearray(text)
    places = st.integers(0, len(text) - 1)
    for _ in range(data.draw(st.integers(1, 8))):
        damaged[data.draw(places)] = data.draw(
            st.one_of(st.integers(0, 255), st.sampled_from(b'"{}[],:\\-+eE.0'))
        )
    survives(target, bytes(damaged))


@FUZZ
@given(data=st.data(), sample=samples)
def test_pieces_cut_out_doubled_or_put_in(target: Path, data: st.DataObject, sample: int) -> None:
    text = SAMPLES[sample]
    for _ in range(data.draw(st.integers(1, 3))):
        begin = data.draw(st.integers(0, len(text)))
        end = min(len(text), begin + data.draw(st.integers(0, 400)))
        put = data.draw(
            st.sampled_from([b"", text[begin:end] * 2, b"},{", b"]}", b'"', b"[" * 50, b"\xff\x00", b"nan"])
        )
        text = text[:begin] + put + text[end:]
    survives(target, text)


@FUZZ
@given(data=st.data(), sample=samples)
def test_cut_off(target: Path, data: st.DataObject, sample: int) -> None:
    text = SAMPLES[sample]
    timeline = survives(target, text[: data.draw(st.integers(0, len(text)))])
    if timeline is not None:
        assert _durations(timeline) <= _durations(whole(sample))  # nothing is made up


@FUZZ
@given(data=st.data(), sample=samples)
def test_gzip_damaged(target: Path, data: st.DataObject, sample: int) -> None:
    text = SAMPLES[sample]
    packed = bytearray(gzip.compress(text, mtime=0))
    for _ in range(data.draw(st.integers(0, 4))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    survives(target, bytes(packed[: data.draw(st.integers(1, len(packed)))]))


@FUZZ
@given(data=st.data(), sample=samples)
def test_fields_retyped_removed_doubled(target: Path, data: st.DataObject, sample: int) -> None:
    text = SAMPLES[sample]
    document = json.loads(text)
    events = document if isinstance(document, list) else document["traceEvents"]
    changes: list[Callable[[dict[str, Any], str], None]] = [
        lambda record, key: record.pop(key, None),
        lambda record, key: record.__setitem__(key, data.draw(st.sampled_from(ODD_VALUES))),
    ]
    for _ in range(data.draw(st.integers(1, 12))):
        index = data.draw(st.integers(0, len(events) - 1))
        event = events[index]
        record = event.get("args") if isinstance(event, dict) and data.draw(st.booleans()) else event
        if not isinstance(record, dict) or not record:
            events.insert(index, data.draw(st.sampled_from(ODD_VALUES)))
            continue
        data.draw(st.sampled_from(changes))(record, data.draw(st.sampled_from(sorted(record))))
        if data.draw(st.booleans()):
            events.append(event)
    survives(
        target, json.dumps(document, ensure_ascii=data.draw(st.booleans())).encode("utf-8", "surrogatepass")
    )


@FUZZ
@given(content=st.binary(max_size=300))
def test_anything_at_all(target: Path, content: bytes) -> None:
    survives(target, content)
    survives(target, b'{"traceEvents": [' + content)
    survives(target, b"\x1f\x8b\x08\x00" + content)


EXAMINED = settings(FUZZ, max_examples=int(os.environ.get("FINDWALL_FUZZ_EXAMPLES", "150")))
ROWS_EXAMINED = 300  # of the beginning of each recording, with the device rows they launched
RECORDINGS = (
    *("eager_training", "compiled_training", "cuda_graph_replay", "inference", "python_stacks"),
    *("jobs/graph_messages", "jobs/slow_loader", "jobs/pageable_batches", "jobs/json_logging"),
)
Row = dict[str, Any]


@lru_cache
def _recording(name: str) -> str:
    """The first rows of a recording as text, whole in themselves: launches with their kernels."""
    document = json.loads(gzip.decompress((FIXTURES / f"{name}.json.gz").read_bytes()))
    events = [one for one in document["traceEvents"] if one.get("ph") == "X" and "ts" in one]
    events.sort(key=lambda one: float(one["ts"]))
    host = [one for one in events if not _on_device(one)][:ROWS_EXAMINED]
    launched = {one.get("args", {}).get("correlation") for one in host} - {None}
    device = [one for one in events if _on_device(one) and one.get("args", {}).get("correlation") in launched]
    return json.dumps({**document, "traceEvents": host + device[:ROWS_EXAMINED]})


def _on_device(row: Row) -> bool:
    return row.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset", "gpu_user_annotation")


def _delete(rows: list[Row], chosen: list[Row], data: st.DataObject) -> None:
    gone = {id(row) for row in chosen}
    rows[:] = [row for row in rows if id(row) not in gone]


def _duplicate(rows: list[Row], chosen: list[Row], data: st.DataObject) -> None:
    rows += [{**row, "args": dict(row.get("args", {}))} for row in chosen]


def _change_times(rows: list[Row], chosen: list[Row], data: st.DataObject) -> None:
    ts, dur = data.draw(
        st.sampled_from([(-1, 1), (1, -1), (1, 0), (0, 1), (1, 1000), (1, 0.001), (0.999999, 1), (-1, -1)])
    )
    shift = data.draw(st.sampled_from([0, 0, -1e6, 1e6, -50, 50, 5e10]))
    for row in chosen:
        row["ts"], row["dur"] = float(row["ts"]) * ts + shift, float(row["dur"]) * dur


def _permute_times(rows: list[Row], chosen: list[Row], data: st.DataObject) -> None:
    starts = [row["ts"] for row in chosen]
    for row, start in zip(chosen, reversed(starts), strict=True):
        row["ts"] = start


def _swap_kinds(rows: list[Row], chosen: list[Row], data: st.DataObject) -> None:
    kinds = (
        "kernel",
        "cpu_op",
        "cuda_runtime",
        "gpu_memcpy",
        "user_annotation",
        "python_function",
        "gpu_memset",
    )
    put = data.draw(st.sampled_from(kinds))
    for row in chosen:
        row["cat"] = put


def _swap_names(rows: list[Row], chosen: list[Row], data: st.DataObject) -> None:
    put = data.draw(
        st.sampled_from(
            [
                *(
                    "ProfilerStep#1",
                    "aten::mm",
                    "cudaLaunchKernel",
                    "cudaDeviceSynchronize",
                    "cudaGraphLaunch",
                ),
                *("ncclDevKernel_AllReduce_Sum_f32_RING_LL", "Optimizer.step#SGD.step", "Memcpy HtoD", ""),
                *("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", "ampere_sgemm_128x128_nn"),
            ]
        )
    )
    for row in chosen:
        row["name"] = put


def _collide(rows: list[Row], chosen: list[Row], data: st.DataObject) -> None:
    field = data.draw(st.sampled_from(["correlation", "External id", "stream", "device", "Sequence number"]))
    of = data.draw(st.sampled_from([1, 2, 7]))
    for at, row in enumerate(chosen):
        row["args"] = {**row.get("args", {}), field: at % of}


def _move(rows: list[Row], chosen: list[Row], data: st.DataObject) -> None:
    track = data.draw(st.sampled_from([(0, 7), (1, 1), ("a", "b"), (-1, -1)]))
    for row in chosen:
        row["pid"], row["tid"] = track


def _resize(rows: list[Row], chosen: list[Row], data: st.DataObject) -> None:
    dims = data.draw(
        st.sampled_from([[], [[]], [[0, 0], [0, 0]], [[-5, 3], [3, 2]], [[2**40, 2**40], [2**40, 1]]])
    )
    for row in chosen:
        row["args"] = {**row.get("args", {}), "Input Dims": dims, "grid": [0, -1, 2**40], "bytes": -7}


MUTATIONS = (
    *(_delete, _duplicate, _change_times, _permute_times, _swap_kinds, _swap_names, _collide, _move, _resize),
)


@EXAMINED
@given(
    data=st.data(), name=st.sampled_from(RECORDINGS), step_ms=st.sampled_from([None, None, 0.01, 3.0, 5e4])
)
def test_structure_changed(tmp_path: Path, data: st.DataObject, name: str, step_ms: float | None) -> None:
    """Valid text that no profiler wrote, through the whole examination: no figure that cannot be."""
    document = json.loads(_recording(name))
    rows = document["traceEvents"]
    for _ in range(data.draw(st.integers(1, 4))):
        begin = data.draw(st.integers(0, len(rows)))
        stride = data.draw(st.sampled_from([1, 1, 2, 5]))
        side = data.draw(st.sampled_from([None, True, False]))
        among = [row for row in rows if side is None or _on_device(row) == side]
        chosen = among[begin : begin + data.draw(st.sampled_from([1, 10, 100, 10**6])) : stride]
        data.draw(st.sampled_from(MUTATIONS))(rows, chosen, data)
    timeline = survives(tmp_path / "trace.json", json.dumps(document).encode())
    if timeline is None:
        return
    run = Run("torch-trace", (name,), (Rank(0, timeline),))
    try:
        diagnosis = examine(run, step_ms=step_ms)
    except InputError as refusal:
        assert refusal.message
        return
    assert impossible(json.loads(to_json(diagnosis))) == []
