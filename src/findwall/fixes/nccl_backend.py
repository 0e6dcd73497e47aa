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
from findwall.attribute.device_kind import on_cores
from findwall.attribute.facts import Facts
from findwall.attribute.figures import a_step
from findwall.fixes import Fix, NoUse, Outcome, use
from findwall.units import format_bytes

MOVES = ("exposed-collective", "slow-link", "small-collectives")


def advise(facts: Facts) -> Outcome:
    if collectives_a_step(facts) == 0:
        return NoUse("there is no communication in this step")
    if on_cores(facts):
        return NoUse("the job runs on the CPU, and NCCL serves GPUs only", obvious=True)
    on_host, staged = host_collectives(facts), staged_bytes(facts)
    if not on_host:
        return NoUse("the collectives already run on the device")
    if staged <= 0:
        return NoUse("no collective takes device data through the host")
    spent = sum(facts.spent_ms(cause) for cause in MOVES)
    if spent <= 0:
        return NoUse("computation already hides all communication")
    return use(
        f'Use `dist.init_process_group("nccl")` with one GPU per rank (torch.cuda.set_device(local_rank)): '
        f"{on_host[0].library} copies {format_bytes(staged)} per step to the host and back and sends it over "
        f"sockets, and the device waits {a_step(spent)} for it."
    )


FIX = Fix(MOVES, "safe", advise)
