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
no-sync-accumulation where every micro-batch is reduced, broadcast-buffers, bucket-collectives,
skip-unused-search, gradients compressed to bf16, faster-link.
"""

from __future__ import annotations

from findwall.causes import EVIDENCE_ROWS, Cause, Claim, Evidence, Facts, Told, carrying
from findwall.facts.collectives import HostCollective, host_collectives, staged_bytes
from findwall.facts.message_traffic import TransferFloor, transfer_floor
from findwall.model.catalogue import MAJORITY_SHARE
from findwall.model.claims import Figure
from findwall.units import ms

NAME = "exposed-collective"
COLLECTIVES_NAMED = 2  # in one sentence


def shows(facts: Facts) -> list[Evidence]:
    rows = [one.evidence for one in _on_host(facts)][: EVIDENCE_ROWS - 1]
    floor = transfer_floor(facts) if facts.ranks is None else None
    if floor is not None and floor.least < floor.took:
        rows.insert(0, Evidence(claim=_least(floor)))
    return rows[: EVIDENCE_ROWS - 1]


def _least(floor: TransferFloor) -> Claim:
    """One rank alone cannot tell a late rank from a slow link, but its bytes need their time."""
    figures: dict[str, Figure] = {
        "calls": floor.calls,
        "took_ms": ms(floor.took),
        "least_ms": ms(floor.least),
        "rest_ms": ms(floor.took - floor.least),
        "rate_gbps": floor.rate / 1e9,
        "link": floor.link or None,
    }
    return Claim("evidence/transfer-floor", figures)


def says(facts: Facts) -> Told:
    found = _on_host(facts)
    # The host's collectives by name, count and size, if most of the time is theirs.
    most = sum(one.ms for one in found) >= MAJORITY_SHARE * facts.spent_ms(NAME)
    on_host = [one.claim for one in found[:COLLECTIVES_NAMED]] if most else []
    names = {} if on_host else carrying(facts, NAME, COLLECTIVES_NAMED)
    alone = len(facts.run.seen) <= 1
    action = "advise/nccl-backend" if staged_bytes(facts) > 0 else "advise/overlap-comms"
    return Told(Claim("exposed-collective/runs-alone", {"alone": alone}, names, parts=on_host), Claim(action))


def _on_host(facts: Facts) -> list[HostCollective]:
    return [one for one in host_collectives(facts) if one.ms > 0]


CAUSE = Cause(NAME, says, shows)
