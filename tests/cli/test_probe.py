"""`findwall probe`: what it says, what it leaves behind, and what it refuses."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from captures import FIXTURES
from findwall import cli
from findwall.cli import read as read_module
from findwall.model.diagnosis import from_json
from findwall.model.measurement import Measurement, RunInfo, StepColumns, Trace, Warmup
from findwall.model.probes import Probe, Probes
from findwall.probe import measuring as runner

torch = pytest.importorskip("torch")

GPU = "NVIDIA H200"
STEP_NS = 186_000_000


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> list[Probe]:
    """A device that runs every op in a millisecond, and four times as fast in TF32."""
    asked: list[Probe] = []

    class Target:
        gpu, driver, version, device, torch = GPU, "580", "2.11", torch.device("cpu"), torch

    def run(target: Any, plan: list[Probe], known: Probes | None, *more: Any) -> Probes:
        fresh = [probe for probe in plan if known is None or probe.key not in known.ns]
        asked.extend(fresh)
        ns = {probe.key: 2.5e6 if probe.variant == "tf32" else 1e7 for probe in plan}
        return Probes(GPU, "580", "2.11", "today", ns, {}, 1.5)

    monkeypatch.setattr(runner, "find_target", lambda kind, name: Target())
    monkeypatch.setattr(runner, "run_probes", run)
    return asked


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run folder of a recorded job."""
    path = tmp_path / "findwall-runs" / "train-1"
    (path / "rank0").mkdir(parents=True)
    shutil.copy(FIXTURES / "jobs" / "accelerate_fp32.json.gz", path / "rank0" / "trace.json.gz")
    steps = StepColumns(
        host_ns=[STEP_NS] * 20,
        device_ns=[STEP_NS] * 20,
        loader_ns=[0] * 20,
        gc_ns=[0] * 20,
        hook_ns=[0] * 20,
        batches=[0] * 20,
        compiles=[0] * 20,
        evaluated=[False] * 20,
    )
    measured = Measurement(
        phase="done",
        final=True,
        job_ended="ended",
        device_kind="gpu",
        device_name=GPU,
        step_source="optimizer",
        warmup=Warmup(steps=5),
        steps=steps,
        trace=Trace(file="trace.json.gz", steps=2),
    )
    (path / "rank0" / "measurement.json").write_bytes(msgspec.json.encode(measured))
    info = RunInfo("train.py", ["train.py"], 1, "2026-01-01T00:00:00+00:00", "0", "3.12")
    (path / "run.json").write_bytes(msgspec.json.encode(info))
    return path


def _predicted(path: Path, fix: str) -> Any:
    document = from_json(path.read_bytes())
    return next(one for one in document.prescriptions if one.fixes == [fix])


def test_a_run_is_probed_and_read_anew(
    folder: Path, device: list[Probe], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    before, after, later = (tmp_path / name for name in ("before.json", "after.json", "later.json"))
    assert cli._run(["read", str(folder), "--json", str(before)]) == 0
    assert _predicted(before, "tf32").basis == "curves"
    capsys.readouterr()
    assert cli._run(["probe", str(folder), "--json", str(after)]) == 0
    out, err = capsys.readouterr()
    assert "THE WALL" in out
    assert ", probed" in out
    assert "not probed before" in err
    assert "probes in 1.5 s, kept in " in err
    assert _predicted(after, "tf32").basis == "probed"
    assert _predicted(after, "tf32").step_ms.mid != _predicted(before, "tf32").step_ms.mid
    # The folder keeps it: whoever reads it later needs neither the device nor the cache.
    assert (folder / "probes.json").is_file()
    shutil.rmtree(tmp_path / "cache")
    assert cli._run(["read", str(folder), "--json", str(later)]) == 0
    assert _predicted(later, "tf32") == _predicted(after, "tf32")


def test_the_newest_run_is_probed_where_none_is_named(
    folder: Path, device: list[Probe], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder.parents[1])
    assert cli._run(["probe", "--brief"]) == 0
    assert "reading findwall-runs/train-1" in capsys.readouterr().err


def test_what_is_kept_is_not_run_again(folder: Path, device: list[Probe], own_cache: Path) -> None:
    assert cli._run(["probe", str(folder)]) == 0
    first = len(device)
    assert first > 0
    assert cli._run(["probe", str(folder)]) == 0
    assert len(device) == first
    assert cli._run(["probe", str(folder), "--refresh"]) == 0
    assert len(device) == 2 * first


def test_a_trace_leaves_nothing_but_the_cache(
    device: list[Probe], capsys: pytest.CaptureFixture[str], own_cache: Path, tmp_path: Path
) -> None:
    trace = tmp_path / "traces" / "odd.json.gz"
    trace.parent.mkdir()
    shutil.copy(FIXTURES / "jobs" / "odd_widths.json.gz", trace)
    assert cli._run(["probe", str(trace), "--json", "-"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["schema"] == "findwall/1"
    assert str(own_cache / "findwall" / "probes") in err
    assert [path.name for path in trace.parent.iterdir()] == ["odd.json.gz"]


def test_a_gpu_job_is_not_probed_without_its_gpu(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    assert cli._run(["probe", str(folder)]) == 2
    err = capsys.readouterr().err
    assert f"The job ran on {GPU}, and torch sees no GPU here." in err
    assert "on the machine that runs the job" in err
    assert not (folder / "probes.json").exists()


def test_a_step_without_such_ops_is_not_probed(
    device: list[Probe], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli._run(["probe", str(FIXTURES / "jobs" / "json_logging.json.gz")]) == 2
    assert "There is nothing to probe" in capsys.readouterr().err


@pytest.mark.parametrize("content", [b"", b"[]", b'{"ns": {"a": -1}}', b"\xff", b"[" * 9999])
def test_damaged_probes_are_left_out_with_a_note(
    folder: Path, tmp_path: Path, content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "probes.json").write_bytes(content)
    assert cli._run(["read", str(folder), "--json", str(tmp_path / "out.json")]) == 0
    document = from_json((tmp_path / "out.json").read_bytes())
    assert any("probes.json is left out" in note for note in document.notes)
    assert _predicted(tmp_path / "out.json", "tf32").basis == "curves"


def test_probes_of_another_device_are_left_out(folder: Path, device: list[Probe], tmp_path: Path) -> None:
    assert cli._run(["probe", str(folder)]) == 0
    probes = msgspec.json.decode((folder / "probes.json").read_bytes())
    (folder / "probes.json").write_bytes(msgspec.json.encode({**probes, "gpu": "NVIDIA T4"}))
    assert cli._run(["read", str(folder), "--json", str(tmp_path / "out.json")]) == 0
    document = from_json((tmp_path / "out.json").read_bytes())
    assert any("it is of NVIDIA T4, and the job ran on NVIDIA H200" in note for note in document.notes)


def test_a_gpu_is_offered_to_whoever_reads_from_curves(
    folder: Path,
    device: list[Probe],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "nvidiactl").touch()
    monkeypatch.setattr(read_module, "GPU_FILES", (str(tmp_path / "nvidiactl"),))
    assert cli._run(["read", str(folder)]) == 0
    last = capsys.readouterr().out.rstrip().splitlines()[-1]
    assert last.startswith(f"`findwall probe {folder}`")
    monkeypatch.setattr(read_module, "GPU_FILES", (str(tmp_path / "none"),))
    assert cli._run(["read", str(folder)]) == 0
    assert "findwall probe" not in capsys.readouterr().out
