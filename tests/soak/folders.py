"""Run folders that no findwall wrote: values, texts and files in it changed."""

from __future__ import annotations

import copy
import json
import math
import os
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console

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
from readers.trace_samples import dump, modern
from soak.chance import Chance

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
        loader_seen=True,
        loader_workers=2,
        samples_per_step=32.0,
        sample_unit="images",
        peak_memory=5 << 30,
        total_memory=80 << 30,
        host_lines=[Line("train.py:8", "main", 0.5, "linear.py:forward")],
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


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every value of a document, as (container, key)."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    here = [(value, key) for key in keys]
    return here + [place for key in keys for place in _places(value[key])]


Changes = dict[str, bytes]


def change_values(chance: Chance) -> Changes:
    file = chance.one_of([name for name in FILES if name not in TRACES])
    content = copy.deepcopy(json.loads(PRISTINE[file]))
    for _ in range(chance.number(1, 4)):
        places = _places(content)
        if not places:
            break
        container, key = chance.one_of(places)
        _change(container, key, chance)
    return {file: json.dumps(content).encode()}


def _change(container: Any, key: Any, chance: Chance) -> None:
    what = chance.one_of(["odd", "drop", "double", "scale"])
    value = container[key]
    if what == "odd":
        container[key] = copy.deepcopy(chance.one_of(ODD_VALUES))
    elif what == "drop":
        container.pop(key)
    elif what == "double" and isinstance(value, list):
        container[key] = value * 2
    elif isinstance(value, int | float) and not isinstance(value, bool):
        container[key] = value * chance.one_of([-1, 0, 1000, 10**12, 1e-12])


def break_text(chance: Chance) -> Changes:
    file = chance.one_of(FILES)
    content = PRISTINE[file]
    begin = chance.number(0, len(content))
    end = min(len(content), begin + chance.one_of([0, 1, 5, 200, 10**6]))
    return {file: content[:begin] + chance.one_of(RAW_VALUES) + content[end:]}


def put_raw_values(chance: Chance) -> Changes:
    """NaN, bad UTF-8, deep nesting: in the place of any one value."""
    file = chance.one_of(["run.json", "rank0/measurement.json", "rank0/capture-0.json"])
    content = copy.deepcopy(json.loads(PRISTINE[file]))
    container, key = chance.one_of(_places(content))
    container[key] = "@@@"
    return {file: json.dumps(content).encode().replace(b'"@@@"', chance.one_of(RAW_VALUES))}


TAMPERINGS: tuple[Callable[[Chance], Changes], ...] = (change_values, break_text, put_raw_values)


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


def replace_file(folder: Path, chance: Chance) -> None:
    """Something that is no file, or a link, in the place of one."""
    path = folder / chance.one_of(FILES)
    path.unlink()
    chance.one_of(ODD_FILES)(path)


def tamper_and_read(folder: Path, chance: Chance) -> str:
    """One folder, tampered with in one to three ways. Gives how it went."""
    files = PRISTINE
    for _ in range(chance.number(1, 3)):
        files = files | chance.one_of(TAMPERINGS)(chance)
    written(folder, files)
    if chance.number(0, 3) == 0:
        replace_file(folder, chance)
    return "refused" if survives(folder) is None else "read"
