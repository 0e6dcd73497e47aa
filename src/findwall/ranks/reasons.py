"""Why one is late: what of its own time is longer than its peers'."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from findwall.model.catalogue import MAJORITY_SHARE
from findwall.model.intervals import F64, I64
from findwall.model.summaries.rank_summary import DEVICE, DOINGS, HOST, RankSummary
from findwall.ranks.layout import Layout
from findwall.ranks.played.ranks_job import RanksJob
from findwall.ranks.suspects import Candidate, Found, others_median

Reason = tuple[str, float]  # one of DOINGS or "link", and what of the excess it is, ns a step


def why(job: RanksJob, layout: Layout, candidate: Candidate) -> Reason | None:
    """None where no one thing is most of it."""
    if candidate.question.what == "link":
        return ("link", float(np.nanmean(candidate.excess)))
    if candidate.question.what == "stage":  # only the device's is asked about
        return (DEVICE, float(np.nanmean(candidate.excess)))
    excess = doings_excess(job, layout)[candidate.question.ranks]
    return _most(np.nanmean(np.nanmean(excess, axis=1), axis=0))


def why_uneven(job: RanksJob, layout: Layout, excess: F64) -> Reason | None:
    """What the latest of each step takes longer for, in the mean."""
    if not np.isfinite(excess).any():
        return None
    known = np.flatnonzero(np.isfinite(excess).any(axis=0))
    latest: I64 = np.argmax(np.nan_to_num(excess[:, known], nan=-np.inf), axis=0)
    return _most(np.nanmean(doings_excess(job, layout)[latest, known], axis=0))


def _most(spent: F64) -> Reason | None:
    """The doing that is most of what is longer; what is shorter meanwhile does not count against it."""
    longer = np.maximum(np.nan_to_num(spent), 0.0)
    at = int(np.argmax(longer))
    return (DOINGS[at], float(longer[at])) if longer[at] > MAJORITY_SHARE * longer.sum() else None


def doings_excess(job: RanksJob, layout: Layout) -> F64:
    """Of each rank, step and doing how much longer it is than its peers': (ranks, steps, doings)."""
    spent = _by_step(job)
    found = np.zeros_like(spent)
    for stage in range(layout.stages):
        mine = np.flatnonzero(layout.stage == stage)
        for doing in range(spent.shape[2] if len(mine) > 1 else 0):
            found[mine, :, doing] = spent[mine, :, doing] - others_median(spent[mine, :, doing])
    return found


def _by_step(job: RanksJob) -> F64:
    """Own time of each rank in each whole step by DOINGS."""
    rows = job.rows
    numbers = [job.before_first, *job.steps.tolist()]
    step = job.step_of[job.schedule.meeting]
    found = np.full((rows.ranks, len(numbers), len(DOINGS)), np.nan)
    for rank in range(rows.ranks):
        of = np.arange(len(rows))[rows.of(rank)]
        if len(of) == 0:
            continue
        start = min(int(job.first[rank]), int(of[-1]))
        entry = max(start - 1, int(of[0]))
        found[rank, 0] = rows.spent[entry]
        found[rank, 0, DOINGS.index(HOST)] += rows.left[entry] - rows.ready[entry]
        of = of[of >= start]
        last = dict(zip(step[of].tolist(), of.tolist(), strict=True))
        for at, number in enumerate(numbers):
            if number >= 0 and number in last:
                found[rank, at] = rows.spent[last[number]]
    return np.diff(found, axis=1)


def without_those_in_line(found: Found, summaries: list[RankSummary]) -> Found:
    """Nobody is named where most of what makes a rank late is waiting for a core that another may have had.

    The job's own processes share too few then. Who has to stand in line changes from run to run, and may stay
    so for the few steps that are recorded: no test over steps tells that from more to do. The system counts
    it.
    """
    if found.named < 0:
        return found
    one = found.candidates[found.named]
    told = [summary.in_line_ns for summary in summaries]
    if one.question.what != "rank" or any(waited is None for waited in told):
        return found
    at = int(one.question.ranks[0])
    if [summary.node for summary in summaries].count(summaries[at].node) < 2:
        return found
    waited = np.array(told, float)
    beyond = waited[at] - float(np.median(np.delete(waited, at)))
    return replace(found, named=-1) if beyond > MAJORITY_SHARE * float(np.nanmean(one.excess)) else found
