"""`findwall doctor` on machines without a GPU, without torch, with a broken torch."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import msgspec
import pytest
from click.testing import CliRunner

from findwall.cli.doctor import command, device_name
from findwall.machine import neighbours
from findwall.machine.ceilings import CeilingsReport, store
from findwall.machine.ceilings.numpy_cores import core_name
from findwall.model.machine import Ceilings, CpuUse
from findwall.model.topology import Topology


@pytest.fixture(autouse=True)
def bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setattr(neighbours, "watch", lambda: None)  # whoever else uses this machine right now


def test_without_torch_and_gpu_it_says_so_and_succeeds() -> None:
    result = CliRunner().invoke(command, [])
    assert result.exit_code == 0
    assert "torch is not installed" in result.output
    assert "Ceilings: unknown" in result.output


def test_busy_neighbours_are_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Nothing here slows a job down" in CliRunner().invoke(command, []).output
    busy = CpuUse(cores=4, others_busy=3.1, own_busy=0.0, seconds=0.5)
    monkeypatch.setattr(neighbours, "watch", lambda: busy)
    output = CliRunner().invoke(command, []).output
    assert "warning: Other processes kept 3.1 of 4 cores busy just now." in output
    assert "Nothing here slows a job down" not in output


def test_json_is_the_same_in_machine_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    for arguments in (["--json"], ["--json", "-"]):
        result = CliRunner().invoke(command, arguments)
        document = json.loads(result.stdout)
        assert document["schema"] == "findwall-doctor/1"
        assert "cuda-launch-blocking" in {finding["id"] for finding in document["findings"]}
        assert document["versions"]["python"]


def test_json_to_a_file_leaves_the_screen_to_the_person(tmp_path: Path) -> None:
    path = tmp_path / "doctor.json"
    result = CliRunner().invoke(command, ["--json", str(path)])
    assert "Ceilings" in result.output
    assert json.loads(path.read_text())["device"] == core_name()


def test_kept_ceilings_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    import findwall.machine.environment as environment

    monkeypatch.setattr(environment, "versions", lambda: {"driver": None, "torch": None})
    ceilings = Ceilings(
        device=core_name(), source="measured", origin="measured once", flops={"fp32": 1e12}, bandwidth=1e11
    )
    store(CeilingsReport(ceilings=ceilings))
    result = CliRunner().invoke(command, [])
    assert "measured once" in result.output


def test_a_broken_torch_is_a_finding(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delitem(sys.modules, "torch")
    (tmp_path / "torch.py").write_text("raise OSError('libcudart.so.13: cannot open shared object file')")
    monkeypatch.syspath_prepend(tmp_path)
    result = CliRunner().invoke(command, [])
    assert result.exit_code == 0
    assert "libcudart" in result.output


def test_the_gpu_of_torch_is_the_device() -> None:
    cuda = SimpleNamespace(is_available=lambda: True, get_device_name=lambda index: "NVIDIA H200")
    torch = ModuleType("torch")
    torch.cuda = cuda  # type: ignore[attr-defined]
    assert device_name(torch) == "NVIDIA H200"


def test_the_wiring_is_shown_judged_and_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    from findwall.machine import wiring as topology

    recorded = (Path(__file__).parents[1] / "fixtures" / "topology" / "pcie_8.json").read_bytes()
    state = msgspec.json.decode(recorded, type=Topology)
    monkeypatch.setattr(topology, "whole_topology", lambda host: state)
    output = CliRunner().invoke(command, []).output
    assert "GPU0" in output and "SYS across sockets" in output
    assert "warning: GPUs 4-7 have their nearest network adapter on another socket" in output
    document = json.loads(CliRunner().invoke(command, ["--json"]).stdout)
    assert msgspec.convert(document["topology"], Topology) == state
    assert {"gpu-nic-far", "gpus-across-sockets"} <= {finding["id"] for finding in document["findings"]}


def test_wiring_that_cannot_be_read_costs_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    from findwall.machine import wiring as topology

    def broken(host: object) -> Topology:
        raise RuntimeError("no such machine")

    monkeypatch.setattr(topology, "whole_topology", broken)
    result = CliRunner().invoke(command, [])
    assert result.exit_code == 0
    assert "the topology could not be read (RuntimeError: no such machine)" in result.output
    assert "Ceilings" in result.output
