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

from findwall.attribute.collectives import collectives_a_step, host_collectives
from findwall.attribute.device_kind import topology_tool
from findwall.attribute.facts import Facts
from findwall.attribute.figures import a_step
from findwall.fixes import Fix, NoUse, Outcome, use

MOVES = ("slow-link", "exposed-collective")


def advise(facts: Facts) -> Outcome:
    if collectives_a_step(facts) == 0:
        return NoUse("there is no communication in this step")
    spent = sum(facts.spent_ms(cause) for cause in MOVES)
    if spent <= 0:
        return NoUse("computation already hides all communication")
    return use(
        f"{_path(facts)}, keep heavy traffic inside a node, and send fewer bytes (bf16_compress_hook, hybrid "
        f"sharding): the device waits {a_step(spent)} for communication."
    )


def _path(facts: Facts) -> str:
    if any(one.library == "gloo" for one in host_collectives(facts)):
        return "Check the network interface that gloo uses (GLOO_SOCKET_IFNAME)"
    tool = topology_tool(facts)
    shown = f"`{tool}`, " if tool else ""
    return f"Check the path ({shown}NCCL_DEBUG=INFO)"


FIX = Fix(MOVES, "needs-review", advise)
