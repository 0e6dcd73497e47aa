"""How the GPUs and network adapters of one machine are wired: a plain state that can be kept as JSON.

None is unknown, never "no": drivers, virtual machines and containers leave much of it out.
"""

from __future__ import annotations

import msgspec

# How far two devices are apart, as `nvidia-smi topo -m` names it, the nearest first: one board, one PCIe
# switch, several switches, one host bridge, one NUMA node, across sockets.
LEVELS = ("INT", "PIX", "PXB", "PHB", "NODE", "SYS")
# The command that shows how this maker's devices are linked.
TOPOLOGY_TOOLS = {"nvidia": "nvidia-smi topo -m", "amd": "rocm-smi --showtopo"}


class PcieLink(msgspec.Struct, frozen=True, omit_defaults=True):
    """Of a device to what is above it. Generations and lanes as they are, and as both ends could."""

    generation: int | None = None
    max_generation: int | None = None
    width: int | None = None
    max_width: int | None = None


class NvLink(msgspec.Struct, frozen=True, omit_defaults=True):
    is_up: bool
    to: str | None = None  # "gpu", "switch" or "other" at the far end
    peer: str | None = None  # bus of the far end


class TopologyGpu(msgspec.Struct, frozen=True, omit_defaults=True):
    index: int
    name: str
    bus: str | None = None  # as in /sys/bus/pci/devices
    numa: int | None = None
    cores: str | None = None  # near it, as in "0-31,64-95"
    pcie: PcieLink = PcieLink()
    nvlinks: tuple[NvLink, ...] | None = None  # every link that the chip has; empty: it has none


class GpuPair(msgspec.Struct, frozen=True, omit_defaults=True):
    first: int
    second: int
    level: str | None = None
    # Whether one may read and write the other's memory: "ok", or why not ("chipset", "gpu", "topology",
    # "disabled", "other").
    p2p: str | None = None


class Nic(msgspec.Struct, frozen=True, omit_defaults=True):
    """A network adapter that can reach memory by itself (/sys/class/infiniband)."""

    name: str
    bus: str | None = None
    numa: int | None = None
    model: str | None = None  # of its chip
    is_up: bool | None = None
    layer: str | None = None  # "InfiniBand" or "Ethernet"
    rate_gbit: float | None = None
    pcie: PcieLink = PcieLink()
    levels: dict[str, str] = {}  # how far from each GPU, by its index


class Topology(msgspec.Struct, frozen=True, omit_defaults=True):
    gpus: tuple[TopologyGpu, ...] = ()
    pairs: tuple[GpuPair, ...] = ()
    nics: tuple[Nic, ...] = ()
    acs: tuple[str, ...] | None = None  # bridges above the GPUs that send peers' traffic up to the CPU
    is_virtual: bool | None = None  # a hypervisor runs this machine
    origin: str = ""  # where it comes from, where that is not this machine


NOT_SEEN = Topology()


def nvlinks_between(first: TopologyGpu, second: TopologyGpu) -> int | None:
    """How many NVLinks join two GPUs, directly or through switches; None where nobody could ask."""
    if first.nvlinks is None or second.nvlinks is None:
        return None
    up = [link for link in first.nvlinks if link.is_up]
    direct = sum(link.to == "gpu" and link.peer is not None and link.peer == second.bus for link in up)
    switches = [
        sum(link.is_up and link.to == "switch" for link in links) for links in (first.nvlinks, second.nvlinks)
    ]
    return direct or min(switches)


def nearer(level: str, other: str) -> bool:
    return LEVELS.index(level) < LEVELS.index(other)
