"""Captures beside traces and inside run folders: found, read, told from ranks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from findwall.agent.ending.storage import pack, put_in_place
from findwall.errors import InputError
from findwall.model.events import Kind
from findwall.model.measurement import Measurement, RunInfo, Trace
from findwall.readers import open_run
from findwall.readers.execution_trace import is_execution_trace, read_execution_trace
from findwall.readers.run_folder import read_run_folder


def event(cat: str, name: str, ts: float, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": 1, "args": args}


def trace(rank: int | None, *events: dict[str, Any]) -> str:
    said = {} if rank is None else {"distributedInfo": {"rank": rank, "world_size": 2}}
    return json.dumps({"schemaVersion": 1, "baseTimeNanoseconds": 0, "traceEvents": events, **said})


def replay(rank: int | None) -> str:
    device = {"device": 0, "stream": 7, "correlation": 5}
    return trace(
        rank, event("cuda_runtime", "hipGraphLaunch", 10, correlation=5), event("kernel", "k", 20, **device)
    )


def capture(rank: int | None) -> str:
    inside = event("cuda_runtime", "hipLaunchKernel", 12.2, correlation=8, kernel="k")
    inside["dur"] = 0.1
    return trace(
        rank,
        event("cuda_runtime", "hipStreamBeginCapture", 10, correlation=7),
        event("cpu_op", "aten::mm", 12, **{"Input Dims": [[2, 2], [2, 2]], "Input type": ["float", "float"]}),
        inside,
        event("python_function", "forward", 11),
    )


@pytest.mark.parametrize("whole_folder", [True, False])
def test_a_capture_is_found_beside_a_trace(tmp_path: Path, whole_folder: bool) -> None:
    (tmp_path / "decode.json").write_text(replay(None))
    (tmp_path / "capture_traces").mkdir()
    (tmp_path / "capture_traces" / "bs_1.json").write_text(capture(None))
    (rank,) = open_run([tmp_path if whole_folder else tmp_path / "decode.json"]).ranks
    assert len(rank.captures) == 1
    assert not len(rank.captures[0].rows(Kind.PYTHON))


def test_each_rank_gets_its_own_captures(tmp_path: Path) -> None:
    (tmp_path / "capture_traces").mkdir()
    for rank in (0, 1):
        (tmp_path / f"rank{rank}.json").write_text(replay(rank))
        (tmp_path / "capture_traces" / f"bs_1_rank{rank}.json").write_text(capture(rank))
    run = open_run([tmp_path])
    assert [[one.header.rank for one in rank.captures] for rank in run.ranks] == [[0], [1]]


def test_a_capture_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "decode.json").write_text(replay(None))
    (tmp_path / "capture_traces").mkdir()
    (tmp_path / "capture_traces" / "broken.json").write_text("nothing")
    run = open_run([tmp_path])
    assert run.ranks[0].captures == ()
    assert any("broken.json" in note for note in run.notes)


def node(number: int, name: str, parent: int = 2, device: str = "cuda:0", **more: Any) -> dict[str, Any]:
    given = {
        "values": [[3, 4, 0, 32, 4, device], 1.5, [1, 1], True, "<None>"],
        "shapes": [[4, 8], [], [[], []], [], []],
        "types": ["Tensor(c10::Half)", "Double", "GenericList[Int,Int]", "Bool", "None"],
        "strides": [[8, 1], [], [[], []], [], []],
    }
    attributes = [{"name": "scope", "value": more.get("scope", 0)}, {"name": "tid", "value": 1}]
    return {
        "id": number,
        "name": name,
        "ctrl_deps": parent,
        "inputs": more.get("inputs", given),
        "attrs": attributes,
    }


def execution(*nodes: dict[str, Any]) -> str:
    return json.dumps({"schema": "1.1.1-chakra.0.0.4", "pid": 1, "nodes": nodes})


def test_an_execution_trace_tells_ops_inputs_and_nesting(tmp_path: Path) -> None:
    path = tmp_path / "capture.json"
    lists = {
        "values": [[[1, 2, 0, 4, 4, "cuda:0"], [1, 2, 0, 4, 4, "cuda:0"]]],
        "shapes": [[[4], [4]]],
        "types": ["GenericList[Tensor(float),Tensor(float)]"],
        "strides": [[[1], [1]]],
    }
    written = [
        node(2, "[pytorch|profiler|execution_trace|thread]", 1),
        node(5, "aten::addmm", 4),  # written when it ended, before the op around it
        node(4, "aten::linear"),
        node(6, "aten::_foreach_add_", inputs=lists),
        node(7, "aten::add", device="cpu"),
        node(8, "my range", scope=7),
    ]
    path.write_text(execution(*written))
    assert is_execution_trace(path)
    timeline = read_execution_trace(path)
    names = [timeline.name_of(row) for row in range(len(timeline.events))]
    assert names == ["aten::linear", "aten::addmm", "aten::_foreach_add_", "my range"]
    outer, inner = 0, 1
    assert timeline.events.start[outer] < timeline.events.start[inner]
    assert timeline.events.end[inner] <= timeline.events.end[outer]
    assert timeline.events.kind.tolist() == [Kind.OP, Kind.OP, Kind.OP, Kind.ANNOTATION]
    inputs = timeline.inputs_of(inner)
    assert inputs is not None
    assert inputs.dims == [[4, 8], [], [], [], []]
    assert inputs.types == ["c10::Half", "Scalar", "ScalarList", "Scalar", ""]
    assert inputs.concrete == ["", "1.5", "[1, 1]", "True", ""]
    several = timeline.inputs_of(2)
    assert several is not None and several.dims == [[[4], [4]]] and several.types == [["float", "float"]]


@pytest.mark.parametrize("text", ['{"schema": "1"', '{"schema": "1", "nodes": [{"id": "x"}]}'])
def test_a_broken_execution_trace_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "capture.json"
    path.write_text(text)
    with pytest.raises(InputError):
        read_execution_trace(path)


def folder_with(tmp_path: Path, content: str) -> Path:
    info = RunInfo("serve.py", ["serve.py"], 1, "2026-01-01", "0.1.0", "3.11")
    (tmp_path / "run.json").write_bytes(msgspec.json.encode(info))
    (tmp_path / "rank0").mkdir()
    kept = Trace(file="trace.json", steps=1, captures=["capture-0.json"], replays=[0, -1])
    (tmp_path / "rank0" / "measurement.json").write_bytes(msgspec.json.encode(Measurement(trace=kept)))
    (tmp_path / "rank0" / "trace.json").write_text(replay(None))
    (tmp_path / "rank0" / "capture-0.json").write_text(content)
    return tmp_path


def test_a_run_folder_holds_the_captures_that_were_replayed(tmp_path: Path) -> None:
    (rank,) = read_run_folder(folder_with(tmp_path, execution(node(3, "aten::mm")))).ranks
    assert [capture.names for capture in rank.captures] == [["aten::mm"]]
    assert rank.replays == (0, -1)


def test_a_packed_run_folder_holds_them_too(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, execution(node(3, "aten::mm")))
    put_in_place(pack(folder / "rank0"))
    assert not (folder / "rank0" / "capture-0.json").exists()
    (rank,) = read_run_folder(folder).ranks
    assert [capture.names for capture in rank.captures] == [["aten::mm"]]


def test_a_damaged_capture_in_a_run_folder_is_a_note(tmp_path: Path) -> None:
    (rank,) = read_run_folder(folder_with(tmp_path, execution()[:-3])).ranks
    assert rank.captures == () and rank.replays == ()
    assert any("capture" in note for note in rank.notes)
