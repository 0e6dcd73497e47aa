"""The device's whole span at a glance: busy, idle, streams, devices, communication and what hides it."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from findwall.model.events import DEVICE_KINDS, Kind, Timeline
from findwall.model.intervals import I64, Intervals, union
from findwall.structure.comms import HOST_COLLECTIVE, is_communication
from findwall.structure.host import rows_matching
from findwall.structure.links import Links


class StreamTime(msgspec.Struct, frozen=True):
    stream: int
    rows: int
    busy: int


class DeviceTime(msgspec.Struct, frozen=True):
    """One device over its span, in ns."""

    device: int
    span: int
    busy: int
    communication: int  # its own and, where the device would wait for it, the host's
    hidden: int  # of the communication: other kernels ran beside it
    streams: tuple[StreamTime, ...]


def device_times(timeline: Timeline, links: Links) -> list[DeviceTime]:
    """Every device of this rank, in order of its number."""
    rows = timeline.rows(*DEVICE_KINDS)
    communication = is_communication(timeline, links, rows)
    devices = timeline.events.device[rows]
    on_host = _host_collectives(timeline)
    return [
        _device(timeline, rows[mine], communication[mine], device, on_host)
        for device, mine in _rows_of_each(devices)
    ]


def _rows_of_each(values: np.ndarray) -> Iterator[tuple[int, I64]]:
    """Every value with its places, in their order: sorted once, however many values there are."""
    order = np.argsort(values, kind="stable")
    distinct, first = np.unique(values[order], return_index=True)
    return zip(distinct.tolist(), np.split(order, first[1:]), strict=False)  # of no values, one empty part


def _host_collectives(timeline: Timeline) -> Intervals:
    rows = timeline.rows(Kind.ANNOTATION, Kind.OP)
    rows = rows_matching(timeline, rows, HOST_COLLECTIVE)
    return union(timeline.events.start[rows], timeline.events.end[rows])


def _device(
    timeline: Timeline, rows: I64, communication: np.ndarray, device: int, on_host: Intervals
) -> DeviceTime:
    events = timeline.events
    start, end = events.start[rows], events.end[rows]
    talk = union(start[communication], end[communication])
    work = union(start[~communication], end[~communication])
    streams = []
    for stream, mine in _rows_of_each(events.stream[rows]):
        streams.append(StreamTime(stream, len(mine), union(start[mine], end[mine]).length))
    span = union(start.min(keepdims=True), end.max(keepdims=True))
    on_host = on_host & span
    kernels = ~communication & (events.kind[rows] == Kind.KERNEL)  # its own copies hide nothing
    hidden = (talk & work) | (on_host & union(start[kernels], end[kernels]))
    busy = union(start, end).length
    return DeviceTime(device, span.length, busy, (talk | on_host).length, hidden.length, tuple(streams))


def peak_memory(timeline: Timeline) -> int | None:
    """The most the allocator held, in bytes, if the trace recorded it."""
    if timeline.memory is None or len(timeline.memory.allocated) == 0:
        return None
    most = int(timeline.memory.allocated.max())
    return most if most >= 0 else None
