"""Run folders tampered with in many ways: an InputError, or a document in which nothing cannot be.

FINDWALL_FUZZ_EXAMPLES sets how many ways are tried for each kind of damage; `make soak` tries a thousand.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from captures import FIXTURES
from examples import drawn
from findwall.readers import open_run
from soak.chance import Drawn
from soak.folders import ODD_FILES, PRISTINE, TAMPERINGS, put_nothing, survives, tamper_and_read, written

FUZZ = drawn(20)


def test_nothing_is_wrong_with_the_folder_itself(tmp_path: Path) -> None:
    document = survives(written(tmp_path, PRISTINE))
    assert document is not None
    assert document.step.source == "measured" and document.source.ranks == 2
    assert [one.kind for one in document.kinds] == ["usual", "saves", "seldom"]
    assert document.elapsed is not None and document.quality.checks_failed == {}
    assert not any("cannot be" in note for note in document.notes)


@pytest.mark.parametrize("tamper", TAMPERINGS)
@FUZZ
@given(data=st.data())
def test_contents_changed(tamper: Any, data: st.DataObject) -> None:
    with TemporaryDirectory() as place:
        survives(written(Path(place), PRISTINE | tamper(Drawn(data))))


@FUZZ
@given(data=st.data())
def test_several_things_at_once(data: st.DataObject) -> None:
    with TemporaryDirectory() as place:
        tamper_and_read(Path(place), Drawn(data))


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
