"""The GPUs of a job's processes, told by NVML: by UUID, for every process counts them in its own way."""

from __future__ import annotations

from typing import Any

import msgspec

from findwall.agent.timing.telemetry import Gauges
from findwall.model.machine import Telemetry


class Gpu(msgspec.Struct, frozen=True):
    """One device, and who uses it."""

    uuid: str
    name: str
    memory: int | None  # bytes
    users: dict[int, int]  # process -> bytes it holds there; 0 where that is not told


class GpuList(msgspec.Struct, frozen=True):
    """What NVML knows; `why_not` where it knows nothing."""

    gpus: tuple[Gpu, ...] = ()
    why_not: str = ""


def list_gpus() -> GpuList:
    """All devices of this machine and their processes now."""
    try:
        import pynvml as nvml

        nvml.nvmlInit()
    except Exception as error:  # noqa: BLE001 - no library, no driver, no permission: all mean "no GPUs seen"
        return GpuList(why_not=f"NVML does not answer ({error})")
    try:
        handles = [nvml.nvmlDeviceGetHandleByIndex(at) for at in range(nvml.nvmlDeviceGetCount())]
        return GpuList(tuple(_gpu(nvml, handle) for handle in handles))
    except nvml.NVMLError as error:
        return GpuList(why_not=f"NVML does not answer ({error})")
    finally:
        nvml.nvmlShutdown()


def _gpu(nvml: Any, handle: Any) -> Gpu:
    try:
        running = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
    except nvml.NVMLError:
        running = []
    users = {int(one.pid): int(one.usedGpuMemory or 0) for one in running}
    return Gpu(
        _text(nvml.nvmlDeviceGetUUID(handle)),
        _text(nvml.nvmlDeviceGetName(handle)),
        _memory(nvml, handle),
        users,
    )


def _memory(nvml: Any, handle: Any) -> int | None:
    try:
        return int(nvml.nvmlDeviceGetMemoryInfo(handle).total)
    except nvml.NVMLError:
        return None


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


class Share(msgspec.Struct, frozen=True):
    """The GPUs that a process uses, the one where it holds most first; `is_sure` False: by elimination."""

    gpus: tuple[Gpu, ...] = ()
    is_sure: bool = True


def gpus_of(pid: int, has_gpu: bool | None, known: GpuList) -> Share:
    """By its number where NVML tells numbers; else, where there is but one device, that one."""
    own = [gpu for gpu in known.gpus if pid in gpu.users]
    if own:
        return Share(tuple(sorted(own, key=lambda gpu: -gpu.users[pid])))
    # In a container NVML tells the host's numbers, or none.
    if has_gpu and len(known.gpus) == 1:
        return Share(known.gpus, is_sure=False)
    return Share()


class Board:
    """Gauges of every device that the job uses, each with its own thread."""

    def __init__(self) -> None:
        self._gauges: dict[str, Gauges] = {}

    def watch(self, uuid: str) -> None:
        if uuid not in self._gauges:
            self._gauges[uuid] = Gauges(is_rolling=True)
            self._gauges[uuid].start_on(uuid)

    def summary(self, uuid: str) -> Telemetry | None:
        gauges = self._gauges.get(uuid)
        return None if gauges is None else gauges.summary()

    def stop(self) -> None:
        for gauges in self._gauges.values():
            gauges.stop()
