"""Traces that no profiler wrote: damaged texts, and sound ones whose rows cannot be."""

from __future__ import annotations

import gzip
import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from captures import FIXTURES, SHARED
from contradictions import impossible
from findwall.errors import InputError
from findwall.examine import examine
from findwall.model.diagnosis import to_json
from findwall.model.events import Timeline
from findwall.model.measured_run import Rank, Run
from findwall.readers.torch_trace import read_trace
from readers.timeline_checks import check_consistent
from readers.trace_samples import dump, modern, rocm, torch_1_8
from soak.chance import Chance

MOST_EVENTS = 60  # a few of each trace are enough to damage, and quick to read
ROWS_EXAMINED = 300  # of the beginning of each recording, with the device rows they launched
RECORDINGS = (
    *("eager_training", "compiled_training", "cuda_graph_replay", "inference", "python_stacks"),
    *("jobs/graph_messages", "jobs/slow_loader", "jobs/pageable_batches", "jobs/json_logging"),
)
STEP_MS = (None, None, 0.01, 3.0, 5e4)
Row = dict[str, Any]
ODD_VALUES: list[Any] = [
    *(None, True, "", "text", -1, 0, 2**31, 2**63, 2**64, -(2**63), 10**30, 1e300, -0.5, [], {}, [[]]),
    *("NaN", "-5", "1e9", "\ud800", "\x00", '"},{"', [None, {"ph": "X"}], {"ph": "X", "ts": 1}),
    *(float("nan"), float("inf"), -float("inf")),
]


@lru_cache
def samples() -> list[bytes]:
    """Small whole traces of every generation, and pieces of recorded ones."""
    made = [dump(modern(steps=2, ops=2), style=style) for style in ("kineto", "indented", "array")]
    return [*made, dump(torch_1_8(), {}), dump(rocm(), style="compact"), *_recorded()]


