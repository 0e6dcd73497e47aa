"""Which GPU is whose, as NVML tells it; and the gauges of a device that another process uses."""

from __future__ import annotations

import sys
import threading
import types
from typing import Any

import pytest

from findwall.agent.timing import telemetry
from findwall.agent.timing.telemetry import MOST_SAMPLES, Gauges
from findwall.watch.gpus import Board, Gpu, GpuList, gpus_of, list_gpus

ONE = Gpu("GPU-1", "NVIDIA H200", 141 << 30, {10: 5, 11: 9})
TWO = Gpu("GPU-2", "NVIDIA H200", 141 << 30, {11: 20})


class Machine:
    """The parts of pynvml that are asked: two cards without GPM."""

    class NVMLError(Exception):
        pass

    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0
    NVML_PCIE_UTIL_TX_BYTES, NVML_PCIE_UTIL_RX_BYTES = 0, 1

    def __init__(self) -> None:
        self.asked = 0
        self.enough = threading.Event()

    def module(self) -> types.ModuleType:
        module = types.ModuleType("pynvml")
        for name in dir(self):
            if name.startswith(("nvml", "NVML")):
                setattr(module, name, getattr(self, name))
        return module

    def nvmlInit(self) -> None: ...

    def nvmlShutdown(self) -> None: ...

    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetHandleByUUID(self, uuid: bytes) -> int:
        if uuid not in (b"GPU-0", b"GPU-1"):
            raise self.NVMLError("not found")
        return int(uuid[-1:])

    def nvmlDeviceGetUUID(self, handle: int) -> bytes:
        return f"GPU-{handle}".encode()

    def nvmlDeviceGetName(self, handle: int) -> str:
        return "NVIDIA A100"

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:
        return types.SimpleNamespace(total=80 << 30, used=1 << 30)

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> list[Any]:
        return [types.SimpleNamespace(pid=7, usedGpuMemory=None)] if handle else []

    def nvmlDeviceGetPcieThroughput(self, handle: int, way: int) -> int:
        self.asked += 1
        if self.asked > 2 * MOST_SAMPLES + 20:
            self.enough.set()
        return 1024 * (way + 1)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    cards = Machine()
    monkeypatch.setitem(sys.modules, "pynvml", cards.module())
    monkeypatch.setattr(telemetry, "TELEMETRY_PERIOD_S", 0.0)
    return cards


def test_a_process_has_the_gpus_that_name_it_the_fullest_first() -> None:
    known = GpuList((ONE, TWO))
    assert [gpu.uuid for gpu in gpus_of(11, True, known).gpus] == ["GPU-2", "GPU-1"]
    assert gpus_of(10, True, known).is_sure


def test_where_numbers_are_hidden_only_a_single_gpu_is_the_jobs() -> None:
    hidden = (Gpu("GPU-1", "NVIDIA H200", None, {}),)
    alone = gpus_of(10, True, GpuList(hidden))
    assert [gpu.uuid for gpu in alone.gpus] == ["GPU-1"] and not alone.is_sure
    assert gpus_of(10, True, GpuList((*hidden, TWO))).gpus == ()
    assert gpus_of(10, False, GpuList(hidden)).gpus == ()


def test_nvml_lists_devices_and_their_processes(machine: Machine) -> None:
    first, second = list_gpus().gpus
    assert (first.uuid, first.users, second.users) == ("GPU-0", {}, {7: 0})


def test_without_nvml_nothing_is_claimed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert list_gpus().gpus == () and "NVML does not answer" in list_gpus().why_not


def test_gauges_of_another_process_roll_on_and_ask_the_link_where_there_is_no_gpm(machine: Machine) -> None:
    gauges = Gauges(is_rolling=True)
    gauges.start_on("GPU-1")
    assert machine.enough.wait(30)
    gauges.stop()
    told = gauges.summary()
    assert told.samples == MOST_SAMPLES
    assert told.gpm is not None and told.gpm.sm is None
    assert (told.gpm.pcie_tx_mib_s, told.gpm.pcie_rx_mib_s) == (1.0, 2.0)
    assert told.cpu is None


def test_a_board_has_one_set_of_gauges_a_device(machine: Machine) -> None:
    board = Board()
    board.watch("GPU-1")
    board.watch("GPU-1")
    board.stop()
    assert board.summary("GPU-1") is not None and board.summary("GPU-0") is None
