"""What the link between the GPUs of one machine carries, by their makers' own figures: a row a card.

A GPU's rate is that of all its links together, one way: makers print both ways added up. It is what the bus
bandwidth of a collective (NCCL's own count) cannot pass, unless a switch adds up on the way. Names are
compared whole. Cards that may or may not carry a bridge (A100 PCIe, H100 NVL) have no row: nobody can tell
from the name.
"""

from __future__ import annotations

import msgspec

from findwall.units import GIGA

_PCIE4 = "PCIe 4.0 x16: 16 GT/s on 16 lanes, 128b/130b"
_PCIE3 = "PCIe 3.0 x16: 8 GT/s on 16 lanes, 128b/130b"


class LinkSpec(msgspec.Struct, frozen=True):
    kind: str  # "NVLink 4"
    rate: float  # bytes/s one way
    source: str


def _link(names: str, kind: str, gbps: float, source: str) -> dict[str, LinkSpec]:
    return {name.strip(): LinkSpec(kind, gbps * GIGA, source) for name in names.split("|")}


LINKS: dict[str, LinkSpec] = {
    **_link("Tesla V100-SXM2-16GB | Tesla V100-SXM2-32GB | Tesla V100-SXM3-32GB | Tesla V100-SXM3-32GB-H",
            "NVLink 2", 150, "NVIDIA V100 datasheet: 300 GB/s both ways (6 links of 25 GB/s each way)"),
    **_link("NVIDIA A100-SXM4-40GB | A100-SXM4-40GB | NVIDIA A100-PG509-200 | A100-PG509-200"
            " | NVIDIA A100-SXM4-80GB | A100-SXM4-80GB | A100-SXM-80GB | NVIDIA PG509-210",
            "NVLink 3", 300, "NVIDIA A100 datasheet: 600 GB/s both ways (12 links of 25 GB/s each way)"),
    **_link("NVIDIA A800-SXM4-80GB", "NVLink 3", 200, "NVIDIA A800 datasheet: 400 GB/s both ways"),
    **_link("NVIDIA H100 80GB HBM3 | NVIDIA H100 SXM5 80GB", "NVLink 4", 450,
            "NVIDIA H100 datasheet: 900 GB/s both ways (18 links of 25 GB/s each way)"),
    **_link("NVIDIA H800", "NVLink 4", 200, "NVIDIA H800 datasheet: 400 GB/s both ways"),
    **_link("NVIDIA H200", "NVLink 4", 450, "NVIDIA H200 datasheet: 900 GB/s both ways"),
    **_link("NVIDIA B200 | NVIDIA GB200", "NVLink 5", 900,
            "NVIDIA Blackwell datasheet: 1.8 TB/s both ways (18 links of 50 GB/s each way)"),
    **_link("AMD Instinct MI300X | AMD Instinct MI300X VF | AMD Instinct MI300X OAM | AMD Instinct MI300X HF"
            " | AMD Instinct MI325X | AMD Instinct MI325X VF | AMD Instinct MI325X OAM",
            "Infinity Fabric", 448, "AMD MI300X datasheet: 7 links of 128 GB/s both ways"),
    # No link of their own: what they send each other goes over the slot.
    **_link("NVIDIA L4 | NVIDIA L40 | NVIDIA L40S | NVIDIA A10 | NVIDIA A10G", "PCIe 4", 31.5, _PCIE4),
    **_link("NVIDIA GeForce RTX 4090 | NVIDIA GeForce RTX 4090 D", "PCIe 4", 31.5, _PCIE4),
    **_link("Tesla T4 | Tesla V100-PCIE-16GB | Tesla V100-PCIE-32GB", "PCIe 3", 15.75, _PCIE3),
}  # fmt: skip


def link_of(name: str) -> LinkSpec | None:
    """The row of the device with exactly this name, or None."""
    return LINKS.get(name.strip())


# -- what a collective puts on the link: NCCL's own count ----------------------------------------------------

_TWICE = frozenset({"all_reduce"})  # every byte goes out and comes back
_ONCE = frozenset({"all_gather", "all_gather_into_tensor", "all_to_all"})
_ONCE |= {"reduce_scatter", "reduce_scatter_tensor"}
_WHOLE = frozenset({"broadcast", "reduce", "send", "recv", "pair"})


def bus_share(kind: str, ranks: int) -> float | None:
    """Bytes that a rank sends for a byte of message; None of a kind that nobody has counted."""
    if ranks < 2:
        return None
    if kind in _TWICE:
        return 2.0 * (ranks - 1) / ranks
    if kind in _ONCE:
        return (ranks - 1) / ranks
    return 1.0 if kind in _WHOLE else None
