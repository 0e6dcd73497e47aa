"""What the machine says of itself while steps are timed: a thread that asks NVML twice a second, and a look
at the CPUs' totals before and after.

Where NVML is absent, broken or barred, that is noted and nothing else is lost.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
from collections.abc import Callable
from statistics import mean
from time import monotonic
from typing import Any

from msgspec.structs import replace

from findwall.agent.membership import this_rank
from findwall.apply.live_threads import usable_cores
from findwall.machine import neighbours
from findwall.model.machine import Counters, CpuUse, Noted, Sampled, Telemetry
from findwall.units import GIB

TELEMETRY_PERIOD_S = 0.5
MOST_SAMPLES = 240  # two minutes of them
FORK_WAIT_S = 0.2  # at most, for an NVML call to return; chosen by hand

REASONS = {
    0x1: "gpu-idle",
    0x2: "application-clocks",
    0x4: "sw-power-cap",
    0x8: "hw-slowdown",
    0x10: "sync-boost",
    0x20: "sw-thermal",
    0x40: "hw-thermal",
    0x80: "hw-power-brake",
    0x100: "display-clocks",
}

# Of these reasons: what holds the clocks down though there is work.
HELD_DOWN = 0x4 | 0x8 | 0x20 | 0x40 | 0x80

# name -> NVML_GPM_METRIC id; utilisations in percent
GPM = {"sm": 2, "tensor": 5, "dram": 10, "fp64": 11, "fp32": 12, "fp16": 13}
GPM_RATES = {"pcie_tx_mib_s": 20, "pcie_rx_mib_s": 21}


class Gauges:
    """One device's samples. Every failure becomes a note."""

    def __init__(self, is_rolling: bool = False) -> None:
        """`is_rolling`: without end, and the oldest samples make room for new ones."""
        self.notes: list[str] = []
        self.samples: deque[dict[str, Any]] = deque(maxlen=MOST_SAMPLES if is_rolling else None)
        self._is_rolling = is_rolling
        self._constant: dict[str, Any] = {}
        self._stopped = self._asked = False
        self._wake = threading.Event()
        self._paused = True
        self._timing_since = monotonic()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()  # held during NVML calls: a fork waits for it
        self._nvml: Any | None = None
        self._handle: Any | None = None
        self._gpm: _Gpm | None = None
        self._before: neighbours.Look | None = None
        self._cpu: CpuUse | None = None
        self._cpu_wanted = True

    def start(self, torch: Any, device: int | None) -> None:
        if device is None or self._thread is not None:
            return
        try:
            identity = _identity(torch, device)
        except (RuntimeError, AssertionError, AttributeError) as error:
            self.notes.append(f"no telemetry: {error}")
            return
        self._begin(identity)

    def start_on(self, uuid: str) -> None:
        """Of a device that another process uses; samples are taken from now on."""
        self._cpu_wanted = False
        self.pause(False)
        self._begin((uuid, None, 0))

    def _begin(self, identity: tuple[str | None, str | None, int]) -> None:
        self._stopped = False
        self._wake.clear()
        self._thread = threading.Thread(
            target=self._watch, args=(identity,), name="findwall-nvml", daemon=True
        )
        self._thread.start()

    def pause(self, paused: bool) -> None:
        """Samples are taken only while steps are timed; the thread and NVML are ready before."""
        self._paused = paused
        if not paused and not self.samples:
            self._timing_since = monotonic()
        if not self._cpu_wanted:
            return
        if not paused:
            self._before = neighbours.look()
        elif self._before is not None:
            self._cpu = neighbours.between(self._before, neighbours.look())
            if self._cpu is not None and this_rank().world_size > 1:  # nobody tells other ranks from others
                self._cpu = replace(self._cpu, cores=usable_cores(), others_busy=None)
            self._cpu_wanted = False  # later pauses are those of the control steps

    def sample_now(self) -> None:
        """Once, also while paused."""
        self._asked = True
        self._wake.set()

    def stop(self) -> None:
        self._stopped = True
        self._wake.set()
        thread, self._thread = self._thread, None
        if thread is not None and thread.is_alive():
            thread.join(1.0)

    def before_fork(self) -> None:
        self._lock.acquire(timeout=FORK_WAIT_S)

    def after_fork_in_parent(self) -> None:
        with contextlib.suppress(RuntimeError):  # it was not acquired in time
            self._lock.release()

    def _watch(self, identity: tuple[str | None, str | None, int]) -> None:
        try:
            self._open(identity)
            while self._is_rolling or len(self.samples) < MOST_SAMPLES:
                if not self._paused or self._asked:
                    self._asked = False
                    with self._lock:
                        self._sample()
                self._wake.wait(TELEMETRY_PERIOD_S)
                if self._stopped:
                    return
                self._wake.clear()
        except Exception as error:  # noqa: BLE001 - NVML raises its own classes and ctypes errors; all mean "no telemetry"
            self.notes.append(f"telemetry ended: {type(error).__name__}: {error}")

    def _open(self, identity: tuple[str | None, str | None, int]) -> None:
        import pynvml

        with self._lock:
            pynvml.nvmlInit()
            self._nvml = pynvml
            self._handle = _find(pynvml, identity)
            self._constant = self._ask_constants(pynvml)
            self._gpm = _Gpm.open(pynvml, self._handle)
            if self._gpm is None:
                self.notes.append("no GPM counters on this device or in this container")

    def _ask(self, name: str, *arguments: Any) -> Any | None:
        """One NVML question; None if this card, driver or container does not answer it."""
        nvml = self._nvml
        function: Callable[..., Any] | None = getattr(nvml, name, None)
        if nvml is None or function is None:
            return None
        try:
            return function(self._handle, *arguments)
        except nvml.NVMLError:
            return None

    def _ask_constants(self, nvml: Any) -> dict[str, Any]:
        limit = self._ask("nvmlDeviceGetEnforcedPowerLimit")
        return {
            "max_sm_clock_mhz": self._ask("nvmlDeviceGetMaxClockInfo", nvml.NVML_CLOCK_SM),
            "power_limit_w": None if limit is None else limit / 1000,
            "pcie_generation": self._ask("nvmlDeviceGetCurrPcieLinkGeneration"),
            "pcie_width": self._ask("nvmlDeviceGetCurrPcieLinkWidth"),
        }

    def _sample(self) -> None:
        nvml = self._nvml
        assert nvml is not None
        reasons = self._ask("nvmlDeviceGetCurrentClocksEventReasons")
        if reasons is None:
            reasons = self._ask("nvmlDeviceGetCurrentClocksThrottleReasons")
        power = self._ask("nvmlDeviceGetPowerUsage")
        memory = self._ask("nvmlDeviceGetMemoryInfo")
        use = self._ask("nvmlDeviceGetUtilizationRates")
        processes = self._ask("nvmlDeviceGetComputeRunningProcesses")
        self.samples.append(
            {
                "seconds": monotonic() - self._timing_since,
                "sm_clock_mhz": self._ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM),
                "reasons": None if reasons is None else int(reasons),
                "power_w": None if power is None else power / 1000,
                "temperature_c": self._ask("nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU),
                "memory_used": None if memory is None else int(memory.used),
                "utilisation": None if use is None else int(use.gpu),
                "processes": None if processes is None else len(processes),
                "gpm": self._pcie() if self._gpm is None else self._gpm.sample(),
            }
        )

    def _pcie(self) -> dict[str, float] | None:
        """The link's rates where there are no counters: each takes NVML 20 ms, too long inside a job."""
        nvml = self._nvml
        if not self._is_rolling or nvml is None:
            return None
        wanted = {
            "pcie_tx_mib_s": nvml.NVML_PCIE_UTIL_TX_BYTES,
            "pcie_rx_mib_s": nvml.NVML_PCIE_UTIL_RX_BYTES,
        }
        rates = {name: self._ask("nvmlDeviceGetPcieThroughput", way) for name, way in wanted.items()}
        return {name: kib / 1024 for name, kib in rates.items() if kib is not None} or None

    def summary(self) -> Telemetry:
        samples = list(self.samples)
        if not samples:
            return Telemetry(cpu=self._cpu, notes=tuple(self.notes))
        used = [s["memory_used"] for s in samples if s["memory_used"] is not None]
        processes = [s["processes"] for s in samples if s["processes"] is not None]
        return Telemetry(
            **self._constant,
            sm_clock_mhz=_spread(samples, "sm_clock_mhz"),
            power_w=_spread(samples, "power_w"),
            temperature_c=_spread(samples, "temperature_c"),
            throttle=_throttle(samples),
            memory_used=max(used, default=None),
            # Containers hide other processes' ids: more than one is known to be others, one proves nothing.
            other_processes=max(processes) - 1 if processes and max(processes) > 0 else None,
            gpm=_mean_gpm(samples),
            samples=len(samples),
            cpu=self._cpu,
            notes=tuple(self.notes),
            noted=_noted(samples),
        )


