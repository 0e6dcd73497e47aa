"""How long a rank waited in each of its communications: what it lasted beyond the transfer alone."""

from __future__ import annotations

import numpy as np

from findwall.model.catalogue import WORTH_IT
from findwall.model.intervals import F64
from findwall.model.summaries.rank_summary import RankSummary
from findwall.ranks.compared_ranks import RanksCompared, compare
from findwall.units import NS_PER_MS


def waits_in(compared: RanksCompared, rank: int) -> tuple[F64, F64]:
    """For each communication of a rank, by its place among the ranks: the wait and the duration, ns. What
    lies before the window is how profilers were started: no wait."""
    job = compared.job
    if job is None:
        return np.zeros(0), np.zeros(0)
    of = job.rows.of(rank)
    meeting = job.schedule.meeting[of]
    duration = job.rows.end[of] - job.rows.start[of]
    shared = (job.members[meeting] > 1) & (np.arange(of.start, of.stop) >= job.first[rank])
    return np.where(shared, np.maximum(duration - job.transfer[meeting], 0.0), 0.0), duration


def entry_wait(compared: RanksCompared, rank: int) -> F64:
    """The same of the communication that the window begins after, and of those before it."""
    job = compared.job
    if job is None:
        return np.zeros(0)
    of = job.rows.of(rank)
    meeting = job.schedule.meeting[of]
    duration = job.rows.end[of] - job.rows.start[of]
    before = (job.members[meeting] > 1) & (np.arange(of.start, of.stop) < job.first[rank])
    found: F64 = np.where(before, np.maximum(duration - job.transfer[meeting], 0.0), 0.0)
    return found


def who_waits_most(summaries: list[RankSummary]) -> int:
    """Its place among them. One before it that waits as long, but for less than a wall, is taken instead: of
    the first rank most is known. Nought where they cannot be compared."""
    compared = compare(summaries)
    if compared.job is None:
        return 0
    waited = np.array([float(waits_in(compared, at)[0].sum()) for at in range(len(summaries))])
    steps = max(len(compared.job.steps), 1)
    enough = waited.max() - WORTH_IT * (compared.answer.step_ms or 0.0) * NS_PER_MS * steps
    return int(np.argmax(waited >= enough))
