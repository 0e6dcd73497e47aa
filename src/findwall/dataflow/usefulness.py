"""What of an iteration anybody uses.

Something is used if the host reads it, if it changes what was there before, if Python still holds it when the
last iteration ends, or if something that is used reads it. The gradient of a parameter is used only by who
reads it: adding it to another gradient of the same parameter is not enough.
"""

from __future__ import annotations

import re

import numpy as np

from findwall.dataflow.linking import BEFORE, Flow, of_ours, opaque, rows_under
from findwall.model.dataflow import CHANGE, KEPT, MAKE, OVERWRITE, SEEN, Observed
from findwall.model.events import Bool
from findwall.model.intervals import I64

ACCUMULATES = "torch::autograd::AccumulateGrad"
# Reads by the host, and messages to other processes.
_READS = re.compile(
    r"^aten::(item|_local_scalar_dense|is_nonzero|equal|allclose|_async_error|_assert\w*)$|^c10d::|^nccl"
)

_NUMBERS = frozenset(("aten::item", "aten::_local_scalar_dense", "aten::is_nonzero"))


def used_heads(flow: Flow) -> Bool:
    """Which outermost ops, by row, somebody uses."""
    return reaching(flow, np.union1d(_read(flow), changes(flow)))


def reaching(flow: Flow, roots: I64) -> Bool:
    """Rows from which something flows into one of these, themselves too."""
    return _walk(flow, roots, flow.reader, flow.writer)


def reached_from(flow: Flow, roots: I64) -> Bool:
    """Rows into which something flows from one of these, themselves too."""
    return _walk(flow, roots, flow.writer, flow.reader)


def _walk(flow: Flow, roots: I64, one_end: I64, other_end: I64) -> Bool:
    """Along links from one end to the other, as far as they go. What runs inside an op is one with it."""
    unit = np.where(flow.head >= 0, flow.head, np.arange(len(flow.head)))
    seen = flow.writer >= 0
    ways: dict[int, list[int]] = {}
    for one, other in zip(unit[one_end[seen]].tolist(), unit[other_end[seen]].tolist(), strict=True):
        if one != other:
            ways.setdefault(one, []).append(other)
    left = np.unique(unit[roots]).tolist()
    found = np.zeros(len(flow.head), bool)
    found[left] = True
    while left:
        for other in ways.pop(left.pop(), ()):
            if not found[other]:
                found[other] = True
                left.append(other)
    return found


def changes(flow: Flow) -> I64:
    """Ops that change what was there before. A gradient that is added to another one is not yet used."""
    older = flow.wrote[flow.born[flow.written] == BEFORE]
    return np.setdiff1d(older, [*rows_under(flow.observed, ACCUMULATES), *of_ours(flow.observed)])


def _read(flow: Flow) -> I64:
    """What the host reads, or Python keeps."""
    observed = flow.observed
    reads = np.array([_READS.search(name) is not None for name in observed.names], bool)[observed.name]
    reads |= opaque(observed)
    reads[_to_host(observed)] = True
    reads[_without_a_result(observed)] = True
    reads[of_ours(observed)] = False
    reads[list(rows_under(observed, KEPT) | rows_under(observed, SEEN))] = True
    return np.flatnonzero(reads)


def _to_host(observed: Observed) -> I64:
    """Ops that bring something from a device to the host, where nobody sees who reads it."""
    host = np.array([name == "cpu" for name in observed.devices], bool)
    if host.all():
        return np.zeros(0, np.int64)
    here = host[observed.device]
    makes = np.isin(observed.way, (MAKE, CHANGE, OVERWRITE))
    given = np.unique(observed.op[~makes & ~here])
    found: I64 = np.intersect1d(np.unique(observed.op[makes & here]), given)
    return found


def taken_by_host(observed: Observed) -> I64:
    """Ops with which the host takes more than a number: it may do anything with that, and give it back."""
    several = np.array([bool(one.dims) for one in observed.regions], bool)[observed.region]
    seen = np.isin(observed.op, list(rows_under(observed, SEEN)))
    return np.unique(observed.op[several & (seen | np.isin(observed.op, _to_host(observed)))])


def numbers_taken(observed: Observed) -> I64:
    """Ops with which the host takes a single number."""
    takes = np.array([name in _NUMBERS for name in observed.names], bool)[observed.name]
    return np.flatnonzero(takes & observed.is_op)


def _without_a_result(observed: Observed) -> I64:
    """Ops that were given tensors, make none and change none: what they do is done elsewhere."""
    has = np.zeros(len(observed), bool)
    has[observed.op[np.isin(observed.way, (MAKE, CHANGE, OVERWRITE))]] = True
    given = np.zeros(len(observed), bool)
    given[observed.op] = True
    return np.flatnonzero(observed.is_op & given & ~has)


def written_unseen(flow: Flow) -> bool:
    """Whether somebody reads memory that no op wrote: kernels run here that nobody sees. What an op does with
    memory of its own, between ops that it calls, is its own matter."""
    observed = flow.observed
    born = flow.born[flow.storage]
    written = np.unique(flow.written)
    blank = (flow.writer == BEFORE) & (born != BEFORE) & ~np.isin(flow.storage, written)
    blank &= flow.head[np.maximum(born, 0)] != flow.head[flow.reader]
    computes = np.zeros(len(observed), bool)
    computes[np.unique(flow.wrote)] = True
    reads = observed.way[flow.use] != CHANGE
    return bool((blank & reads & computes[flow.reader]).any())
