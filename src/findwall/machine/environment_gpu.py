"""The GPU side of the audit, from NVML: throttling, limits, other processes, the link to the host."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from findwall.machine.environment_host import Host
from findwall.model.catalogue import WORTH_IT
from findwall.model.machine import SHARED_GPU, Finding
from findwall.units import GIB

# Bits of NVML's clock event reasons. The software power cap (0x4) is normal for a busy data-centre GPU.
THERMAL = 0x20 | 0x40
HARDWARE = 0x08 | 0x80
CLOCKS_SET = 0x02
POWER_CAP = 0x04

BUSY_PERCENT = 50
# All chosen by hand, not calibrated.
LOW_CLOCK_SHARE = 0.7  # of the highest, under load and without the power cap
# A GPU that holds more than both of these before the job has started is in use by somebody.
IDLE_GIB, IDLE_SHARE = 2.0, 0.03


@dataclass(frozen=True)
class GpuState:
    """What NVML says of one device now. None: it would not say."""

    index: int
    name: str
    uuid: str = ""
    reasons: int | None = None
    clock_mhz: int | None = None
    max_clock_mhz: int | None = None
    busy_percent: int | None = None
    power_limit_w: float | None = None
    default_power_w: float | None = None
    pids: tuple[int, ...] | None = None
    used_bytes: int | None = None
    total_bytes: int | None = None
    link_width: int | None = None
    max_link_width: int | None = None
    link_generation: int | None = None
    max_link_generation: int | None = None
    persistence: bool | None = None
    mig: bool | None = None
    bus_id: str | None = None

    @property
    def busy(self) -> bool:
        return (self.busy_percent or 0) >= BUSY_PERCENT


@contextlib.contextmanager
def nvml() -> Iterator[Any]:
    """NVML, started and stopped again; None where there is none that works."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # noqa: BLE001 - no library, another driver, no device: each fails in its own way
        yield None
        return
    try:
        yield pynvml
    finally:
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def look_at_gpus(
    host: Host,
    torch: Any = None,
    beside: Callable[[Any, list[GpuState]], Iterable[Finding]] | None = None,
) -> Iterable[Finding]:
    """`beside`: another look at the devices that this job sees, while NVML is open."""
    with nvml() as library:
        if library is None:
            sentence = (
                "NVML is missing or does not answer, so clocks, throttling and other processes are unknown."
            )
            return [Finding("no-nvml", "info", sentence, "")]
        states = visible_states(library, host, torch)
        more = list(beside(library, states)) if beside is not None else []
    findings = [*more, *_look_at_build(torch, bool(states))]
    cuda_started = torch is not None and bool(torch.cuda.is_initialized())
    for state in states:
        findings += judge(state, cuda_started, os.getpid(), siblings(torch))
        findings += _look_at_numa(state, host)
    return findings


def gpu_here() -> str | None:
    """The first GPU that a job here can use, by its driver's name; None without one. Needs no torch."""
    with nvml() as library:
        states = [] if library is None else _ask(visible_states, library, Host())
    return states[0].name if states else None


def visible_states(library: Any, host: Host, torch: Any = None) -> list[GpuState]:
    """The devices this job can see, in its own order, found by UUID wherever one is known."""
    states = [_state(library, index) for index in range(_ask(library.nvmlDeviceGetCount) or 0)]
    by_uuid = _torch_uuids(torch)
    if by_uuid:
        matched = [state for uuid in by_uuid for state in states if _plain(state.uuid) == _plain(uuid)]
        if matched:
            return matched
    return select_visible(
        states, host.environ.get("CUDA_VISIBLE_DEVICES"), host.environ.get("CUDA_DEVICE_ORDER")
    )


def select_visible(states: list[GpuState], visible: str | None, order: str | None) -> list[GpuState]:
    """CUDA_VISIBLE_DEVICES applied: UUIDs by their beginning, numbers by place, up to the first bad one."""
    if visible is None:
        return states
    mixed = len({state.name for state in states}) > 1 and order != "PCI_BUS_ID"
    chosen: list[GpuState] = []
    for word in (part.strip() for part in visible.split(",")):
        if word.isdigit() and int(word) < len(states):
            # CUDA counts unequal cards by speed, NVML by bus: a number then names no certain card.
            if mixed:
                return states
            chosen.append(states[int(word)])
            continue
        found = [state for state in states if word.startswith("GPU-") and state.uuid.startswith(word)]
        if len(found) != 1:
            break
        chosen += found
    return chosen


