"""A CPU job seen as a device job: the device is the cores, its kernels are the ops that compute.

An op computes if most of its time is its own and not that of an op inside it, or if it works on by itself
for longer than a dispatcher could take: a product that first copies its bias out. A routine that copies its
input for itself does in any case: LAPACK overwrites what it is given, so that copy is a part of it, which
nobody who calls it can drop.

Everything after this works as for a GPU: what runs no such op is a gap, and a gap in the loader, in
Python or in the dispatcher is blamed like any other. Ops of the data loader are the loader's, not work.
An op's way to its kernel is the dispatcher's too: an op on a few numbers takes its microseconds there.
"""

from __future__ import annotations

import re

import msgspec
import numpy as np
from msgspec.structs import replace

from findwall.model.catalogue import FAIR_PART, MAJORITY_SHARE
from findwall.model.events import DeviceProperties, Events, Kind, Timeline
from findwall.model.intervals import I64, union
from findwall.model.machine import SIXTEEN_BITS, Ceilings
from findwall.step.host_activity import LOADER
from findwall.step.links import link, nearest

# Ops that only make a view or take memory: they neither work nor keep the op around them from being one.
WEIGHTLESS = re.compile(
    r"^aten::(empty|new_empty|as_strided|view|_unsafe_view|reshape|_reshape_alias|resize|detach|alias|select|slice"
    r"|expand|t$|transpose|permute|unsqueeze|squeeze|unbind|split|narrow|chunk|result_type|set_|resolve_|lift_fresh"
    r"|unfold|diagonal|is_|size|stride|numel|contiguous$|flatten|unflatten|movedim|swapaxes|view_as|expand_as)"
    r"|^detach|^autograd::engine|Backward\d*$|AccumulateGrad$"
)
# They copy for themselves, whatever their input looks like: routines of LAPACK, and products that add to what
# they are given. Other ops copy what lies in an order that they do not like.
COPIES_ITSELF = re.compile(
    r"^aten::(?:_?linalg_(?:cholesky|det|eig|householder|inv|lstsq|lu|qr|slogdet|solve|svd)\w*"
    r"|_?cholesky\w*|triangular_solve|geqrf|orgqr|ormqr|addmm|baddbmm|addbmm|addmv|addr|_addmm_activation)$"
)

# What any op takes before its kernel works: arguments, dispatch, autograd, the result's memory. A small add
# in place takes 3 us on a server's cores, one that makes its result and is recorded a little longer.
DISPATCH_NS = 4_000
# An op that runs none of those inside it for so long, a fair part of its time, works. A dispatcher takes
# microseconds; of what a thread loses to others on its core it is seldom so much. Chosen by hand.
WORKS_NS = 200_000


def cores_as_device(timeline: Timeline) -> Timeline:
    """The timeline with a kernel row, and the call that issued it, for every op that computes."""
    rows = computing(timeline)
    events = timeline.events
    work = events.take(rows)
    count = len(rows)
    ids = np.arange(1, count + 1, dtype=np.int64) + int(events.correlation.max(initial=0))
    blank = np.full(count, -1, np.int64)
    dispatched = np.minimum(work.start + DISPATCH_NS, work.end - 1)
    kernels = replace(
        work,
        start=dispatched,
        kind=np.full(count, Kind.KERNEL, np.uint8),
        device=np.zeros(count, np.int32),
        stream=np.zeros(count, np.int64),
        correlation=ids,
        sequence=blank,
        launch=blank.astype(np.int32),
    )
    calls = replace(
        work,
        kind=np.full(count, Kind.RUNTIME, np.uint8),
        end=dispatched,
        correlation=ids,
        sequence=blank,
        inputs=blank.astype(np.int32),
        extra=blank.astype(np.int32),
    )
    header = replace(timeline.header, devices=(DeviceProperties(0, "CPU"),))
    return replace(timeline, events=stacked(events, calls, kernels), header=header)


def core_ceilings(ceilings: Ceilings) -> Ceilings:
    """Without what only GPUs have, and with fp64, whose numbers fill a vector twice as fast.

    fp32 on cores has no switch that a job could have left off, as TF32 is one; 16 bits are other formats.
    """
    formats = ("fp32", "fp64", *SIXTEEN_BITS)
    known = {math: flops for math, flops in ceilings.flops.items() if math in formats}
    if "fp32" in known:
        known.setdefault("fp64", known["fp32"] / 2)
    return msgspec.structs.replace(ceilings, flops=known, sm_count=None)


def slowed(ceilings: Ceilings, pace: float) -> Ceilings:
    """What cores can do while something else takes its share of them: of their speed so much."""
    flops = {math: pace * flops for math, flops in ceilings.flops.items()}
    bandwidth = pace * ceilings.bandwidth if ceilings.bandwidth is not None else None
    return msgspec.structs.replace(ceilings, flops=flops, bandwidth=bandwidth)


def computing(timeline: Timeline) -> I64:
    """Ops that compute themselves, outside the loader; what runs inside one of them is part of it."""
    events = timeline.events
    links = link(timeline)
    ops = timeline.rows(Kind.OP)
    ops = ops[~timeline.bears(WEIGHTLESS, ops) & (events.end[ops] > events.start[ops])]
    inner = np.zeros(len(events), np.int64)
    above = np.where(links.parent[ops] >= 0, links.op[links.parent[ops]], -1)
    np.add.at(inner, above[above >= 0], events.duration[ops[above >= 0]])
    computes = np.zeros(len(events), bool)
    computes[ops] = inner[ops] <= MAJORITY_SHARE * events.duration[ops]
    alone = _longest_alone(events, ops, above)
    computes[ops] |= (alone >= WORKS_NS) & (alone >= FAIR_PART * events.duration[ops])
    computes[ops] |= timeline.bears(COPIES_ITSELF, ops)
    around = nearest(links.parent, computes)
    ops = ops[computes[ops] & (np.where(links.parent >= 0, around[links.parent], -1) < 0)[ops]]
    ranges = timeline.rows_named(LOADER, Kind.ANNOTATION, Kind.OP, Kind.PYTHON)
    loading = union(events.start[ranges], events.end[ranges])
    inside = loading.covered_within(events.start[ops], events.start[ops] + 1) > 0
    return ops[~inside]


def _longest_alone(events: Events, ops: I64, above: I64) -> I64:
    """For each op the longest stretch in which it runs none of the others, of which `above` has the op around
    each."""
    order = np.lexsort((events.start[ops], above))
    order = order[above[order] >= 0]
    inner, around = ops[order], above[order]
    first = np.concatenate([[True], around[1:] != around[:-1]]) if len(order) else np.zeros(0, bool)
    since = np.concatenate([[0], events.end[inner][:-1]]) if len(order) else np.zeros(0, np.int64)
    since = np.where(first, events.start[around], since)
    last = np.concatenate([first[1:], [True]]) if len(order) else first
    longest = np.zeros(len(events), np.int64)
    np.maximum.at(longest, around, events.start[inner] - since)
    np.maximum.at(longest, around[last], (events.end[around] - events.end[inner])[last])
    found: I64 = longest[ops]
    return found


def stacked(*tables: Events) -> Events:
    columns = {
        name: np.concatenate([getattr(table, name) for table in tables]) for name in Events.__struct_fields__
    }
    order = np.lexsort((columns["kind"], -columns["end"], columns["start"]))
    return Events(**{name: column[order] for name, column in columns.items()})
