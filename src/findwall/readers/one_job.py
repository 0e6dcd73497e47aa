"""Whether several traces are ranks of one job: told by what they say of themselves, else by their likeness.

A set of traces that is no job would otherwise get one verdict, and it would be the verdict of one of them.
"""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import numpy as np

from findwall.model.events import Kind, Timeline

WALL_CLOCK_FROM_NS = 1_000_000_000 * 10**9  # below: counted from a boot or a start, not from 1970
_CLOCK_SLACK_NS = 10**9  # hosts of one job keep time to well under a second; jobs in a row are further apart
_SHARED_NAMES = 0.5  # of the poorer trace's: stages and experts of one job differ, its common parts do not


class Identity(msgspec.Struct, frozen=True):
    """What a trace can be told from another by."""

    path: str
    rank: int | None
    world_size: int | None
    devices: frozenset[str]  # empty: the trace does not say
    span: tuple[int, int] | None  # nanoseconds since 1970; None when its clock is another
    work: frozenset[str]  # names of kernels, or of operators where nothing ran on a device

    @property
    def says_its_rank(self) -> bool:
        return self.rank is not None and self.world_size is not None


def identify(timeline: Timeline) -> Identity:
    header = timeline.header
    return Identity(
        path=timeline.path,
        rank=header.rank,
        world_size=header.world_size,
        devices=frozenset(device.name for device in header.devices),
        span=_span(timeline),
        work=_names(timeline, Kind.KERNEL) or _names(timeline, Kind.OP),
    )


def _span(timeline: Timeline) -> tuple[int, int] | None:
    begin = timeline.header.base_time_ns
    if not len(timeline.events) or begin < WALL_CLOCK_FROM_NS:
        return None
    return begin, begin + int(timeline.events.end.max())


def _names(timeline: Timeline, kind: Kind) -> frozenset[str]:
    used = np.unique(timeline.events.name[timeline.events.kind == kind])
    return frozenset(timeline.names[index] for index in used.tolist())


def strangers(traces: list[Identity]) -> str | None:
    """Why the last of these is no rank of the job that those before it are of; None when it can be."""
    said = _headers_disagree(traces[:-1], traces[-1])
    if said or all(trace.says_its_rank for trace in traces):
        return said
    # All against the first, not the last alone: as long as all said their rank, likeness was not asked for.
    pairs = ((traces[0], other) for other in traces[1:])
    return next((reason for pair in pairs if (reason := _unlike(*pair))), None)


def _headers_disagree(before: list[Identity], last: Identity) -> str | None:
    """Whatever else speaks for one job, a rank exists once, and a world has one size and no more ranks."""
    for trace in before:
        if last.rank is not None and trace.rank == last.rank:
            return f"{_both(trace, last)} both say they are rank {last.rank}"
        if None not in (trace.world_size, last.world_size) and trace.world_size != last.world_size:
            return f"{_both(trace, last)} say they are of {trace.world_size} and of {last.world_size} ranks"
        if (world := trace.world_size or last.world_size) and len(before) >= world:
            return f"there are {len(before) + 1} of them, and one says that the world size is {world}"
    return None


def _unlike(one: Identity, other: Identity) -> str | None:
    """Without ranks in the headers: the same device, the same time, mostly the same kernels."""
    if one.devices and other.devices and one.devices != other.devices:
        ran_on = f"{_listed(one.devices)}; {_listed(other.devices)}"
        return f"{_both(one, other)} ran on different devices ({ran_on})"
    if one.span is not None and other.span is not None:
        if max(one.span[0], other.span[0]) > min(one.span[1], other.span[1]) + _CLOCK_SLACK_NS:
            pair = _both(one, other)
            return f"{pair} were recorded at different times, and do not both say which rank they are"
    elif re.sub(r"\d+", "#", one.path) != re.sub(r"\d+", "#", other.path):
        return f"{_both(one, other)} do not say which rank they are, nor when they were recorded"
    fewer = min(len(one.work), len(other.work))
    if len(one.work & other.work) < max(_SHARED_NAMES * fewer, 1):
        return f"{_both(one, other)} have little work in common, and do not both say which rank they are"
    return None


def _both(one: Identity, other: Identity) -> str:
    """By their names alone where these differ; the folder is told already."""
    first, second = Path(one.path), Path(other.path)
    return f"{first.name} and {second.name}" if first.name != second.name else f"{first} and {second}"


def _listed(devices: frozenset[str]) -> str:
    return ", ".join(sorted(devices))
