"""A CPU job seen as a device job: the device is the cores, its kernels are the leaf ops.

Everything after this works as for a GPU: what runs no leaf op is a gap, and a gap in the loader, in
Python or in the dispatcher is blamed like any other. Ops of the data loader are the loader's, not work.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from findwall.attribute.host import LOADER, names_matching
from findwall.attribute.links import link
from findwall.model.events import DeviceProperties, Events, Kind, Timeline
from findwall.model.intervals import I64, union


def cores_as_device(timeline: Timeline, device_name: str = "CPU") -> Timeline:
    """The timeline with a kernel row, and the call that issued it, for every leaf op."""
    leaves = _leaves(timeline)
    events = timeline.events
    work = events.take(leaves)
    count = len(leaves)
    ids = np.arange(1, count + 1, dtype=np.int64) + int(events.correlation.max(initial=0))
    blank = np.full(count, -1, np.int64)
    kernels = replace(
        work,
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
        end=work.start,
        correlation=ids,
        sequence=blank,
        inputs=blank.astype(np.int32),
        extra=blank.astype(np.int32),
    )
    header = replace(timeline.header, devices=(DeviceProperties(0, device_name),))
    return replace(timeline, events=_stack(events, calls, kernels), header=header)


def _leaves(timeline: Timeline) -> I64:
    """Ops with no op inside, outside the loader, that took any time at all."""
    events = timeline.events
    links = link(timeline)
    ops = timeline.rows(Kind.OP)
    above = links.parent[ops]
    inner = above >= 0
    has_child = np.zeros(len(events), bool)
    has_child[links.op[above[inner]]] = True
    ranges = timeline.rows(Kind.ANNOTATION, Kind.OP, Kind.PYTHON)
    ranges = ranges[names_matching(timeline, LOADER)[events.name[ranges]]] if len(ranges) else ranges
    loading = union(events.start[ranges], events.end[ranges])
    inside = loading.covered_within(events.start[ops], events.start[ops] + 1) > 0
    leaves: I64 = ops[~has_child[ops] & ~inside & (events.end[ops] > events.start[ops])]
    return leaves


def _stack(*tables: Events) -> Events:
    columns = {
        name: np.concatenate([getattr(table, name) for table in tables]) for name in Events.__dataclass_fields__
    }
    order = np.lexsort((columns["kind"], -columns["end"], columns["start"]))
    return Events(**{name: column[order] for name, column in columns.items()})
