"""Kernels whose launch is not in the trace: what the same kernel did where its op was recorded.

The first window of a trace holds kernels of earlier steps; a replayed graph holds kernels without ops. Where
the same kernel with the same launch shape is known elsewhere, its work is known here too: that of the one
that took about as long.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from findwall.attribute.workmodel.division import Rows, Shares
from findwall.model.catalogue import FAIR_PART
from findwall.model.events import Bool, Kind
from findwall.model.intervals import I64


def fill_from_twins(rows: Rows, shares: Shares, math_index: NDArray[np.int8], allowed: Bool) -> None:
    """Fill unknown work in place from rows of the same name and launch shape."""
    unknown = np.isnan(shares.nbytes) & (rows.kind == Kind.KERNEL) & allowed
    known = ~np.isnan(shares.nbytes) & (rows.kind == Kind.KERNEL)
    if not unknown.any() or not known.any():
        return
    launch = rows.timeline.events.launch[rows.row].astype(np.int64)
    width = int(launch.max(initial=-1)) + 2
    exact = rows.name.astype(np.int64) * width + launch + 1
    shapeless = unknown & (launch < 0)
    _match(rows, shares, math_index, np.flatnonzero(unknown & ~shapeless), np.flatnonzero(known), exact)
    by_name = rows.name.astype(np.int64)
    _match(rows, shares, math_index, np.flatnonzero(shapeless), np.flatnonzero(known), by_name)


def _match(
    rows: Rows, shares: Shares, math_index: NDArray[np.int8], unknown: I64, known: I64, key: I64
) -> None:
    known = known[np.isin(key[known], key[unknown])]
    if len(known) == 0:
        return
    twin = _nearest(key, rows.duration, unknown, known)
    found = twin >= 0
    unknown, twin = unknown[found], twin[found]
    # One grid serves many shapes: a twin takes about as long.
    near = np.abs(rows.duration[twin] - rows.duration[unknown]) <= FAIR_PART * rows.duration[unknown]
    unknown, twin = unknown[near], twin[near]
    for column in (shares.flops, shares.nbytes, shares.cast, shares.saving, shares.work, math_index):
        column[unknown] = column[twin]


def _nearest(key: I64, duration: NDArray[np.float64], unknown: I64, known: I64) -> I64:
    """For each unknown row the known one of the same key that is nearest in duration; -1 none."""
    every = np.concatenate((known, unknown))
    every = every[np.lexsort((duration[every], key[every]))]
    given = np.isin(every, known)
    place = np.arange(len(every))
    before = np.maximum.accumulate(np.where(given, place, -1))
    after = np.minimum.accumulate(np.where(given, place, len(every))[::-1])[::-1]
    at = np.flatnonzero(~given)
    distance, choice = np.full(len(at), np.inf), np.full(len(at), -1, np.int64)
    for beside, exists in ((before[at], before[at] >= 0), (after[at], after[at] < len(every))):
        other = every[np.where(exists, beside, 0)]
        apart = np.where(
            exists & (key[other] == key[every[at]]), np.abs(duration[other] - duration[every[at]]), np.inf
        )
        choice = np.where(apart < distance, other, choice)
        distance = np.minimum(apart, distance)
    result = np.full(len(key), -1, np.int64)
    result[every[at]] = choice
    return result[unknown]
