"""What the wiring of a machine costs a job: pure, from a recorded state to findings.

Only what costs something is a finding: a machine that is wired as well as it can be has none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from findwall.model.machine import Finding
from findwall.model.topology import (
    LEVELS,
    GpuPair,
    Nic,
    PcieLink,
    Topology,
    TopologyGpu,
    nearer,
    nvlinks_between,
)
from findwall.units import format_share

NAMED = 4  # devices in a sentence
# Modules that are joined by NVLink wherever there are several of them on a board, by NVIDIA's names for them.
MODULES = re.compile(r"SXM|H100 80GB HBM3|H800$|H200$|H20$|GB?[23]00")
# Usable Gbit/s of a lane: transfers less the encoding (8b/10b, then 128b/130b; generation 6 sends flits).
LANE_GBIT = {1: 2.0, 2: 4.0, 3: 7.88, 4: 15.75, 5: 31.5, 6: 60.5}
NOTICED = 0.95  # of a rate: less is no rounding
WHY_NO_P2P = {
    "chipset": (
        "the chipset does not allow it",
        "move the GPUs under one PCIe root, or ask the vendor's BIOS",
    ),
    "gpu": (
        "these GPUs do not offer it",
        "send fewer bytes (bf16 gradients, accumulation), or use cards with NVLink or P2P",
    ),
    "topology": ("the path between them does not allow it", "use GPUs under one PCIe root for one job"),
    "disabled": (
        "the driver is told to keep it off",
        "take the option that disables it out of /etc/modprobe.d and load the driver again",
    ),
    "other": ("the driver does not say why", "nvidia-smi topo -p2p r shows it pair by pair"),
}


def judge_topology(topology: Topology, between_machines: bool = True) -> list[Finding]:
    """`between_machines`: whether the job leaves this machine; its network adapters matter only then."""
    findings = [
        *_judge_p2p(topology),
        *_judge_nvlinks(topology),
        *_judge_sockets(topology),
        *_judge_acs(topology, between_machines),
    ]
    if between_machines:
        findings += [
            *_judge_ports(topology.nics),
            *_judge_nic_links(topology.nics),
            *_judge_nearest(topology),
        ]
    return findings


# -- GPU to GPU -----------------------------------------------------------------------------------------


def _judge_p2p(topology: Topology) -> Iterable[Finding]:
    known = [pair for pair in topology.pairs if pair.p2p is not None]
    off = [pair for pair in known if pair.p2p != "ok"]
    if not off:
        return
    reasons = {pair.p2p or "other" for pair in off}
    reason, fix = WHY_NO_P2P[reasons.pop() if len(reasons) == 1 else "other"]
    which = (
        _pairs(off)
        if len(off) < len(known)
        else f"all {len(off)} pairs of GPUs"
        if len(off) > 1
        else _pairs(off)
    )
    sentence = (
        f"Peer-to-peer access is off between {which} ({reason}): what they send each other crosses PCIe "
        "twice and goes through host memory, so collectives take about twice as long."
    )
    yield Finding("p2p-off", "warning", sentence, fix)


def _judge_nvlinks(topology: Topology) -> Iterable[Finding]:
    """Links that are down where a sister card, or the card's own kind, has them up."""
    known = [gpu for gpu in topology.gpus if gpu.nvlinks]
    for name in dict.fromkeys(gpu.name for gpu in known):
        alike = [gpu for gpu in known if gpu.name == name]
        most = max(_up(gpu) for gpu in alike)
        if most == 0 and len(alike) > 1 and MODULES.search(name):
            sentence = (
                f"All NVLinks of the {len(alike)} GPUs ({name}) are down: they talk over PCIe, which is "
                "about ten times slower."
            )
            yield Finding("nvlink-down", "warning", sentence, _FABRIC)
        for gpu in alike:
            if _up(gpu) < most:
                share = format_share(_up(gpu) / most)
                sentence = (
                    f"{_up(gpu)} of {most} NVLinks of GPU {gpu.index} are up: collectives on it run at "
                    f"{share} of their speed at best, and all other GPUs wait for it."
                )
                yield Finding("nvlink-down", "warning", sentence, _RESET)


_FABRIC = "start the fabric manager (systemctl start nvidia-fabricmanager) and check its log"
_RESET = "nvidia-smi nvlink -s -e shows the links and their errors; reset the GPU or have the board checked"


def _up(gpu: TopologyGpu) -> int:
    return sum(link.is_up for link in gpu.nvlinks or ())


def _judge_sockets(topology: Topology) -> Iterable[Finding]:
    """GPUs that have only the link between sockets to reach each other."""
    far = [pair for pair in topology.pairs if pair.level == "SYS" and _nvlinks(topology, pair) == 0]
    if not far:
        return
    by_node: dict[int, list[int]] = {}
    for gpu in topology.gpus:
        if gpu.numa is not None:
            by_node.setdefault(gpu.numa, []).append(gpu.index)
    groups = " and ".join(_numbers(group) for group in by_node.values()) if len(by_node) > 1 else ""
    sentence = (
        f"{_pairs(far)} have no NVLink and sit on different sockets: what they send each other crosses the "
        "link between sockets, which is slower than PCIe and shared with memory traffic."
    )
    fix = f"keep the ranks that talk most (tensor parallel) within GPUs {groups}" if groups else ""
    yield Finding("gpus-across-sockets", "info", sentence, fix)