def _identity(torch: Any, device: int) -> tuple[str | None, str | None, int]:
    """UUID, PCI bus id and the index as the job counts: CUDA_VISIBLE_DEVICES renumbers, NVML does not."""
    properties = torch.cuda.get_device_properties(device)
    uuid = getattr(properties, "uuid", None)
    bus = getattr(properties, "pci_bus_id", None)
    pci = None
    if bus is not None:
        pci = f"{properties.pci_domain_id:08X}:{bus:02X}:{properties.pci_device_id:02X}.0"
    return None if uuid is None else str(uuid), pci, device


def _find(nvml: Any, identity: tuple[str | None, str | None, int]) -> Any:
    uuid, pci, index = identity
    if uuid is not None:
        for prefix in ("GPU-", "MIG-", ""):
            with contextlib.suppress(nvml.NVMLError):
                return nvml.nvmlDeviceGetHandleByUUID(f"{prefix}{uuid}".encode())
    if pci is not None:
        with contextlib.suppress(nvml.NVMLError):
            return nvml.nvmlDeviceGetHandleByPciBusId(pci.encode())
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    names = [name.strip() for name in visible.split(",") if name.strip()]
    if index < len(names):
        name = names[index]
        if name.isdigit():
            return nvml.nvmlDeviceGetHandleByIndex(int(name))
        return nvml.nvmlDeviceGetHandleByUUID(name.encode())
    return nvml.nvmlDeviceGetHandleByIndex(index)


