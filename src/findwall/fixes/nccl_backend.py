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

from findwall.attribute.collectives import collectives_a_step, host_collectives, staged_bytes
from findwall.attribute.facts import Facts
from findwall.attribute.step_traits import on_cores
from findwall.fixes import Fix, NoUse, Outcome, Use, no_use
from findwall.model.claims import Claim, Figures

MOVES = ("exposed-collective", "slow-link", "small-collectives")


def advise(facts: Facts) -> Outcome:
    if collectives_a_step(facts) == 0:
        return no_use("communication/none")
    if on_cores(facts):
        return NoUse(Claim("nccl-backend/on-cores"), obvious=True)
    on_host, staged = host_collectives(facts), staged_bytes(facts)
    if not on_host:
        return no_use("nccl-backend/already")
    if staged <= 0:
        return no_use("nccl-backend/host-data")
    spent = sum(facts.spent_ms(cause) for cause in MOVES)
    if spent <= 0:
        return no_use("communication/hidden")
    figures: Figures = {"library": on_host[0].library, "staged_bytes": staged, "waits_ms": spent}
    return Use(Claim("nccl-backend/switch", figures))


FIX = Fix(MOVES, "safe", advise)
