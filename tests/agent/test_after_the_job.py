"""What is measured once a job has ended: its ops as fixes would run them, and cores that nobody measured."""

from __future__ import annotations

import types
from pathlib import Path

import msgspec
import pytest

from findwall.agent import launch
from findwall.agent.ending import after_the_job
from findwall.agent.options import Options
from findwall.machine.ceilings import numpy_cores
from findwall.model.arms import LOOK

torch = pytest.importorskip("torch")


class Ended:
    """A session that is over."""

    def __init__(self, folder: Path, speaks: bool = True, **options: object) -> None:
        self.folder, self.options = folder, Options(**options)  # type: ignore[arg-type]
        self.rank = types.SimpleNamespace(speaks=speaks, world_size=1)

    def close(self, failure: str, _error: BaseException | None) -> None:
        pass


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[str], dict[str, str]]]:
    found: list[tuple[list[str], dict[str, str]]] = []
    monkeypatch.setattr(
        after_the_job.subprocess, "run", lambda command, **how: found.append((command, how["env"]))
    )
    return found


def test_a_job_that_ended_well_is_probed_on_its_device(
    tmp_path: Path, commands: list[tuple[list[str], dict[str, str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    monkeypatch.setenv("RANK", "0")
    launch._close(Ended(tmp_path, probe=True, brief=True), "")  # type: ignore[arg-type]
    ((command, environ),) = commands
    assert command[1:] == ["-m", "findwall", "probe", str(tmp_path), "--brief"]
    assert environ["CUDA_VISIBLE_DEVICES"] == "3"
    assert "RANK" not in environ


@pytest.mark.parametrize(
    ("failure", "speaks", "asked"), [("ValueError", True, True), ("", False, True), ("", True, False)]
)
def test_no_other_job_is_probed(
    tmp_path: Path,
    commands: list[tuple[list[str], dict[str, str]]],
    failure: str,
    speaks: bool,
    asked: bool,
) -> None:
    launch._close(Ended(tmp_path, speaks, probe=asked), failure)  # type: ignore[arg-type]
    assert commands == []


def test_a_probe_that_fails_is_not_the_jobs_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_words: object, **_how: object) -> None:
        raise OSError("no more processes")

    monkeypatch.setattr(after_the_job.subprocess, "run", refuse)
    launch._close(Ended(tmp_path, probe=True), "")  # type: ignore[arg-type]
    assert "cannot look closer (OSError: no more processes)" in capfd.readouterr().err


CORES = "Some CPU, 2 cores"


def judged(folder: Path, why_not: str = "ceilings", source: str = "unknown", device: str = CORES) -> Path:
    """A run folder with a document."""
    machine = {"device": device, "ceilings": {"source": source}}
    document = {"wall": {"wall": None, "why_not": why_not}, "machine": machine}
    (folder / "diagnosis.json").write_bytes(msgspec.json.encode(document))
    return folder


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was done: on cores of a name, which a stand-in measures and a stand-in reads with."""
    done: list[str] = []
    monkeypatch.setattr(numpy_cores, "core_name", lambda: CORES)
    monkeypatch.setattr(after_the_job, "_measure_cores", lambda: not done.append("measured"))
    monkeypatch.setattr(after_the_job, "start", lambda *_: done.append("read"))
    monkeypatch.setattr(after_the_job, "wait", lambda _process: True)
    return done


def test_a_verdict_that_ceilings_would_give_gets_them(
    tmp_path: Path, measured: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    launch._close(Ended(judged(tmp_path)), "")  # type: ignore[arg-type]
    assert measured == ["measured", "read"]
    assert "measuring what these cores can do, once" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("told", "failure", "options"),
    [
        ({"why_not": ""}, "", {}),  # it has a verdict
        ({"why_not": "too-early"}, "", {}),  # which no ceiling changes
        ({"source": "measured"}, "", {}),
        ({"device": "NVIDIA H200"}, "", {}),
        ({}, "ValueError", {}),
        ({}, "", {"verdict": False}),
    ],
)
def test_nothing_is_measured_that_decides_nothing(
    tmp_path: Path, measured: list[str], told: dict[str, str], failure: str, options: dict[str, bool]
) -> None:
    launch._close(Ended(judged(tmp_path, **told), **options), failure)  # type: ignore[arg-type]
    assert measured == []


def test_a_try_measures_in_its_own_time(
    tmp_path: Path, measured: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LOOK, str(tmp_path))
    launch._close(Ended(judged(tmp_path)), "")  # type: ignore[arg-type]
    assert measured == []


def test_cores_are_measured_all_whatever_the_job_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[list[str], dict[str, str]]] = []

    def run(command: list[str], **how: object) -> object:
        given.append((command, how["env"]))  # type: ignore[arg-type]
        return types.SimpleNamespace(returncode=0)

    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(after_the_job.subprocess, "run", run)
    assert after_the_job._measure_cores()
    ((command, environ),) = given
    assert command[1:6] == ["-m", "findwall", "ceilings", "--device", "cpu"]
    assert "OMP_NUM_THREADS" not in environ


def test_what_is_interrupted_leaves_the_job_as_it_ended(
    tmp_path: Path, measured: list[str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(numpy_cores, "core_name", lambda: CORES)

    def interrupted(*_words: object, **_how: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(after_the_job.subprocess, "run", interrupted)
    launch._close(Ended(judged(tmp_path)), "")  # type: ignore[arg-type]
    assert "`findwall ceilings` measures it" in capfd.readouterr().err
