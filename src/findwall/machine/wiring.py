"""How this machine is wired, as NVML and /sys tell it. Nothing raises; what does not answer is unknown.

A job waits for this where `findwall run` asks, so a limit of time can be given: what is not read by then is
left unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from time import monotonic
from typing import Any

from findwall.machine.environment_gpu import GpuState, nvml, visible_states
from findwall.machine.environment_host import Host
from findwall.machine.wiring_findings import judge_topology
from findwall.machine.wiring_sysfs import acs_bridges, distance, network_adapters, numa_of, pci_path, sys_bus
from findwall.model.machine import Finding
from findwall.model.topology import GpuPair, NvLink, PcieLink, Topology, TopologyGpu

# NVML's numbers, by the names of `nvidia-smi topo -m`.
LEVEL_OF = {0: "INT", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
P2P_OF = {0: "ok", 1: "chipset", 2: "gpu", 3: "topology", 4: "disabled", 5: "other"}
FAR_END = {0: "gpu", 1: "other", 2: "switch"}
READ, WRITE = 0, 1
MOST_LINKS = 36  # of a chip, as NVML counts them
# What NVML raises where a chip has no NVLink, or none of that number.
NO_SUCH_THING = ("NVMLError_NotSupported", "NVMLError_InvalidArgument")
RUN_LIMIT_S = 0.04  # what a running job may wait for it


class Question:
    """NVML, asked for as long as there is time. None: it did not answer."""

    def __init__(self, library: Any, until: float | None) -> None:
        self._library, self._until = library, until
        self.there_is_none = False  # the last answer was that the device has no such thing

    @property
    def has_time(self) -> bool:
        return self._until is None or monotonic() < self._until

    def __call__(self, name: str, *arguments: Any) -> Any:
        self.there_is_none = False
        if not self.has_time:
            return None
        try:
            return getattr(self._library, name)(*arguments)
        except Exception as error:  # noqa: BLE001 - old drivers lack functions, virtual GPUs refuse them
            self.there_is_none = type(error).__name__ in NO_SUCH_THING
            return None


def read_topology(
    library: Any, states: Sequence[GpuState], host: Host, limit_s: float | None = None
) -> Topology:
    """The wiring of these GPUs, and of the machine's network adapters."""
    ask = Question(library, None if limit_s is None else monotonic() + limit_s)
    gpus = tuple(_gpu(ask, state, host) for state in states)
    paths = {gpu.index: pci_path(host, gpu.bus) for gpu in gpus}
    nics = network_adapters(host, {str(gpu.index): gpu for gpu in gpus}, lambda: ask.has_time)
    acs = acs_bridges(host, [path for path in paths.values() if path], lambda: ask.has_time)
    return Topology(
        gpus=gpus,
        pairs=tuple(_pair(ask, one, other, paths) for one, other in combinations(gpus, 2)),
        nics=nics,
        acs=acs,
        is_virtual=_is_virtual(host)
        if acs
        else None,  # a file that is slow to read, and decides nothing else
    )


def _is_virtual(host: Host) -> bool | None:
    flags = host.read("/proc/cpuinfo")
    return None if not flags else "hypervisor" in flags.partition("\n\n")[0].split()


def _gpu(ask: Question, state: GpuState, host: Host) -> TopologyGpu:
    handle = ask("nvmlDeviceGetHandleByIndex", state.index)
    bus = sys_bus(state.bus_id)
    return TopologyGpu(
        index=state.index,
        name=state.name,
        bus=bus,
        numa=numa_of(host, bus),
        cores=(host.read(f"/sys/bus/pci/devices/{bus}/local_cpulist") or None) if bus else None,
        pcie=PcieLink(
            state.link_generation, state.max_link_generation, state.link_width, state.max_link_width
        ),
        nvlinks=_nvlinks(ask, handle) if handle is not None else None,
    )


def _nvlinks(ask: Question, handle: Any) -> tuple[NvLink, ...] | None:
    links: list[NvLink] = []
    for number in range(MOST_LINKS):
        state = ask("nvmlDeviceGetNvLinkState", handle, number)
        if state is None and not ask.there_is_none:
            return None
        if state is None:
            break
        links.append(_far_end(ask, handle, number) if state else NvLink(is_up=False))
    return tuple(links)


def _far_end(ask: Question, handle: Any, number: int) -> NvLink:
    kind = ask("nvmlDeviceGetNvLinkRemoteDeviceType", handle, number)
    remote = ask("nvmlDeviceGetNvLinkRemotePciInfo", handle, number)
    bus = getattr(remote, "busId", None)
    text = bus.decode(errors="replace") if isinstance(bus, bytes) else bus
    return NvLink(True, FAR_END.get(kind) if isinstance(kind, int) else None, sys_bus(text))


def _pair(
    ask: Question,
    one: TopologyGpu,
    other: TopologyGpu,
    paths: dict[int, tuple[str, ...] | None],
) -> GpuPair:
    first, second = (ask("nvmlDeviceGetHandleByIndex", gpu.index) for gpu in (one, other))
    if first is None or second is None:
        return GpuPair(one.index, other.index)
    ancestor = ask("nvmlDeviceGetTopologyCommonAncestor", first, second)
    level = LEVEL_OF.get(ancestor) if isinstance(ancestor, int) else None
    if level is None:
        level = distance(paths[one.index], paths[other.index], one.numa, other.numa)
    return GpuPair(
        one.index, other.index, level, _p2p(lambda what: ask("nvmlDeviceGetP2PStatus", *what), first, second)
    )


def _p2p(status: Callable[[tuple[Any, ...]], Any], first: Any, second: Any) -> str | None:
    """The worse of reading and writing, both ways."""
    found = [
        P2P_OF.get(answer)
        for pair in ((first, second), (second, first))
        for what in (READ, WRITE)
        if (answer := status((*pair, what))) is not None
    ]
    known = [one for one in found if one is not None]
    return next((one for one in known if one != "ok"), "ok" if known else None)


def look_at_topology(library: Any, states: Sequence[GpuState], host: Host) -> list[Finding]:
    """The wiring under a job that uses several GPUs or machines; of others it costs nothing. Quick, and what
    breaks in it breaks nothing else."""
    away = leaves_machine(host.environ)
    if len(states) < 2 and not away:
        return []
    try:
        return judge_topology(read_topology(library, states, host, RUN_LIMIT_S), away)
    except Exception as error:  # noqa: BLE001 - it reads drivers and /sys of machines nobody has seen
        reason = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        sentence = f"How the GPUs are wired could not be checked ({reason})."
        return [Finding("audit-incomplete", "info", sentence)]


def whole_topology(host: Host) -> Topology:
    """All that can be read of this machine, however long it takes."""
    with nvml() as library:
        if library is None:
            return Topology(nics=network_adapters(host, {}))
        return read_topology(library, visible_states(library, Host(environ={})), host)


def leaves_machine(environ: Mapping[str, str]) -> bool:
    """Whether the job has ranks on other machines."""
    for whole, here in (("WORLD_SIZE", "LOCAL_WORLD_SIZE"), ("SLURM_NTASKS", "SLURM_NTASKS_PER_NODE")):
        counts = [environ.get(name, "") for name in (whole, here)]
        if all(count.isdigit() for count in counts) and int(counts[0]) > int(counts[1]) > 0:
            return True
    nodes = environ.get("SLURM_NNODES", "")
    return nodes.isdigit() and int(nodes) > 1
