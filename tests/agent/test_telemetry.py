"""NVML: summarised when it answers, noted when it does not."""

from __future__ import annotations

import sys
import threading
import types
from typing import Any

import pytest

from findwall.agent.timing import telemetry
from findwall.agent.timing.telemetry import Gauges
from findwall.machine.neighbours import Look
from findwall.model.machine import CpuUse, Sampled, Telemetry
from findwall.model.measured_run import Rank
from findwall.step.timed_steps import cores_at_work, in_line_share


class Card:
    """The parts of pynvml that are asked, with answers that can be taken away."""

    class NVMLError(Exception):
        pass

    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0
    NVML_GPM_METRICS_GET_VERSION = 1

    def __init__(self) -> None:
        self.silent: set[str] = set()
        self.asked_uuid: bytes | None = None
        self.sampled = threading.Event()
        self.count = 0

    def answer(self, name: str, value: Any) -> Any:
        if name in self.silent:
            raise self.NVMLError(name)
        return value

    def module(self) -> types.ModuleType:
        module = types.ModuleType("pynvml")
        for name in dir(self):
            if name.startswith(("nvml", "NVML", "c_nvml")):
                setattr(module, name, getattr(self, name))
        return module

    def nvmlInit(self) -> None:
        self.answer("init", None)

    def nvmlDeviceGetHandleByUUID(self, uuid: bytes) -> str:
        self.asked_uuid = uuid
        return self.answer("uuid", "handle")

    def nvmlDeviceGetHandleByPciBusId(self, bus: bytes) -> str:
        return self.answer("uuid", "handle")

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:
        return f"index {index}"

    def nvmlDeviceGetClockInfo(self, handle: str, kind: int) -> int:
        self.count += 1
        if self.count > 4:
            self.sampled.set()
        return self.answer("clock", 1500 + self.count)

    def nvmlDeviceGetMaxClockInfo(self, handle: str, kind: int) -> int:
        return 1980

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: str) -> int:
        return 700_000

    def nvmlDeviceGetPowerUsage(self, handle: str) -> int:
        return self.answer("power", 350_000)

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: str) -> int:
        return 0x4 | (0x40 if self.count > 2 else 0)

    def nvmlDeviceGetComputeRunningProcesses(self, handle: str) -> list[int]:
        return [1, 2]

    def nvmlGpmQueryDeviceSupport(self, handle: str) -> Any:
        return types.SimpleNamespace(isSupportedDevice=self.answer("gpm", 1))

    def nvmlGpmSampleAlloc(self) -> object:
        return object()

    def nvmlGpmSampleGet(self, handle: str, sample: object) -> None: ...

    def c_nvmlGpmMetricsGet_t(self) -> Any:
        metrics = [types.SimpleNamespace(metricId=0, value=0.0, nvmlReturn=0) for _ in range(20)]
        return types.SimpleNamespace(metrics=metrics)

    def nvmlGpmMetricsGet(self, request: Any) -> None:
        for metric in request.metrics[: request.numMetrics]:
            metric.value = float(metric.metricId)
            metric.nvmlReturn = int(metric.metricId == 20)


class Torch:
    class cuda:  # noqa: N801
        @staticmethod
        def get_device_properties(device: int) -> Any:
            return types.SimpleNamespace(uuid="abc-1", pci_bus_id=4, pci_domain_id=0, pci_device_id=0)


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Card:
    card = Card()
    monkeypatch.setattr(telemetry, "TELEMETRY_PERIOD_S", 0.001)
    monkeypatch.setitem(sys.modules, "pynvml", card.module())
    return card


def watch(card: Card) -> Telemetry:
    watcher = Gauges()
    watcher.start(Torch, 0)
    watcher.pause(False)
    assert card.sampled.wait(5)
    watcher.stop()
    return watcher.summary()


def test_a_card_that_answers(card):
    summary = watch(card)
    assert card.asked_uuid == b"GPU-abc-1"
    assert summary.max_sm_clock_mhz == 1980 and summary.power_limit_w == 700
    assert 1500 < summary.sm_clock_mhz.mean < 1600
    assert summary.power_w == Sampled(350, 350, 350)
    assert summary.throttle["sw-power-cap"] == 1 and 0 < summary.throttle["hw-thermal"] < 1
    assert summary.other_processes == 1
    assert summary.gpm.tensor == 5 and summary.gpm.pcie_tx_mib_s is None
    assert summary.temperature_c is None  # not answered: unknown, not zero


def test_questions_without_an_answer_are_unknown(card):
    card.silent = {"power", "gpm", "uuid"}
    summary = watch(card)
    assert summary.power_w is None and summary.gpm is None
    assert any("GPM" in note for note in summary.notes)


def test_a_broken_nvml_is_a_note(card, monkeypatch):
    card.silent = {"init"}
    watcher = Gauges()
    watcher.start(Torch, 0)
    watcher.stop()
    assert "telemetry ended: NVMLError" in watcher.summary().notes[0]
    monkeypatch.setitem(sys.modules, "pynvml", None)
    watcher = Gauges()
    watcher.start(Torch, 0)
    watcher.stop()
    assert "telemetry ended" in watcher.summary().notes[0]


def test_a_cpu_job_has_no_telemetry_but_of_its_cores(monkeypatch):
    looks = iter(
        [
            Look(0.0, 2, 10.0, 1.0, {"41": 0.5}, 7, 0.5, 0.25, 100),
            Look(2.0, 2, 13.5, 1.5, {"41": 1.5}, 7, 0.9, 0.5, 900),
        ]
    )
    monkeypatch.setattr(telemetry.neighbours, "look", lambda: next(looks))
    watcher = Gauges()
    watcher.start(Torch, None)
    watcher.pause(False)
    watcher.pause(True)
    watcher.pause(False)  # the control steps look no more
    watcher.pause(True)
    watcher.stop()
    cpu = CpuUse(
        cores=2,
        others_busy=1.5,
        own_busy=0.25,
        in_line_share=0.2,
        seconds=2.0,
        children_wanted=0.5,
        system_busy=0.125,
        faults=400.0,
    )
    assert watcher.summary() == Telemetry(cpu=cpu)


def test_ranks_do_not_take_each_other_for_other_peoples_work(monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    looks = iter([Look(0.0, 8, 10.0, 1.0, {"41": 0.5}, 7, 0.5), Look(2.0, 8, 13.5, 1.5, {"41": 1.5}, 7, 0.9)])
    monkeypatch.setattr(telemetry.neighbours, "look", lambda: next(looks))
    monkeypatch.setattr(telemetry, "usable_cores", lambda: 4)
    watcher = Gauges()
    watcher.pause(False)
    watcher.pause(True)
    cpu = CpuUse(
        cores=4,
        own_busy=0.25,
        in_line_share=0.2,
        seconds=2.0,
        children_wanted=0.5,
        system_busy=0.0,
        faults=0.0,
    )
    assert watcher.summary() == Telemetry(cpu=cpu)
    waiting = Rank(telemetry=watcher.summary())
    assert in_line_share(waiting) == 0.0 and cores_at_work(watcher.summary(), 0.5) is None


def test_a_fork_waits_for_nvml_and_never_forever():
    watcher = Gauges()
    watcher.before_fork()
    assert watcher._lock.locked()
    watcher.before_fork()  # held by a call that hangs: given up after a moment
    watcher.after_fork_in_parent()
    watcher.after_fork_in_parent()
    assert not watcher._lock.locked()
