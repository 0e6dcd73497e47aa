"""Run folders tampered with in hundreds of ways: an InputError, or a document in which nothing cannot be.

FINDWALL_FUZZ_EXAMPLES sets how many ways are tried for each kind of damage (by default 100).
"""

from __future__ import annotations

import copy
import json
import math
import os
import shutil
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console
from trace_samples import dump, modern

from captures import FIXTURES
from contradictions import impossible
from findwall.errors import InputError
from findwall.examine import examine
from findwall.model.diagnosis import Diagnosis, to_json
from findwall.model.machine import Ceilings, Counters, CpuUse, Sampled, Telemetry
from findwall.model.measurement import (
    Beside,
    Elapsed,
    Later,
    Line,
    Measurement,
    RunInfo,
    StepColumns,
    Trace,
    Warmup,
)
from findwall.readers import open_run
from findwall.report import terminal

EXAMPLES = int(os.environ.get("FINDWALL_FUZZ_EXAMPLES", "100"))
FUZZ = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize="FINDWALL_FUZZ_EXAMPLES" not in os.environ,
    database=None,
    suppress_health_check=list(HealthCheck),
)
STEPS = 12
HUGE = (2**31, 2**63, 2**64, 10**30, -(10**30), 1e300, -1e300, 10**16)
ODD_VALUES: list[Any] = [
    *(None, True, False, "", "text", -1, 0, 1, 2, 0.5, 3.7, -0.5, 1e-9, *HUGE, [], {}, [[]], [{}], [None]),
    *("nan", "inf", "-inf", "-5", "1e9", "\x00", "../run.json", "/dev/zero", "usual", [-1], [0], [10**15]),
]
RAW_VALUES = (
    *(b"NaN", b"Infinity", b"-Infinity", b"1e400", b"nan", b'"\xff\xfe"', b'"\\ud800"', b"9" * 5000, b""),
    *(b"[" * 5000 + b"]" * 5000, b"[" * 100_000, b'{"a":' * 3000 + b"1" + b"}" * 3000, b"[1,", b'"', b"{}{}"),
)


