"""How fast the transfers of each kind and group are, without waiting, and what the link could do.

The rate of the algorithm is the message by its time; that of the bus is what each rank had to send for it, as
NCCL's own tests count it.
"""

from __future__ import annotations

import numpy as np

from findwall.machine.link_table import bus_share, link_of
from findwall.model.answers.ranks_answer import LinkRow, RanksTogether
from findwall.model.catalogue import MAJORITY_SHARE
from findwall.model.intervals import I64
from findwall.ranks.played.ranks_job import RanksJob
from findwall.units import NS_PER_MS

ROWS_LISTED = 12  # the longest of all. Chosen by hand.
LARGE_MESSAGE_BYTES = 4 << 20  # from here on a transfer's rate is the link's, not its latency's. By hand.


def link_rows(job: RanksJob, sizes: dict[str, int | None]) -> list[LinkRow]:
    """Where the size is known, and most transfers are of more than latency. `sizes`: ranks of each group."""
    rows, steps = job.rows, max(len(job.steps), 1)
    counted = np.isin(job.step_of, job.steps) & (job.members > 1)
    found: list[tuple[float, LinkRow]] = []
    keys = np.stack([rows.group, rows.kind, rows.nbytes])
    distinct, which = np.unique(keys, axis=1, return_inverse=True)
    which = which.reshape(-1)
    order = np.argsort(which, kind="stable")
    parts = np.split(order, np.flatnonzero(np.diff(which[order])) + 1) if len(order) else []
    for (group, kind, nbytes), part in zip(distinct.T.tolist(), parts, strict=True):
        mine: I64 = part[counted[job.schedule.meeting[part]]]
        if nbytes <= 0 or len(mine) == 0:
            continue
        meetings = np.unique(job.schedule.meeting[mine])
        took = float(np.median(job.transfer[meetings]))
        here, ranks = len(np.unique(rows.rank[mine])), int(job.members[meetings].max())
        if took <= 0 or here < MAJORITY_SHARE * ranks:
            continue
        name, size = rows.kinds[kind], sizes.get(rows.groups[group])
        # Where a rank is missing nobody knows how much of this is waiting for it.
        rate = nbytes / took if size == ranks else None
        share = bus_share(name, ranks)
        row = LinkRow(
            kind=name,
            group=rows.groups[group],
            ranks=here,
            calls=len(meetings) / steps,
            bytes=nbytes,
            ms=took / NS_PER_MS,
            algbw_gbps=rate,
            busbw_gbps=rate * share if rate is not None and share is not None else None,
        )
        found.append((took * len(meetings), row))
    return [row for _, row in sorted(found, key=lambda one: -one[0])[:ROWS_LISTED]]


def held_against(answer: RanksTogether, measured: float | None, device: str) -> None:
    """Beside each bus rate what the link carries: as measured (bytes/s), else by the table, where all ranks
    are in one machine; else what other groups reach with the same message."""
    links, inside = answer.links, answer.nodes == 1
    spec = link_of(device) if inside else None
    for row in links:
        if row.busbw_gbps is None:
            continue
        if measured is not None and inside:
            row.link_gbps, row.link_source = measured / 1e9, "measured"
        elif spec is not None:
            row.link_gbps, row.link_source = spec.rate / 1e9, "table"
        elif peers := _peers(row, links):
            row.link_gbps, row.link_source = float(np.median(peers)), "peers"
        # A switch that adds up on the way sends less than the count says: no share of a link then.
        told = row.bytes >= LARGE_MESSAGE_BYTES or row.link_source == "peers"
        if told and row.link_gbps and (row.busbw_gbps <= row.link_gbps or row.link_source == "peers"):
            row.link_share = row.busbw_gbps / row.link_gbps


def _peers(row: LinkRow, links: list[LinkRow]) -> list[float]:
    """What other groups reach with such messages."""
    return [
        one.busbw_gbps
        for one in links
        if one is not row
        and (one.kind, one.bytes, one.ranks) == (row.kind, row.bytes, row.ranks)
        and one.group != row.group
        and one.busbw_gbps is not None
    ]
