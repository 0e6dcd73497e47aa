"""What the stages of a pipeline do between its messages, and the same shared out among them.

The mean and not the median: layers can be moved to another stage, and have to be done there. What lies
between two collectives (the optimizer, say) is no layer and stays where it is.
"""

from __future__ import annotations

import numpy as np

from findwall.model.events import Bool
from findwall.model.intervals import F64
from findwall.ranks.layout import Layout
from findwall.ranks.played.max_plus import OwnTimes
from findwall.ranks.played.ranks_job import RanksJob


def stage_times(job: RanksJob, layout: Layout, on_device: bool = False) -> F64:
    """What the mean rank of each stage does between messages, in each whole step, or its device alone: shape
    (stages, steps)."""
    work, is_layers = _increments(job, job.rows.spent[:, 0] if on_device else job.rows.ready)
    step = job.step_of[job.schedule.meeting]
    found = np.zeros((layout.stages, len(job.steps)))
    for at, number in enumerate(job.steps.tolist()):
        here = job.here[:, at]
        mine = is_layers & (step == number) & here[job.rows.rank]
        spent = np.bincount(layout.stage[job.rows.rank[mine]], work[mine], minlength=layout.stages)
        found[:, at] = spent / np.maximum(np.bincount(layout.stage[here], minlength=layout.stages), 1)
    return found


def stages_levelled(job: RanksJob, layout: Layout, own: OwnTimes) -> OwnTimes:
    """Own progress at which rows are ready and waits end, where every stage does as much as the others."""
    times = stage_times(job, layout).mean(axis=1)
    share = float(times.mean()) / np.maximum(times, 1.0)
    work, is_layers = _increments(job, job.rows.ready)
    factor = np.where(is_layers, share[layout.stage[job.rows.rank]], 1.0)
    longer = work * (factor - 1.0)
    rows = job.rows
    ready, left, since = own.ready.copy(), own.left.copy(), own.since.copy()
    for rank in range(rows.ranks):
        of = rows.of(rank)
        if of.start == of.stop:
            continue
        moved = np.cumsum(longer[of])
        knots = rows.ready[of]
        ready[of] = knots + moved
        left[of] += np.interp(rows.left[of], knots, moved)
        since[of] += np.interp(rows.since[of], knots, moved)
    return own.moved(ready, left, since)  # layers take their host's time with them


def _increments(job: RanksJob, progress: F64) -> tuple[F64, Bool]:
    """Progress from the row before to each row, within the window; and whether it lies beside a message."""
    rows = job.rows
    inside = np.arange(len(rows)) > job.first[rows.rank]
    work = np.where(inside, np.diff(progress, prepend=0.0), 0.0)
    pair = rows.sends != 0
    pair |= np.array([kind == EXCHANGE for kind in rows.kinds], bool)[rows.kind]
    beside = pair | np.append(False, pair[:-1])
    return work, inside & beside


EXCHANGE = "exchange"  # a send and a receive that were issued as one