def _plain(uuid: str) -> str:
    return uuid.removeprefix("GPU-").lower()


def _torch_uuids(torch: Any) -> list[str]:
    """UUIDs as torch has them; only where CUDA runs already, since asking would start it."""
    if torch is None or not torch.cuda.is_initialized():
        return []
    devices = (torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count()))
    return [str(device.uuid) for device in devices if getattr(device, "uuid", None)]


def _ask(question: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return question(*arguments)
    except Exception:  # noqa: BLE001 - old drivers lack functions, virtual GPUs refuse them: it is unknown
        return None


def nvml_driver(library: Any) -> str | None:
    """The driver's version, as NVML tells it."""
    return _text(_ask(lambda: library.nvmlSystemGetDriverVersion())) or None


def _state(library: Any, index: int) -> GpuState:
    handle = library.nvmlDeviceGetHandleByIndex(index)

    def ask(name: str, *arguments: Any) -> Any:
        return _ask(lambda: getattr(library, name)(handle, *arguments))

    reasons = ask("nvmlDeviceGetCurrentClocksEventReasons")
    memory, utilization, pci = (
        ask("nvmlDeviceGetMemoryInfo"),
        ask("nvmlDeviceGetUtilizationRates"),
        ask("nvmlDeviceGetPciInfo"),
    )
    processes = ask("nvmlDeviceGetComputeRunningProcesses")
    mig, persistence = ask("nvmlDeviceGetMigMode"), ask("nvmlDeviceGetPersistenceMode")
    return GpuState(
        index=index,
        name=_text(ask("nvmlDeviceGetName")),
        uuid=_text(ask("nvmlDeviceGetUUID")),
        reasons=ask("nvmlDeviceGetCurrentClocksThrottleReasons") if reasons is None else reasons,
        clock_mhz=ask("nvmlDeviceGetClockInfo", library.NVML_CLOCK_SM),
        max_clock_mhz=ask("nvmlDeviceGetMaxClockInfo", library.NVML_CLOCK_SM),
        busy_percent=None if utilization is None else utilization.gpu,
        power_limit_w=_watts(ask("nvmlDeviceGetEnforcedPowerLimit")),
        default_power_w=_watts(ask("nvmlDeviceGetPowerManagementDefaultLimit")),
        pids=None if processes is None else tuple(process.pid for process in processes),
        used_bytes=None if memory is None else memory.used,
        total_bytes=None if memory is None else memory.total,
        link_width=ask("nvmlDeviceGetCurrPcieLinkWidth"),
        max_link_width=ask("nvmlDeviceGetMaxPcieLinkWidth"),
        link_generation=ask("nvmlDeviceGetCurrPcieLinkGeneration"),
        max_link_generation=ask("nvmlDeviceGetMaxPcieLinkGeneration"),
        persistence=None if persistence is None else bool(persistence),
        mig=None if mig is None else bool(mig[0]),
        bus_id=None if pci is None else _text(pci.busId),
    )


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value or "")


def _watts(milliwatts: int | None) -> float | None:
    return None if milliwatts is None else milliwatts / 1000


def _look_at_build(torch: Any, has_gpu: bool) -> Iterable[Finding]:
    if torch is not None and has_gpu and not torch.version.cuda and not torch.version.hip:
        sentence = "There is a GPU, but this torch was built without CUDA: the job runs on the CPU."
        yield Finding("torch-without-cuda", "warning", sentence, "install a CUDA build of torch")


def judge(state: GpuState, cuda_started: bool, own_pid: int, own_ranks: int = 0) -> Iterable[Finding]:
    """What one device's state means for a job on it. Pure: tests hand it states."""
    yield from _judge_clocks(state)
    yield from _judge_sharing(state, cuda_started, own_pid, own_ranks)
    yield from _judge_link(state)
    if state.persistence is False:
        sentence = f"Persistence mode is off on GPU {state.index}: the driver unloads when nothing runs."
        yield Finding("persistence-off", "info", sentence, "sudo nvidia-smi -pm 1")
    if state.mig:
        sentence = f"GPU {state.index} is partitioned (MIG): a slice has a slice's speed, not the card's."
        yield Finding("mig", "info", sentence, "")


