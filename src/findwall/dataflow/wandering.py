"""Tensors that lie elsewhere in every step: a recorded graph reads the same places again and again.

What each op reads of what was there before is compared between two iterations. A batch that a loader gives,
or one of a few batches in turn, is some tensors that are copied to a fixed place. Where thousands are picked
from a list, as many copies would be needed as a graph saves launches.
"""

from __future__ import annotations

import numpy as np

from findwall.dataflow.linking import BEFORE, Flow, in_backward, iterations, of_ours


def wandering_reads(flow: Flow) -> int | None:
    """How many tensors of before an iteration reads that the next one reads elsewhere; None where both do
    not run the same ops."""
    observed = flow.observed
    number = iterations(observed)
    heads = np.setdiff1d(flow.heads(), of_ours(observed))
    forward = ~in_backward(observed)
    first, second = (heads[(number[heads] == one) & forward[heads]] for one in (0, 1))
    if len(first) != len(second) or (observed.name[first] != observed.name[second]).any():
        return None
    reads = _older_reads(flow)
    return sum(
        len(reads.get(one, frozenset()) - reads.get(other, frozenset()))
        for one, other in zip(first.tolist(), second.tolist(), strict=True)
    )


def _older_reads(flow: Flow) -> dict[int, frozenset[int]]:
    """Of each outermost op the storages that were there before anything was seen."""
    own = (flow.head[flow.reader] == flow.reader) & (flow.born[flow.storage] == BEFORE)
    found: dict[int, set[int]] = {}
    for reader, storage in zip(flow.reader[own].tolist(), flow.storage[own].tolist(), strict=True):
        found.setdefault(reader, set()).add(storage)
    return {reader: frozenset(storages) for reader, storages in found.items()}
