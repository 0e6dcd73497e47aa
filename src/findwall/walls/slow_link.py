"""Collectives move their bytes slower than the link between the devices should.

What it finds:
Exposed collectives whose transfer alone, without waiting, runs below half of the link's measured rate, or
whose rate shows that traffic leaves the node.

Why it costs:
NVLink moves hundreds of gigabytes per second, PCIe tens, Ethernet one to ten. A collective is as fast as
the slowest link of its ring.

How it is told apart:
It takes the message sizes, the traces of several ranks (to take waiting off) and a link rate to compare
with: `findwall ceilings` on a machine with several GPUs measures it. Without these the time stays
exposed-collective.

What helps:
nccl-backend where GPU tensors go through gloo. faster-link: NCCL's transport (NCCL_DEBUG=INFO; nvidia-smi
topo -m shows NV#, PIX, SYS), InfiniBand or RoCE across nodes, a layout that keeps heavy traffic inside a
node. overlap-comms hides it, accumulate-gradients, no-sync-accumulation and bf16 gradients send less.
"""

from __future__ import annotations

from findwall.attribute.carriers import kernel_evidence
from findwall.attribute.device_kind import topology_tool
from findwall.attribute.facts import Facts
from findwall.attribute.figures import opening, told
from findwall.model.diagnosis import Evidence

CAUSE = "slow-link"


def evidence(facts: Facts) -> list[Evidence]:
    return kernel_evidence(facts, CAUSE)


def sentence(facts: Facts) -> str:
    ranks, link = facts.ranks, facts.ceilings.link_bandwidth
    if ranks is None or ranks.bus_rate is None or link is None:
        return (
            "It is unknown whether the link is slow: that takes the traces of several ranks with message "
            "sizes, "
            "and a measured link rate (`findwall ceilings`)."
        )
    tool = topology_tool(facts)
    shown = f"NCCL_DEBUG=INFO, {tool}" if tool else "NCCL_DEBUG=INFO"
    fact = (
        f"{opening(facts, CAUSE)} goes to transfers at {ranks.bus_rate / 1e9:.1f} GB/s over a link that "
        f"reaches {link / 1e9:.0f} GB/s"
    )
    return told(facts, CAUSE, fact, f"check NCCL's transport ({shown})")
