"""Kernels whose launch is not in the trace: what the same kernel did where its op was recorded.

The first window of a trace holds kernels of earlier steps; a replayed graph holds kernels without ops. Where
the same kernel with the same launch shape is known elsewhere, its work is known here too.
"""

from __future__ import annotations

import numpy as np

from findwall.attribute.workmodel.division import Rows, Shares
from findwall.model.events import Bool, Kind
from findwall.model.intervals import I64

_ALIKE = 0.2  # of the duration: how near a twin must be where twins differ in work


def fill_from_twins(rows: Rows, shares: Shares, math_index: np.ndarray, allowed: Bool) -> None:
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


def _match(rows: Rows, shares: Shares, math_index: np.ndarray, unknown: I64, known: I64, key: I64) -> None:
    known = known[np.isin(key[known], key[unknown])]
    known = known[np.lexsort((rows.duration[known], key[known]))]
    if len(known) == 0:
        return
    keys = key[known]
    first = np.searchsorted(keys, key[unknown], "left")
    past = np.searchsorted(keys, key[unknown], "right")
    for index, begin, end in zip(unknown.tolist(), first.tolist(), past.tolist(), strict=True):
        if end > begin:
            twin = _nearest(rows, shares, known[begin:end], float(rows.duration[index]))
            if twin >= 0:
                shares.flops[index] = shares.flops[twin]
                shares.nbytes[index] = shares.nbytes[twin]
                shares.cast[index] = shares.cast[twin]
                math_index[index] = math_index[twin]


def _nearest(rows: Rows, shares: Shares, twins: I64, duration: float) -> int:
    """The twin nearest in duration; any, where all do the same work."""
    lengths = rows.duration[twins]
    at = int(np.clip(np.searchsorted(lengths, duration), 1, len(twins)) - 1)
    if at + 1 < len(twins) and abs(lengths[at + 1] - duration) < abs(lengths[at] - duration):
        at += 1
    work = shares.nbytes[twins]
    same = float(work.max() - work.min()) <= 0.01 * float(work.max())
    if same or abs(lengths[at] - duration) <= _ALIKE * duration:
        return int(twins[at])
    return -1
