"""What is lost of a recording is nobody's lateness."""

from __future__ import annotations

import msgspec
import numpy as np

from findwall.model.intervals import F64
from findwall.ranks.peers import Peers, median_increments
from findwall.ranks.played.max_plus import with_progress
from findwall.ranks.played.ranks_job import RanksJob


def with_gaps_closed(job: RanksJob, peers: list[Peers]) -> RanksJob | None:
    """Where a rank lacks a communication that its peers have, what its host seems to take there beyond them
    may be waiting for it. None where no rank lacks any."""
    ready, left, since = job.rows.ready.copy(), job.rows.left.copy(), job.rows.since.copy()
    changed = False
    for one in peers:
        own = one.own[:, ~one.is_left]
        lacking = np.isnan(own).any(axis=1)
        if len(one.ranks) < 2 or not lacking.any():
            continue
        row = one.row[:, ~one.is_left]
        host = np.where(row >= 0, job.rows.spent[np.maximum(row, 0), -1], np.nan)
        beyond = host - np.cumsum(median_increments(host))
        for place in np.flatnonzero(lacking).tolist():
            changed |= _closed(job, int(one.ranks[place]), own[place], beyond[place], ready, left, since)
    if not changed:
        return None
    return msgspec.structs.replace(job, rows=with_progress(job.rows, ready, left, since))


def with_lost_holds(job: RanksJob, peers: list[Peers]) -> RanksJob:
    """Where the calls that hold its peers' hosts are lost of a rank's recording nothing is known of how far
    its host got by itself, until it is next held."""
    hosted, held = job.rows.hosted.copy(), job.rows.held.copy()
    for one in peers:
        row, last, usual = one.holds(job.rows.held)
        behind = last < usual
        hosted[row[(row >= 0) & behind]] = 0
        next_to = np.append(np.zeros((len(row), 1), bool), behind[:, :-1], axis=1) & (row >= 0) & ~behind
        held[row[next_to]] = np.minimum(held[row[next_to]], 0)
    return msgspec.structs.replace(job, rows=msgspec.structs.replace(job.rows, hosted=hosted, held=held))


def _closed(job: RanksJob, rank: int, own: F64, beyond: F64, *progress: F64) -> bool:
    """`beyond`: how much more than its peers its host has taken until each place."""
    known = np.flatnonzero(~np.isnan(own) & ~np.isnan(beyond))
    if len(known) < 2:
        return False
    lacks = np.diff(known) > 1
    lost = np.where(lacks, np.maximum(np.diff(beyond[known]), 0.0), 0.0)
    if not lost.any():
        return False
    before = np.maximum.accumulate(own[known])
    moved = np.append(0.0, np.cumsum(lost))
    of, base = job.rows.of(rank), job.opens - job.begins[rank]
    for times in progress:
        times[of] -= np.interp(times[of] - base, before, moved)
    return True