def _columns() -> StepColumns:
    return StepColumns(
        host_ns=[20_000_000 + 9_000_000 * (row % 3 == 2) for row in range(STEPS)],
        device_ns=[20_000_000] * (STEPS - 1) + [None],
        loader_ns=[2_000_000] * STEPS,
        optimizer_ns=[1_000_000, None] * (STEPS // 2),
        gc_ns=[1000] * STEPS,
        hook_ns=[1000] * STEPS,
        batches=[1] * STEPS,
        compiles=[0] * STEPS,
        evaluated=[row == 4 for row in range(STEPS)],
        kind=["saves" if row % 3 == 2 else "usual" for row in range(STEPS)],
    )


def _measured(rank: int) -> Measurement:
    return Measurement(
        rank=rank,
        world_size=2,
        device_kind="gpu",
        device_name="NVIDIA H100 80GB HBM3",
        step_source="optimizer",
        steps_seen=40,
        warmup=Warmup(7, 1.5, True),
        steps=_columns(),
        first_timed=9,
        beside=[Beside(11, "saving", 8_000_000), Beside(14, "evaluation", 9_000_000)],
        elapsed=Elapsed(4 * 10**9, 10**9, 10**8, 10**7, {"saving": 10**8, "evaluation": 10**8}),
        later=Later(30, 2 * 10**9, 25, [3, 13, 23], [3 * 10**8] * 3),
        control=_columns(),
        optimizer_device_ns=[900_000, 1_000_000],
        loader_seen=True,
        loader_workers=2,
        samples_per_step=32.0,
        sample_unit="images",
        peak_memory=5 << 30,
        total_memory=80 << 30,
        host_lines=[Line("train.py:8", "main", 0.5, "linear.py:forward")],
        host_samples=50,
        telemetry=Telemetry(
            max_sm_clock_mhz=1980,
            sm_clock_mhz=Sampled(1900.0, 1800.0, 1980.0),
            power_w=Sampled(300.0, 100.0, 400.0),
            throttle={"power": 0.1},
            samples=60,
            gpm=Counters(sm=50.0, tensor=20.0, dram=30.0, fp32=5.0),
            cpu=CpuUse(16, 1.0, 2.0, 0.02, 3.0),
        ),
        ceilings=Ceilings("NVIDIA H100 80GB HBM3", "measured", "here", {"bf16": 6e14}, {"bf16": 9e14}, 3e12),
        trace=Trace(
            "trace.json", 3, 25, 6, ["usual", "saves", "usual"], ["capture-0.json"], [0, -1], why_not=""
        ),
        cost={"hook_share": 0.001, "sentence": "findwall took 0.1 % of the time."},
        notes=["a note"],
    )


CAPTURE = {
    "schema": "1.1.1",
    "nodes": [
        {"id": 1, "name": "[pytorch|profiler|execution_trace|process]", "ctrl_deps": 0},
        {
            "id": 2,
            "name": "aten::mm",
            "ctrl_deps": 1,
            "inputs": {
                "values": [[1, 2, 0, 64, 4, "cuda:0"], 3],
                "shapes": [[8, 8], []],
                "types": ["Tensor(float)", "Int"],
                "strides": [[8, 1], []],
            },
            "attrs": [{"name": "tid", "value": 1}],
        },
    ],
}


def _pristine() -> dict[str, bytes]:
    info = RunInfo("train.py", ["train.py"], 2, "2026-01-01", "0.1.0", "3.11", cores="Some CPU, 2 cores")
    files = {"run.json": msgspec.json.encode(info)}
    for rank in range(2):
        files[f"rank{rank}/measurement.json"] = msgspec.json.encode(_measured(rank))
        files[f"rank{rank}/trace.json"] = dump(modern(steps=3, ops=2), {"schemaVersion": 1})
        files[f"rank{rank}/capture-0.json"] = json.dumps(CAPTURE).encode()
    return files


PRISTINE = _pristine()
FILES = sorted(PRISTINE)
TRACES = ("rank0/trace.json", "rank1/trace.json")


def written(folder: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def survives(folder: Path) -> Diagnosis | None:
    """Refused in one line with a hint, or a document that can be written, drawn and believed."""
    try:
        document = examine(open_run([folder], workers=1))
    except InputError as refusal:
        assert refusal.message and refusal.hint
        assert "\n" not in str(refusal)
        return None
    said = json.loads(to_json(document))
    assert impossible(said) == []
    for number in _floats(msgspec.to_builtins(document)):
        assert math.isfinite(number)
    terminal.render(document, Console(file=StringIO(), width=100))
    return document


def _floats(value: Any) -> list[float]:
    if isinstance(value, dict):
        return [found for inner in value.values() for found in _floats(inner)]
    if isinstance(value, list | tuple):
        return [found for inner in value for found in _floats(inner)]
    return [value] if isinstance(value, float) else []


def tampered(changes: dict[str, bytes]) -> Diagnosis | None:
    with TemporaryDirectory() as place:
        return survives(written(Path(place), PRISTINE | changes))


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every value of a document, as (container, key)."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    here = [(value, key) for key in keys]
    return here + [place for key in keys for place in _places(value[key])]


def test_nothing_is_wrong_with_the_folder_itself() -> None:
    document = tampered({})
    assert document is not None
    assert document.step.source == "measured" and document.source.ranks == 2
    assert [one.kind for one in document.kinds] == ["usual", "saves", "seldom"]
    assert document.elapsed is not None and document.quality.checks_failed == {}
    assert not any("cannot be" in note for note in document.notes)


@FUZZ
@given(data=st.data(), file=st.sampled_from([name for name in FILES if name not in TRACES]))
def test_values_changed(data: st.DataObject, file: str) -> None:
    content = copy.deepcopy(json.loads(PRISTINE[file]))
    for _ in range(data.draw(st.integers(1, 4))):
        places = _places(content)
        if not places:
            break
        container, key = places[data.draw(st.integers(0, len(places) - 1))]
        what = data.draw(st.sampled_from(["odd", "drop", "double", "scale"]))
        value = container[key]
        if what == "odd":
            container[key] = copy.deepcopy(data.draw(st.sampled_from(ODD_VALUES)))
        elif what == "drop":
            container.pop(key)
        elif what == "double" and isinstance(value, list):
            container[key] = value * 2
        elif isinstance(value, int | float) and not isinstance(value, bool):
            container[key] = value * data.draw(st.sampled_from([-1, 0, 1000, 10**12, 1e-12]))
    tampered({file: json.dumps(content).encode()})


@FUZZ
@given(data=st.data(), file=st.sampled_from(FILES))
def test_text_that_is_no_json(data: st.DataObject, file: str) -> None:
    content = PRISTINE[file]
    begin = data.draw(st.integers(0, len(content)))
    put = data.draw(st.sampled_from(RAW_VALUES))
    end = min(len(content), begin + data.draw(st.sampled_from([0, 1, 5, 200, 10**6])))
    tampered({file: content[:begin] + put + content[end:]})


@FUZZ
@given(data=st.data())
def test_values_that_only_a_text_can_hold(data: st.DataObject) -> None:
    """NaN, bad UTF-8, deep nesting: in the place of any one value."""
    file = data.draw(st.sampled_from(["run.json", "rank0/measurement.json", "rank0/capture-0.json"]))
    content = copy.deepcopy(json.loads(PRISTINE[file]))
    places = _places(content)
    container, key = places[data.draw(st.integers(0, len(places) - 1))]
    container[key] = "@@@"
    text = json.dumps(content).encode().replace(b'"@@@"', data.draw(st.sampled_from(RAW_VALUES)))
    tampered({file: text})


def put_pipe(path: Path) -> None:
    os.mkfifo(path)


def put_endless_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def put_empty(path: Path) -> None:
    path.write_bytes(b"")


def put_folder(path: Path) -> None:
    path.mkdir()


def put_nothing(path: Path) -> None:
    pass


def put_link_to_itself(path: Path) -> None:
    path.symlink_to(path.name)


def put_huge_hole(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


ODD_FILES = (
    *(put_pipe, put_endless_device, put_empty, put_folder, put_nothing, put_link_to_itself, put_huge_hole),
)


@pytest.mark.parametrize("put", ODD_FILES)
@pytest.mark.parametrize("file", ["run.json", "measurement.json", "trace.json", "capture-0.json"])
@pytest.mark.parametrize("ranks", [("rank0",), ("rank0", "rank1")])
def test_what_stands_there_is_no_file(tmp_path: Path, put: Any, file: str, ranks: tuple[str, ...]) -> None:
    written(tmp_path, PRISTINE)
    for rank in ranks if file != "run.json" else ("",):
        (tmp_path / rank / file).unlink()
        put(tmp_path / rank / file)
    document = survives(tmp_path)
    whole = file in ("run.json", "capture-0.json")
    assert (document is None) == (file == "measurement.json" and len(ranks) == 2)
    if document is not None and not (file == "run.json" and put is put_nothing) and not whole:
        assert any("cannot be read" in note or "ranks wrote" in note for note in document.notes)


@pytest.mark.parametrize(
    "name", ["../rank1/trace.json", "/etc/passwd", "..", ".", "", "a/b", "a\x00b", "x" * 5000]
)
@pytest.mark.parametrize("field", ["file", "captures"])
def test_a_folder_names_files_of_its_own_alone(tmp_path: Path, name: str, field: str) -> None:
    changed = json.loads(PRISTINE["rank0/measurement.json"])
    changed["trace"][field] = name if field == "file" else [name]
    files = PRISTINE | {"rank0/measurement.json": json.dumps(changed).encode()}
    outside = tmp_path / "trace.json"
    outside.write_bytes(PRISTINE["rank0/trace.json"])
    (tmp_path / "run").mkdir()
    run = open_run([written(tmp_path / "run", files)])
    first = run.ranks[0]
    assert (first.timeline is None) == (field == "file")
    assert field == "file" or first.captures == ()
    assert any("cannot be read" in note for note in first.notes)
    assert survives(tmp_path / "run") is not None


WRONG_PARTS: dict[str, Any] = {
    "steps": {"host_ns": [1, 2], "device_ns": [1]},
    "first_timed": -3,
    "beside": [[-1, "saving", 5]],
    "elapsed": {"total": 5, "start_up": 7},
    "later": {"steps": 4, "ns": 9, "slow_step": [1], "slow_ns": []},
    "samples_per_step": "nan",
    "peak_memory": -1,
    "host_lines": [{"place": "train.py:8", "function": "main", "share": 7.0}],
    "telemetry": {"throttle": {"power": 3.5}},
    "ceilings": {"flops": {"bf16": 0.0}, "bandwidth": 1.0},
    "trace": {"file": "trace.json", "replays": [7]},
    "world_size": 0,
    "device_kind": "abacus",
}


@pytest.mark.parametrize("name", WRONG_PARTS)
def test_a_part_that_cannot_be_is_left_out_and_noted(tmp_path: Path, name: str) -> None:
    changed = json.loads(PRISTINE["rank0/measurement.json"]) | {name: WRONG_PARTS[name]}
    files = PRISTINE | {"rank0/measurement.json": json.dumps(changed).encode()}
    run = open_run([written(tmp_path, files)])
    assert any(f"{name} left out, because it cannot be" in note for note in run.first.notes)
    assert survives(tmp_path) is not None


def test_a_recorded_folder_of_another_rank_is_told(tmp_path: Path) -> None:
    shutil.copytree(FIXTURES / "runs" / "late_rank", tmp_path / "run")
    (tmp_path / "run" / "rank1").rename(tmp_path / "run" / "rank5")
    run = open_run([tmp_path / "run"])
    assert [rank.number for rank in run.ranks] == [0, 5]
    assert any("says that it is of rank 1" in note for rank in run.ranks for note in rank.notes)
