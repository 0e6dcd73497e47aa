"""What /sys says of the wiring: PCIe paths, NUMA nodes, network adapters, and bridges that redirect peers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from findwall.machine.environment_host import Host
from findwall.model.topology import Nic, PcieLink, TopologyGpu

DEVICES = "sys/bus/pci/devices"
ADAPTERS = "sys/class/infiniband"
_BUS = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_RATE = re.compile(r"([\d.]+) Gb/sec")
# Gigatransfers a second, by generation of PCIe.
_GENERATIONS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}
_SPEED = re.compile(r"([\d.]+) GT/s")
# Of PCIe's extended capabilities: where they begin, access control, its control word, and the bits that send
# requests and completions between peers up to the CPU.
_EXTENDED, _ACS, _CONTROL, _REDIRECT = 0x100, 0x000D, 6, 0b1100
_CONFIG_BYTES = 4096
_MOST_CAPABILITIES = 64  # in one chain: more is a ring


def sys_bus(bus_id: str | None) -> str | None:
    """NVML writes the domain with eight digits, the kernel with four."""
    if not bus_id:
        return None
    domain, _, rest = bus_id.strip("\0 ").lower().partition(":")
    found = f"{domain[-4:]}:{rest}"
    return found if _BUS.fullmatch(found) else None


def pci_path(host: Host, bus: str | None) -> tuple[str, ...] | None:
    """Host bridge, root port, switches, device: as the kernel nests them."""
    if bus is None:
        return None
    try:
        real = (host.root / DEVICES / bus).resolve(strict=True)
    except (OSError, RuntimeError):
        return None
    parts = [part for part in real.parts if part.startswith("pci") or _BUS.fullmatch(part)]
    first = next(
        (at for at, part in enumerate(parts) if re.fullmatch(r"pci[0-9a-f]{4}:[0-9a-f]{2}", part)), None
    )
    return tuple(parts[first:]) if first is not None else None


def distance(
    one: Sequence[str] | None, other: Sequence[str] | None, numa: int | None, other_numa: int | None
) -> str | None:
    """How far two devices are apart, as `nvidia-smi topo -m` names it."""
    if one is None or other is None:
        return None
    if one[0] != other[0]:
        if numa is None or other_numa is None:
            return None
        return "NODE" if numa == other_numa else "SYS"
    common = 0
    while common < min(len(one), len(other)) and one[common] == other[common]:
        common += 1
    if common == 1:  # nothing but the host bridge
        return "PHB"
    below = max(len(one), len(other)) - common
    return "PIX" if below <= 2 else "PXB"  # a port of the switch and the device itself


def numa_of(host: Host, bus: str | None) -> int | None:
    text = host.read(f"/{DEVICES}/{bus}/numa_node") if bus else None
    # -1: the firmware does not say, or there is one node only.
    return int(text) if text is not None and text.isdigit() else None


def network_adapters(
    host: Host, gpus: Mapping[str, TopologyGpu], has_time: Callable[[], bool] = lambda: True
) -> tuple[Nic, ...]:
    """Every adapter with a driver that lets it reach memory by itself, its first port.

    None of them where time runs out: without all of them nobody knows which is nearest.
    """
    found = []
    for name in _names(host.root / ADAPTERS):
        if not has_time():
            return ()
        found.append(_adapter(host, name, gpus))
    return tuple(found)


def _names(folder: Path) -> list[str]:
    try:
        return sorted(path.name for path in folder.iterdir())
    except OSError:
        return []


def _adapter(host: Host, name: str, gpus: Mapping[str, TopologyGpu]) -> Nic:
    base = f"/{ADAPTERS}/{name}"
    try:
        bus = sys_bus((host.root / base.lstrip("/") / "device").resolve(strict=True).name)
    except (OSError, RuntimeError):
        bus = None
    ports = _names(host.root / ADAPTERS / name / "ports")
    port = f"{base}/ports/{ports[0]}" if ports else None
    numa, path = numa_of(host, bus), pci_path(host, bus)
    levels = {
        index: level
        for index, gpu in gpus.items()
        if (level := distance(pci_path(host, gpu.bus), path, gpu.numa, numa)) is not None
    }
    rate = _RATE.match(host.read(f"{port}/rate") or "") if port else None
    state = host.read(f"{port}/state") if port else None
    return Nic(
        name=name,
        bus=bus,
        numa=numa,
        model=host.read(f"{base}/hca_type") or None,
        is_up=None if not state else "ACTIVE" in state,
        layer=(host.read(f"{port}/link_layer") or None) if port else None,
        rate_gbit=float(rate[1]) if rate else None,
        pcie=pcie_link(host, bus) if bus else PcieLink(),
        levels=levels,
    )


def pcie_link(host: Host, bus: str) -> PcieLink:
    speed, most = (
        _generation(host.read(f"/{DEVICES}/{bus}/{name}_link_speed")) for name in ("current", "max")
    )
    width, widest = (_lanes(host.read(f"/{DEVICES}/{bus}/{name}_link_width")) for name in ("current", "max"))
    return PcieLink(speed, most, width, widest)


def _generation(text: str | None) -> int | None:
    found = _SPEED.match(text or "")
    return _GENERATIONS.get(float(found[1])) if found else None


def _lanes(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdigit() and 0 < int(text) <= 32 else None


def acs_bridges(
    host: Host, paths: Iterable[tuple[str, ...]], has_time: Callable[[], bool] = lambda: True
) -> tuple[str, ...] | None:
    """Bridges above these devices that redirect peers; None where their settings may not be read, or reading
    them (a millisecond each, for root) takes too long."""
    found = []
    bridges = dict.fromkeys(bus for path in paths for bus in path[1:-1])
    for bus in bridges:
        answer = redirects(_config(host, bus)) if has_time() else None
        if answer is None:
            return None
        if answer:
            found.append(bus)
    return tuple(found) if bridges else None


def _config(host: Host, bus: str) -> bytes:
    try:
        with (host.root / DEVICES / bus / "config").open("rb") as file:
            return file.read(_CONFIG_BYTES)
    except OSError:
        return b""


def redirects(config: bytes) -> bool | None:
    """Whether access control of a bridge is on between its peers; None of a configuration cut short, as
    everybody but root gets it."""
    if len(config) < _CONFIG_BYTES:
        return None
    place = _EXTENDED
    for _ in range(_MOST_CAPABILITIES):
        header = int.from_bytes(config[place : place + 4], "little")
        if header & 0xFFFF == _ACS:
            control = int.from_bytes(config[place + _CONTROL : place + _CONTROL + 2], "little")
            return bool(control & _REDIRECT)
        place = header >> 20
        if not _EXTENDED <= place <= _CONFIG_BYTES - 4:
            return False  # a bridge without it redirects nothing
    return None
