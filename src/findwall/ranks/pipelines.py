"""How many micro-batches a pipeline's step is cut into, and what its bubble would be if all were even."""

from __future__ import annotations

import numpy as np

from findwall.ranks.layout import Layout
from findwall.ranks.ranks_job import RanksJob
from findwall.ranks.stage_work import EXCHANGE

FEWEST_STAGES = 3  # of two nobody can tell an interleaved schedule from a plain one: both are neighbours


def micro_batches(job: RanksJob, layout: Layout) -> int | None:
    """What the first stage sends in a step. None where the last sends to it (stages are interleaved), or
    where its ranks or steps differ."""
    if layout.stages < FEWEST_STAGES:
        return None
    rows = job.rows
    sends = rows.sends > 0
    sends |= np.array([kind == EXCHANGE for kind in rows.kinds], bool)[rows.kind]
    step = job.step_of[job.schedule.meeting]
    if _is_ring(job, layout):
        return None
    first = np.flatnonzero(layout.stage == 0)
    mine = np.flatnonzero(sends & np.isin(rows.rank, first) & np.isin(step, job.steps))
    counts = np.zeros((rows.ranks, int(job.steps.max(initial=0)) + 1), np.int64)
    np.add.at(counts, (rows.rank[mine], step[mine]), 1)
    found = np.unique(counts[np.ix_(first, job.steps)])
    return int(found[0]) if len(found) == 1 and found[0] > 0 else None


def _is_ring(job: RanksJob, layout: Layout) -> bool:
    """Whether the first and the last stage send to each other."""
    rows, meeting = job.rows, job.schedule.meeting
    pairs = np.flatnonzero((rows.sends != 0) & (job.members[meeting] == 2))
    low = np.full(len(job.members), layout.stages, np.int64)
    high = np.full(len(job.members), -1, np.int64)
    np.minimum.at(low, meeting[pairs], layout.stage[rows.rank[pairs]])
    np.maximum.at(high, meeting[pairs], layout.stage[rows.rank[pairs]])
    return bool(((low == 0) & (high == layout.stages - 1)).any())


def even_bubble(stages: int, batches: int) -> float:
    """The share of the step in which a stage fills and drains, where all stages are alike."""
    return (stages - 1) / (batches + stages - 1)
