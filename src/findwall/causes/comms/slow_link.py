"""Collectives move their bytes slower than the link between the devices should.

What it finds:
Exposed collectives whose transfer alone, without waiting, runs below half of the link's rate, or slower than
that of other groups with the same messages.

Why it costs:
NVLink moves hundreds of gigabytes per second, PCIe tens, Ethernet one to ten. A collective is as fast as
the slowest link of its ring.

How it is told apart:
It takes the message sizes, the traces of all ranks of a group (to take waiting off) and a link rate to
compare with: `findwall ceilings` on a machine with several GPUs measures it; within one machine a table has
what its GPUs' links carry, which messages of 64 MiB and more are held against. Without these the time stays
exposed-collective.

What helps:
nccl-backend where GPU tensors go through gloo. faster-link: NCCL's transport (NCCL_DEBUG=INFO; nvidia-smi
topo -m shows NV#, PIX, SYS), InfiniBand or RoCE across nodes, a layout that keeps heavy traffic inside a
node. overlap-comms hides it, accumulate-gradients, no-sync-accumulation and bf16 gradients send less.
"""

from __future__ import annotations

from findwall.causes import Cause, Claim, Facts, Told
from findwall.facts.collectives import maker


def says(facts: Facts) -> Told | Claim:
    ranks = facts.ranks
    if ranks is None or ranks.bus_rate is None or ranks.link_rate is None:
        return Claim("slow-link/unknown")
    rates = {"rate_gbps": ranks.bus_rate / 1e9, "link_gbps": ranks.link_rate / 1e9}
    return Told(Claim("slow-link/transfers", rates), Claim("advise/faster-link", {"maker": maker(facts)}))


CAUSE = Cause("slow-link", says)