def _nvlinks(topology: Topology, pair: GpuPair) -> int | None:
    by_index = {gpu.index: gpu for gpu in topology.gpus}
    if pair.first not in by_index or pair.second not in by_index:
        return None
    return nvlinks_between(by_index[pair.first], by_index[pair.second])


def _judge_acs(topology: Topology, between_machines: bool) -> Iterable[Finding]:
    """Access control matters where peers talk over PCIe: GPUs without NVLink, or GPU and adapter."""
    peers = [pair for pair in topology.pairs if pair.p2p == "ok" and _nvlinks(topology, pair) == 0]
    adapters = between_machines and any(nic.is_up for nic in topology.nics) and bool(topology.gpus)
    if not topology.acs or topology.is_virtual or not (peers or adapters):
        return
    count = len(topology.acs)
    what = "PCIe bridge above the GPUs redirects" if count == 1 else "PCIe bridges above the GPUs redirect"
    sentence = (
        f"{count} {what} traffic between peers up to the CPU (ACS is on: {_listed(topology.acs)}), so "
        "transfers between GPUs, or GPU and network, may run at half their speed."
    )
    yield Finding(
        "acs-on",
        "warning",
        sentence,
        "turn ACS off in the BIOS, or with setpci on these bridges (ECAP_ACS+6.w=0) where no virtual machine "
        "needs it",
    )


# -- GPU to network -------------------------------------------------------------------------------------


def _judge_ports(nics: Sequence[Nic]) -> Iterable[Finding]:
    """Ports that are down or slow beside others of the same chip and kind."""
    for kind in dict.fromkeys((nic.model, nic.layer) for nic in nics):
        alike = [nic for nic in nics if (nic.model, nic.layer) == kind]
        up = [nic for nic in alike if nic.is_up]
        down = [nic for nic in alike if nic.is_up is False]
        if up and down and kind[0] is not None:
            sentence = (
                f"{len(down)} of {len(alike)} network adapters of one kind are down ({_names(down)}), so "
                "traffic between machines has that much less bandwidth."
            )
            yield Finding(
                "nic-down", "warning", sentence, "check the cable and the switch port; ibstat shows the state"
            )
        fastest = max((nic.rate_gbit or 0.0 for nic in up), default=0.0)
        slow = [nic for nic in up if nic.rate_gbit and nic.rate_gbit < NOTICED * fastest]
        if slow and kind[0] is not None:
            sentence = (
                f"{_names(slow)} runs at {slow[0].rate_gbit:g} Gbit/s, others of its kind at {fastest:g}: "
                "collectives between machines go at the pace of the slowest."
            )
            yield Finding("nic-rate", "warning", sentence, "check the cable and the switch port's speed")


def _judge_nic_links(nics: Sequence[Nic]) -> Iterable[Finding]:
    for nic in nics:
        if not nic.is_up:
            continue
        room = pcie_gbit(nic.pcie.generation, nic.pcie.width)
        if room is not None and nic.rate_gbit is not None and room < NOTICED * nic.rate_gbit:
            sentence = (
                f"{nic.name} has a port of {nic.rate_gbit:g} Gbit/s behind a PCIe link of {room:.0f} Gbit/s "
                f"({_lanes(nic.pcie)}), so it reaches {format_share(room / nic.rate_gbit)} of its rate at "
                "best."
            )
            yield Finding(
                "nic-pcie", "warning", sentence, "move it to a wider or newer slot, or check the BIOS"
            )


def pcie_gbit(generation: int | None, width: int | None) -> float | None:
    """What a PCIe link carries each way."""
    if generation is None or width is None or generation not in LANE_GBIT:
        return None
    return LANE_GBIT[generation] * width


def _lanes(link: PcieLink) -> str:
    most = f" of {link.max_width}" if link.max_width and link.max_width != link.width else ""
    return f"generation {link.generation}, {link.width}{most} lanes"


def _judge_nearest(topology: Topology) -> Iterable[Finding]:
    """GPUs whose nearest adapter that is up sits on another socket."""
    up = [nic for nic in topology.nics if nic.is_up]
    far = []
    for gpu in topology.gpus:
        levels = [nic.levels[str(gpu.index)] for nic in up if nic.levels.get(str(gpu.index)) in LEVELS]
        if levels and not any(nearer(level, "SYS") for level in levels):
            far.append(gpu.index)
    if not far:
        return
    verb = "has its" if len(far) == 1 else "have their"
    sentence = (
        f"{_numbers(far, 'GPU ')} {verb} nearest network adapter on another socket ({_names(up)}): traffic "
        "between machines crosses the link between sockets."
    )
    fix = "run jobs on several machines on the GPUs near an adapter, or put an adapter on each socket"
    yield Finding("gpu-nic-far", "warning", sentence, fix)


# -- words ----------------------------------------------------------------------------------------------


def _pairs(pairs: Sequence[GpuPair]) -> str:
    if len(pairs) <= 2:
        return " and ".join(f"GPUs {pair.first} and {pair.second}" for pair in pairs)
    return f"{len(pairs)} pairs of GPUs (such as {pairs[0].first} and {pairs[0].second})"


def _names(nics: Sequence[Nic]) -> str:
    return _listed([nic.name for nic in nics])


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def _numbers(found: Sequence[int], before: str = "") -> str:
    """ "0-3" where they follow each other, else "0, 2"."""
    if len(found) > 2 and list(found) == list(range(found[0], found[-1] + 1)):
        text = f"{found[0]}-{found[-1]}"
    else:
        text = ", ".join(map(str, found))
    return f"{before.strip()}s {text}" if before and len(found) > 1 else f"{before}{text}"