def _judge_clocks(state: GpuState) -> Iterable[Finding]:
    gpu, reasons = f"GPU {state.index}", state.reasons or 0
    if reasons & THERMAL:
        yield Finding(
            "throttled-thermal", "warning", f"{gpu} is hot and slows itself down.", "check its cooling"
        )
    if reasons & HARDWARE:
        sentence = f"{gpu} is slowed down by its hardware (power brake or slowdown signal)."
        yield Finding("throttled-hardware", "warning", sentence, "check its power supply and cooling")
    if reasons & CLOCKS_SET:
        sentence = f"{gpu}'s clocks are set below what it could do."
        yield Finding("clocks-set", "warning", sentence, "sudo nvidia-smi -rac; sudo nvidia-smi -rgc")
    low = state.clock_mhz and state.max_clock_mhz and state.clock_mhz < LOW_CLOCK_SHARE * state.max_clock_mhz
    if low and state.busy and not reasons & POWER_CAP:
        sentence = f"{gpu} runs at {state.clock_mhz} of {state.max_clock_mhz} MHz under load."
        yield Finding("clocks-low", "warning", sentence, "nvidia-smi -q -d PERFORMANCE says why")
    limit, default = state.power_limit_w, state.default_power_w
    if limit and default and limit < (1.0 - WORTH_IT) * default:
        sentence = f"{gpu} is limited to {limit:.0f} W; its default is {default:.0f} W."
        yield Finding("power-limit", "warning", sentence, f"sudo nvidia-smi -pl {default:.0f}")


def siblings(torch: Any) -> int:
    """Other ranks of this job that may sit on the same GPU. NCCL allows none."""
    distributed = getattr(torch, "distributed", None)
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return 0
    if "nccl" in str(distributed.get_backend()):
        return 0
    here = os.environ.get("LOCAL_WORLD_SIZE", "")
    return (int(here) if here.isdigit() else int(distributed.get_world_size())) - 1


def _judge_sharing(state: GpuState, cuda_started: bool, own_pid: int, own_ranks: int) -> Iterable[Finding]:
    """Inside a container our own process has another number here: where CUDA runs, one of them is ours."""
    pids = state.pids or ()
    others = len([pid for pid in pids if pid != own_pid]) - own_ranks
    if cuda_started and own_pid not in pids:
        others -= 1
    used = (state.used_bytes or 0) / GIB
    if others > 0:
        what = "another process uses it" if others == 1 else f"{others} other processes use it"
        sentence = f"GPU {state.index} is shared: {what} ({used:.1f} GiB taken in all)."
        yield Finding(SHARED_GPU, "warning", sentence, "measure on a GPU of your own")
    elif not cuda_started and (
        state.busy or used > max(IDLE_GIB, IDLE_SHARE * (state.total_bytes or 0) / GIB)
    ):
        sentence = f"GPU {state.index} is not idle: {used:.1f} GiB taken, {state.busy_percent or 0} % busy."
        yield Finding(SHARED_GPU, "warning", sentence, "measure on a GPU of your own")


def _judge_link(state: GpuState) -> Iterable[Finding]:
    width, full = state.link_width, state.max_link_width
    if width and full and width < full:
        sentence = (
            f"GPU {state.index} is linked to the host over {width} of {full} PCIe lanes, so copies are "
            "slower."
        )
        yield Finding("pcie-width", "warning", sentence, "check the slot and the riser")
    generation, newest = state.link_generation, state.max_link_generation
    # An idle link drops to a slow generation to save power: it tells something under load only.
    if generation and newest and generation < newest and state.busy:
        sentence = f"GPU {state.index}'s PCIe link runs at generation {generation} of {newest} under load."
        yield Finding("pcie-generation", "warning", sentence, "check the BIOS and the slot")


def _look_at_numa(state: GpuState, host: Host) -> Iterable[Finding]:
    if state.bus_id is None or not host.affinity:
        return
    # NVML writes the domain with eight digits, the kernel with four.
    domain, _, rest = state.bus_id.lower().partition(":")
    local = host.read(f"/sys/bus/pci/devices/{domain[-4:]}:{rest}/local_cpulist")
    near = parse_cores(local or "")
    if near and not near & host.affinity:
        sentence = f"This process is bound to cores far from GPU {state.index}: every copy crosses sockets."
        yield Finding("numa-far", "warning", sentence, f"taskset -c {local} (or numactl) for this GPU")


def parse_cores(text: str) -> frozenset[int]:
    """ "0-3,8" as a set of core numbers; nonsense gives an empty one."""
    cores: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first.isdigit() and (last.isdigit() or not last):
            cores |= set(range(int(first), int(last or first) + 1))
    return frozenset(cores)