def _recorded() -> list[bytes]:
    """The project's own recordings, and those beside it where there are any."""
    texts = []
    for path in sorted(FIXTURES.glob("**/*.json.gz")) + sorted((SHARED / "traces").glob("*.json.gz")):
        text = gzip.decompress(path.read_bytes())
        if not text.lstrip().startswith(b"{"):
            continue
        document = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        # Of hundreds of megabytes only the rows that are taken are made objects.
        rows = msgspec.json.decode(document.pop("traceEvents", b"[]"), type=list[msgspec.Raw])
        sparse = [msgspec.json.decode(one) for one in rows[:: max(1, len(rows) // MOST_EVENTS)]]
        if sparse:
            rest = {name: msgspec.json.decode(one) for name, one in document.items()}
            texts.append(json.dumps({**rest, "traceEvents": sparse}).encode())
    return texts


def survives(path: Path, content: bytes) -> Timeline | None:
    """Refused in one line, or read consistently."""
    path.write_bytes(content)
    try:
        timeline = read_trace(path, workers=1)
    except InputError as refusal:
        assert refusal.message
        assert "\n" not in str(refusal)
        return None
    check_consistent(timeline)
    return timeline


# Texts.


def change_bytes(text: bytes, chance: Chance) -> bytes:
    damaged = bytearray(text)
    for _ in range(chance.number(1, 8)):
        at = chance.number(0, len(text) - 1)
        damaged[at] = chance.one_of([chance.number(0, 255), chance.one_of(b'"{}[],:\\-+eE.0')])
    return bytes(damaged)


def cut_and_put(text: bytes, chance: Chance) -> bytes:
    """Pieces cut out, doubled or put in."""
    for _ in range(chance.number(1, 3)):
        begin = chance.number(0, len(text))
        end = min(len(text), begin + chance.number(0, 400))
        put = chance.one_of(
            [b"", text[begin:end] * 2, b"},{", b"]}", b'"', b"[" * 50, b"\xff\x00", b"nan"],
        )
        text = text[:begin] + put + text[end:]
    return text


def damage_gzip(text: bytes, chance: Chance) -> bytes:
    packed = bytearray(gzip.compress(text, mtime=0))
    for _ in range(chance.number(0, 4)):
        packed[chance.number(0, len(packed) - 1)] = chance.number(0, 255)
    return bytes(packed[: chance.number(1, len(packed))])


def retype_fields(text: bytes, chance: Chance) -> bytes:
    """Fields given odd values, taken out; rows doubled."""
    document = json.loads(text)
    events = document if isinstance(document, list) else document["traceEvents"]
    for _ in range(chance.number(1, 12)):
        index = chance.number(0, len(events) - 1)
        event = events[index]
        record = event.get("args") if isinstance(event, dict) and chance.number(0, 1) else event
        if not isinstance(record, dict) or not record:
            events.insert(index, chance.one_of(ODD_VALUES))
            continue
        key = chance.one_of(sorted(record))
        if chance.number(0, 1):
            record[key] = chance.one_of(ODD_VALUES)
        else:
            del record[key]
        if chance.number(0, 1):
            events.append(event)
    return json.dumps(document, ensure_ascii=bool(chance.number(0, 1))).encode("utf-8", "surrogatepass")


# Rows.


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


def _delete(rows: list[Row], chosen: list[Row], chance: Chance) -> None:
    gone = {id(row) for row in chosen}
    rows[:] = [row for row in rows if id(row) not in gone]


def _duplicate(rows: list[Row], chosen: list[Row], chance: Chance) -> None:
    rows += [{**row, "args": dict(row.get("args", {}))} for row in chosen]


def _change_times(rows: list[Row], chosen: list[Row], chance: Chance) -> None:
    ts, dur = chance.one_of(
        [(-1, 1), (1, -1), (1, 0), (0, 1), (1, 1000), (1, 0.001), (0.999999, 1), (-1, -1)]
    )
    shift = chance.one_of([0, 0, -1e6, 1e6, -50, 50, 5e10])
    for row in chosen:
        row["ts"], row["dur"] = float(row["ts"]) * ts + shift, float(row["dur"]) * dur


def _permute_times(rows: list[Row], chosen: list[Row], chance: Chance) -> None:
    starts = [row["ts"] for row in chosen]
    for row, start in zip(chosen, reversed(starts), strict=True):
        row["ts"] = start


KINDS = (
    *("kernel", "cpu_op", "cuda_runtime", "gpu_memcpy", "user_annotation", "python_function", "gpu_memset"),
)


def _swap_kinds(rows: list[Row], chosen: list[Row], chance: Chance) -> None:
    put = chance.one_of(KINDS)
    for row in chosen:
        row["cat"] = put


NAMES = (
    *("ProfilerStep#1", "aten::mm", "cudaLaunchKernel", "cudaDeviceSynchronize", "cudaGraphLaunch", ""),
    *("ncclDevKernel_AllReduce_Sum_f32_RING_LL", "Optimizer.step#SGD.step", "Memcpy HtoD"),
    *("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", "ampere_sgemm_128x128_nn"),
)


def _swap_names(rows: list[Row], chosen: list[Row], chance: Chance) -> None:
    put = chance.one_of(NAMES)
    for row in chosen:
        row["name"] = put


def _collide(rows: list[Row], chosen: list[Row], chance: Chance) -> None:
    field = chance.one_of(["correlation", "External id", "stream", "device", "Sequence number"])
    of = chance.one_of([1, 2, 7])
    for at, row in enumerate(chosen):
        row["args"] = {**row.get("args", {}), field: at % of}


def _move(rows: list[Row], chosen: list[Row], chance: Chance) -> None:
    track = chance.one_of([(0, 7), (1, 1), ("a", "b"), (-1, -1)])
    for row in chosen:
        row["pid"], row["tid"] = track


def _resize(rows: list[Row], chosen: list[Row], chance: Chance) -> None:
    dims = chance.one_of([[], [[]], [[0, 0], [0, 0]], [[-5, 3], [3, 2]], [[2**40, 2**40], [2**40, 1]]])
    for row in chosen:
        row["args"] = {**row.get("args", {}), "Input Dims": dims, "grid": [0, -1, 2**40], "bytes": -7}


MUTATIONS = (
    *(_delete, _duplicate, _change_times, _permute_times, _swap_kinds, _swap_names, _collide, _move, _resize),
)


def mutated(name: str, chance: Chance) -> bytes:
    """Valid text whose rows were changed a few at a time, of one side or of both."""
    document = json.loads(_recording(name))
    rows = document["traceEvents"]
    for _ in range(chance.number(1, 4)):
        begin = chance.number(0, len(rows))
        stride = chance.one_of([1, 1, 2, 5])
        side = chance.one_of([None, True, False])
        among = [row for row in rows if side is None or _on_device(row) == side]
        chosen = among[begin : begin + chance.one_of([1, 10, 100, 10**6]) : stride]
        chance.one_of(MUTATIONS)(rows, chosen, chance)
    return json.dumps(document).encode()


def examined(path: Path, content: bytes, name: str, step_ms: float | None) -> str:
    """Through the whole examination: no figure that cannot be. Gives how it went."""
    timeline = survives(path, content)
    if timeline is None:
        return "refused"
    run = Run("torch-trace", (name,), (Rank(0, timeline),))
    try:
        diagnosis = examine(run, step_ms=step_ms)
    except InputError as refusal:
        assert refusal.message
        return "refused"
    assert impossible(json.loads(to_json(diagnosis))) == []
    return "read"


def mutate_and_examine(path: Path, chance: Chance) -> str:
    name = chance.one_of(RECORDINGS)
    step_ms = chance.one_of(STEP_MS)
    return examined(path, mutated(name, chance), name, step_ms)
