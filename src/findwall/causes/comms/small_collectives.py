"""Many tiny messages: latency, not bandwidth, is what the collectives cost.

What it finds:
Exposed collectives of less than 1 MiB each, ten or more per step, that end soon enough not to be waiting for
a late rank.

Why it costs:
A collective has a fixed price of tens of microseconds (a launch, a round through all ranks) before the
first byte moves. A hundred gradients sent one by one pay it a hundred times.

How it is told apart:
By the message sizes the trace records for NCCL. Without them (older traces) the time stays
exposed-collective.

What helps:
bucket-collectives: one flat buffer instead of one collective per tensor (DDP does, hand-written all_reduce
loops do not; torch.distributed coalescing), larger FSDP units, fewer metrics reduced every step;
accumulate-gradients and no-sync-accumulation send them less often, skip-unused-search leaves one out for each
pass; broadcast-buffers leaves a model's buffers out. nccl-backend where GPU tensors go through gloo.
"""

from __future__ import annotations

import numpy as np

from findwall.causes import Cause, Claim, Told
from findwall.work.op_families.movement import message_bytes
from findwall.work.work_facts import WorkFacts


def says(facts: WorkFacts) -> Told | Claim:
    atoms = facts.atoms.of("small-collectives")
    if len(atoms) == 0:
        return Claim("small-collectives/unknown")
    sizes = message_bytes(facts.timeline, facts.links, facts.kernels.row[facts.atoms.index[atoms]])
    known = sizes[~np.isnan(sizes)]
    figures = {
        "messages": len(atoms) / facts.steps.count,
        "each_bytes": float(np.median(known)) if len(known) else None,
    }
    return Told(Claim("small-collectives/latency", figures), Claim("advise/bucket-collectives"))


CAUSE = Cause("small-collectives", says)
