"""The step waits for collectives that no computation hides.

What it finds:
Communication kernels (NCCL, RCCL, symmetric memory, NVSHMEM, DeepEP) in slices of time where no other
kernel runs, and peer-to-peer copies. Collectives on the host (gloo, MPI): the time the device idles for
them, and the copies that take their data to the host and back.

Why it costs:
A collective beside computation is free; alone it is added to the step. Its time includes waiting for
the other ranks.

How it is told apart:
By what runs beside it. One rank alone cannot tell whether the time is transfer or waiting: with the
traces of all ranks straggler and slow-link take their parts. Many tiny messages are small-collectives,
sends and receives between stages pipeline-bubble.

What helps:
nccl-backend where GPU tensors go through gloo. overlap-comms (DDP's buckets leave during backward:
static_graph=True, a bucket size that fits; FSDP's prefetching), accumulate-gradients with no_sync(),
no-sync-accumulation where every micro-batch is reduced, broadcast-buffers, bucket-collectives, gradients
compressed to bf16, faster-link.
"""

from __future__ import annotations

from findwall.attribute.carriers import carrying, kernel_evidence
from findwall.attribute.collectives import host_collectives, staged_bytes
from findwall.attribute.facts import Facts
from findwall.attribute.figures import amounts, told
from findwall.model.catalogue import MAJORITY_SHARE
from findwall.model.claims import Claim, Figure
from findwall.model.diagnosis import EVIDENCE_ROWS, Evidence

CAUSE = "exposed-collective"
COLLECTIVES_NAMED = 2  # in one sentence


def evidence(facts: Facts) -> list[Evidence]:
    on_host = [one.evidence for one in host_collectives(facts) if one.ms > 0]
    return (on_host[: EVIDENCE_ROWS - 1] + kernel_evidence(facts, CAUSE))[:EVIDENCE_ROWS]


def claim(facts: Facts) -> Claim:
    on_host = _on_host(facts)
    names = {} if on_host else carrying(facts, CAUSE, COLLECTIVES_NAMED)
    figures: dict[str, Figure] = {**amounts(facts, CAUSE), "alone": len(facts.run.traced) <= 1}
    fact = Claim("exposed-collective/runs-alone", figures, names, parts=on_host)
    staged = staged_bytes(facts) > 0
    return told(facts, CAUSE, fact, Claim("advise/nccl-backend" if staged else "advise/overlap-comms"))


def _on_host(facts: Facts) -> list[Claim]:
    """The host's collectives by name, count and size, if most of the time is theirs."""
    found = [one for one in host_collectives(facts) if one.ms > 0]
    most = sum(one.ms for one in found) >= MAJORITY_SHARE * facts.spent_ms(CAUSE)
    return [one.claim for one in found[:COLLECTIVES_NAMED]] if most else []
