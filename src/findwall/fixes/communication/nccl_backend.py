"""Let NCCL carry the collectives of GPU tensors, not gloo.

What it does:
gloo knows only the host's memory: it copies a GPU tensor out, sends it over TCP sockets, adds up on the CPU
and copies the result back. NCCL (RCCL on AMD) goes from GPU to GPU, over NVLink, PCIe or InfiniBand, on a
stream beside computation:

    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")

When it does not help:
The tensors are on the CPU, or NCCL is in use already. NCCL takes one GPU per rank: it refuses two ranks on
the same GPU.

Risk:
None for training as such: sums are added in another order. Tensors and objects on the CPU still need gloo
("cpu:gloo,cuda:nccl").
"""

from __future__ import annotations

from findwall.facts.collectives import host_collectives, staged_bytes
from findwall.fixes import Claim, Facts, Figures, Fix, Outcome, Use, on_cores, spent_ms, unless
from findwall.fixes.communication.communication_refusals import NO_COLLECTIVES, communication_hidden

MOVES = ("exposed-collective", "slow-link", "small-collectives")


def use(facts: Facts) -> Outcome:
    figures: Figures = {
        "library": host_collectives(facts)[0].library,
        "staged_bytes": staged_bytes(facts),
        "waits_ms": spent_ms(facts, *MOVES),
    }
    return Use(Claim("nccl-backend/switch", figures))


FIX = Fix(
    MOVES,
    "safe",
    use,
    (
        NO_COLLECTIVES,
        unless("nccl-backend/on-cores", on_cores, obvious=True),
        unless("nccl-backend/already", lambda facts: not host_collectives(facts)),
        unless("nccl-backend/host-data", lambda facts: staged_bytes(facts) <= 0),
        communication_hidden(*MOVES),
    ),
)