class _Gpm:
    """Hopper and later: how busy the SMs, the tensor pipe and DRAM were between two looks."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml = nvml
        self._handle = handle
        self._last = nvml.nvmlGpmSampleAlloc()
        self._next = nvml.nvmlGpmSampleAlloc()
        nvml.nvmlGpmSampleGet(handle, self._last)

    @classmethod
    def open(cls, nvml: Any, handle: Any) -> _Gpm | None:
        try:
            if not nvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice:
                return None
            return cls(nvml, handle)
        except (nvml.NVMLError, AttributeError):
            return None

    def sample(self) -> dict[str, float] | None:
        nvml = self._nvml
        try:
            nvml.nvmlGpmSampleGet(self._handle, self._next)
            answer = self._metrics()
        except nvml.NVMLError:
            return None
        self._last, self._next = self._next, self._last
        return answer

    def _metrics(self) -> dict[str, float]:
        nvml = self._nvml
        wanted = {**GPM, **GPM_RATES}
        request = nvml.c_nvmlGpmMetricsGet_t()
        request.version = nvml.NVML_GPM_METRICS_GET_VERSION
        request.numMetrics = len(wanted)
        request.sample1, request.sample2 = self._last, self._next
        for position, metric in enumerate(wanted.values()):
            request.metrics[position].metricId = metric
        nvml.nvmlGpmMetricsGet(request)
        return {
            name: float(request.metrics[position].value)
            for position, name in enumerate(wanted)
            if request.metrics[position].nvmlReturn == 0
        }


def _spread(samples: list[dict[str, Any]], name: str) -> Sampled | None:
    known = [float(sample[name]) for sample in samples if sample[name] is not None]
    return Sampled(mean(known), min(known), max(known)) if known else None


def _noted(samples: list[dict[str, Any]]) -> Noted:
    """The samples as columns; the first counters span no half second and are left out."""
    columns: dict[str, list[float | None]] = {
        name: [_rounded(sample[name]) for sample in samples]
        for name in ("sm_clock_mhz", "power_w", "temperature_c", "utilisation")
    }
    used = [sample["memory_used"] for sample in samples]
    columns["memory_gib"] = [None if value is None else _rounded(value / GIB) for value in used]
    reasons = [sample["reasons"] for sample in samples]
    columns["held_down"] = [None if value is None else float(bool(value & HELD_DOWN)) for value in reasons]
    counters = [None, *(sample["gpm"] for sample in samples[1:])]
    for name in ("tensor", "dram"):
        columns[name] = [_rounded(one.get(name)) if one else None for one in counters]
    known = {name: column for name, column in columns.items() if any(value is not None for value in column)}
    return Noted([round(sample["seconds"], 3) for sample in samples], known)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(float(value), 2)


def _throttle(samples: list[dict[str, Any]]) -> dict[str, float] | None:
    """The share of samples in which each reason held the clocks."""
    known = [sample["reasons"] for sample in samples if sample["reasons"] is not None]
    if not known:
        return None
    shares = {name: sum(1 for r in known if r & bit) / len(known) for bit, name in REASONS.items()}
    return {name: share for name, share in shares.items() if share}


def _mean_gpm(samples: list[dict[str, Any]]) -> Counters | None:
    # The first answer spans the moments since the counters were opened, not half a second.
    known = [sample["gpm"] for sample in samples[1:] if sample["gpm"]]
    if not known:
        return None
    names = {name for sample in known for name in sample}
    return Counters(**{name: mean(s[name] for s in known if name in s) for name in names})
