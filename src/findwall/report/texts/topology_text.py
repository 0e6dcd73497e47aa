"""The wiring of a machine as a table, in the words of `nvidia-smi topo -m`."""

from __future__ import annotations

from findwall.model.topology import GpuPair, Nic, Topology, TopologyGpu, nvlinks_between

MEANS = {
    "INT": "INT one board",
    "PIX": "PIX one PCIe switch",
    "PXB": "PXB several PCIe switches",
    "PHB": "PHB the CPU's host bridge",
    "NODE": "NODE one NUMA node",
    "SYS": "SYS across sockets",
    "NV": "NV# so many NVLinks",
}


def to_text(topology: Topology) -> str:
    """GPUs against GPUs and network adapters; empty where there is nothing to tell apart."""
    gpus, nics = topology.gpus, topology.nics
    if len(gpus) < 2 and not (gpus and nics):
        return ""
    pairs = {frozenset((pair.first, pair.second)): pair for pair in topology.pairs}
    heads = ["", *(f"GPU{gpu.index}" for gpu in gpus), *(nic.name for nic in nics), "NUMA", "cores"]
    rows = [heads]
    for gpu in gpus:
        cells = [_between(gpu, other, pairs) for other in gpus]
        cells += [nic.levels.get(str(gpu.index), "?") for nic in nics]
        rows.append([f"GPU{gpu.index}", *cells, _known(gpu.numa), gpu.cores or "?"])
    widths = [max(len(row[at]) for row in rows) for at in range(len(heads))]
    lines = ["  ".join(f"{cell:<{wide}}" for cell, wide in zip(row, widths, strict=True)) for row in rows]
    lines += [_adapter(nic) for nic in nics]
    return "\n".join(line.rstrip() for line in [*lines, _legend(rows[1:])])


def _between(one: TopologyGpu, other: TopologyGpu, pairs: dict[frozenset[int], GpuPair]) -> str:
    if one.index == other.index:
        return "X"
    links = nvlinks_between(one, other)
    if links:
        return f"NV{links}"
    pair = pairs.get(frozenset((one.index, other.index)))
    return pair.level if pair is not None and pair.level else "?"


def _known(value: object) -> str:
    return "?" if value is None else str(value)


def _adapter(nic: Nic) -> str:
    state = {True: "up", False: "down", None: "state unknown"}[nic.is_up]
    parts = [state, f"{nic.rate_gbit:g} Gbit/s" if nic.rate_gbit else "", nic.layer or ""]
    parts.append(f"NUMA {nic.numa}" if nic.numa is not None else "")
    return f"{nic.name}: {', '.join(part for part in parts if part)}"


def _legend(rows: list[list[str]]) -> str:
    cells = {cell for row in rows for cell in row[1:-2]}
    used = [text for name, text in MEANS.items() if name in cells or (name == "NV" and _has_nvlink(cells))]
    return f"({'; '.join(used)})" if used else ""


def _has_nvlink(cells: set[str]) -> bool:
    return any(cell.startswith("NV") and cell[2:].isdigit() for cell in cells)
