"""What one rank's recording lacks and the others' show: waits that nothing was seen of, and who left late."""

from __future__ import annotations

import msgspec
import numpy as np

from findwall.model.catalogue import MAJORITY_SHARE
from findwall.model.intervals import F64
from findwall.ranks.played.all_rows import AllRows
from findwall.ranks.played.clocks import Clocks, medians
from findwall.ranks.played.matching import TOGETHER_NS, Matched
from findwall.ranks.played.max_plus import with_progress


def with_late_leaving(rows: AllRows, matched: Matched, clocks: Clocks) -> AllRows:
    """A communication is over when the first member leaves it. Who leaves clearly later was held up by
    itself: processes that wait for a core, say."""
    meeting = np.maximum(matched.meeting, 0)
    shared = (matched.meeting >= 0) & rows.joins
    first = np.full(matched.count, np.inf)
    np.minimum.at(first, matched.meeting[matched.meeting >= 0], clocks.end[matched.meeting >= 0])
    held = np.where(shared, clocks.end - first[meeting], 0.0)
    held = np.where(held > TOGETHER_NS, held, 0.0)
    if not held.any():
        return rows
    until = np.cumsum(held)
    until -= np.append(0.0, until)[rows.first[rows.rank]]
    before = until - held
    return _moved(rows, before, before)


def with_unseen_waits(rows: AllRows, matched: Matched) -> AllRows:
    """Where most members of a communication wait for it and one's device is idle beside it for longer than
    theirs before anything is seen to wait, that waited too: a row may be lost of a recording."""
    meeting = np.maximum(matched.meeting, 0)
    shared = matched.meeting >= 0
    members = np.bincount(meeting[shared], minlength=matched.count)
    waiting = np.bincount(meeting[shared & rows.joins], minlength=matched.count)
    most = waiting > MAJORITY_SHARE * members
    usual = medians(np.where(shared, rows.idle, 0.0)[shared], meeting[shared], matched.count)
    beyond = rows.idle - np.where(shared, usual[meeting], 0.0)
    found = shared & (beyond > 0) & (members[meeting] > 2) & most[meeting]
    if not found.any():
        return rows
    lost = np.where(found, beyond, 0.0)
    until = np.cumsum(lost)
    until -= np.append(0.0, until)[rows.first[rows.rank]]  # of its own rank alone
    return msgspec.structs.replace(_moved(rows, lost - until, -until), joins=rows.joins | found)


def _moved(rows: AllRows, ready: F64, left: F64) -> AllRows:
    """With other own progress, which is the host's, by so much when each was ready and when it was left."""
    since, spent = rows.since.copy(), rows.spent.copy()
    spent[:, -1] += ready
    for rank in range(rows.ranks):
        of = rows.of(rank)
        left_before = np.searchsorted(rows.left[of], rows.since[of], side="right")
        since[of] += np.append(0.0, left[of])[left_before]
    rows = with_progress(rows, rows.ready + ready, rows.left + left, since)
    return msgspec.structs.replace(rows, spent=spent)
