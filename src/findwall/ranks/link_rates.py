"""How fast the transfers of each kind and group are, without waiting.

The rate of the algorithm is the message by its time; that of the bus is what each rank had to send for it, as
NCCL's own tests count it.
"""

from __future__ import annotations

import numpy as np

from findwall.model.answers.ranks_answer import LinkRow
from findwall.model.catalogue import MAJORITY_SHARE
from findwall.ranks.ranks_job import RanksJob
from findwall.units import NS_PER_MS

ROWS_LISTED = 12  # the longest of all. Chosen by hand.
_TWICE = ("all_reduce",)  # every byte goes out and comes back
_ONCE = ("all_gather", "reduce_scatter", "all_to_all")


def bus_share(kind: str, ranks: int) -> float:
    """Bytes that a rank sends for a byte of message."""
    if kind in _TWICE:
        return 2.0 * (ranks - 1) / max(ranks, 1)
    return (ranks - 1) / max(ranks, 1) if kind in _ONCE else 1.0


def link_rows(job: RanksJob) -> list[LinkRow]:
    """Where the size is known, and most transfers are of more than latency."""
    rows, steps = job.rows, max(len(job.steps), 1)
    counted = np.isin(job.step_of, job.steps) & (job.members > 1)
    found: list[tuple[float, LinkRow]] = []
    keys = np.stack([rows.group, rows.kind, rows.nbytes])
    distinct, which = np.unique(keys, axis=1, return_inverse=True)
    which = which.reshape(-1)
    for at, (group, kind, nbytes) in enumerate(distinct.T.tolist()):
        mine = np.flatnonzero((which == at) & counted[job.schedule.meeting])
        if nbytes <= 0 or len(mine) == 0:
            continue
        meetings = np.unique(job.schedule.meeting[mine])
        took = float(np.median(job.transfer[meetings]))
        ranks = len(np.unique(rows.rank[mine]))
        if took <= 0 or ranks < MAJORITY_SHARE * float(job.members[meetings].max()):
            continue
        rate, name = nbytes / took, rows.kinds[kind]
        row = LinkRow(
            kind=name,
            group=rows.groups[group],
            ranks=ranks,
            calls=len(meetings) / steps,
            bytes=nbytes,
            ms=took / NS_PER_MS,
            algbw_gbps=rate,
            busbw_gbps=rate * bus_share(name, ranks),
        )
        found.append((took * len(meetings), row))
    return [row for _, row in sorted(found, key=lambda one: -one[0])[:ROWS_LISTED]]
