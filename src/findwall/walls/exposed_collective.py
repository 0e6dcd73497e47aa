"""The step waits for collectives that no computation hides.

What it finds:
Communication kernels (NCCL, RCCL, symmetric memory, NVSHMEM, DeepEP) in slices of time where no other
kernel runs, and peer-to-peer copies.

Why it costs:
A collective beside computation is free; alone it is added to the step. Its time includes waiting for
the other ranks.

How it is told apart:
By what runs beside it. From one rank it cannot be told whether the time is transfer or waiting: with the
traces of all ranks straggler and slow-link take their parts. Many tiny messages are small-collectives,
sends and receives between stages pipeline-bubble.

What helps:
overlap-comms (DDP's buckets leave during backward: static_graph=True, a bucket size that fits; FSDP's
prefetching), accumulate-gradients with no_sync(), bucket-collectives, gradients compressed to bf16,
faster-link.
"""

from __future__ import annotations

from findwall.attribute.facts import Facts
from findwall.model.diagnosis import Evidence
from findwall.walls.evidence import gain, kernel_evidence, opening, ops_named

CAUSE = "exposed-collective"


def evidence(facts: Facts) -> list[Evidence]:
    return kernel_evidence(facts, CAUSE)


def sentence(facts: Facts) -> str:
    names = ops_named(facts, CAUSE, 2)
    which = f" ({names})" if names else ""
    alone = (
        ""
        if len(facts.run.ranks) > 1
        else " (one rank's trace cannot tell transfer from waiting for a late rank)"
    )
    return (
        f"{opening(facts, CAUSE)} are collectives{which} with no computation beside them{alone}; let them "
        "leave "
        f"earlier (buckets during backward, prefetched gathers), or send less: {gain(facts, CAUSE)}."
    )
