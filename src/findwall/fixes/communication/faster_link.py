"""Move the bytes over a faster link, or move fewer of them.

What it does:
NVLink is an order of magnitude faster than PCIe, and PCIe than Ethernet. Keep heavy traffic (tensor
parallelism, sharding) inside a node, check that NCCL found the fast path (`NCCL_DEBUG=INFO`,
`nvidia-smi topo -m`), and send fewer bytes: gradients in bfloat16 (`bf16_compress_hook`), hybrid
sharding, a smaller ZeRO stage. gloo goes over the network interface that GLOO_SOCKET_IFNAME names.

When it does not help:
Communication is hidden, or waits for a late rank and not for bytes.

Risk:
Compressed gradients are rounded. Other placements need the scheduler's help.
"""

from __future__ import annotations

from findwall.facts.collectives import host_collectives, topology_tool
from findwall.facts.message_traffic import doubts_of
from findwall.fixes import Claim, Facts, Fix, Outcome, Use, spent_ms
from findwall.fixes.communication.communication_refusals import NO_COLLECTIVES, communication_hidden

MOVES = ("slow-link", "exposed-collective")


def use(facts: Facts) -> Outcome:
    figures = {
        "waits_ms": spent_ms(facts, *MOVES),
        "by_gloo": any(one.library == "gloo" for one in host_collectives(facts)),
        "tool": topology_tool(facts),
        "doubts": len(doubts_of(facts.run.nccl)),
    }
    return Use(Claim("faster-link/check", figures, parts=_across(facts)))


def _across(facts: Facts) -> list[Claim]:
    """Groups that leave the node, the one that sends most first."""
    found = facts.ranks.answer.groups if facts.ranks is not None else []
    return [
        Claim("faster-link/across", {"role": one.role, "ranks": one.ranks, "sent_bytes": one.sent_bytes})
        for one in found
        if one.across_nodes and one.sent_bytes
    ]


FIX = Fix(
    MOVES,
    "needs-review",
    use,
    (
        NO_COLLECTIVES,
        communication_hidden(*MOVES),
    ),
)
