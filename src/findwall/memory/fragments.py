"""What is reserved and not of use: free in the cache, and in what pieces."""

from __future__ import annotations

import msgspec
import numpy as np

from findwall.memory.lives import Walk
from findwall.model.memory_history import (
    ALLOC,
    I64,
    INACTIVE,
    SEGMENT_ALLOC,
    SEGMENT_FREE,
    SEGMENT_MAP,
    SEGMENT_UNMAP,
    U64,
    DeviceHistory,
)


class Fragments(msgspec.Struct, frozen=True):
    """At one event, in bytes."""

    free: int
    largest_free: int
    rounding: int


def fragments(history: DeviceHistory, walk: Walk, event: int) -> Fragments:
    """After an event. Blocks of the past may have been larger than what is known, so free is at the most."""
    alive = walk.lives.alive_at(event)
    held, asked = int(walk.lives.held[alive].sum()), int(walk.lives.asked[alive].sum())
    starts, sizes = _segments(history, event)
    free = _free_pieces(starts, sizes, walk.lives.address[alive], walk.lives.held[alive])
    largest = int(free.max()) if len(free) else 0
    return Fragments(max(int(sizes.sum()) - held, 0), largest, held - asked)


def _segments(history: DeviceHistory, event: int) -> tuple[U64, I64]:
    """What was reserved after an event, as stretches of addresses: the last ones, and back from there."""
    events = history.events
    later = np.arange(len(events)) > event
    given = later & events.at(SEGMENT_FREE, SEGMENT_UNMAP)
    taken = later & events.at(SEGMENT_ALLOC, SEGMENT_MAP)
    starts = np.concatenate([history.segments.address, events.address[given], events.address[taken]])
    sizes = np.concatenate([history.segments.total, events.size[given], events.size[taken]])
    sign = np.concatenate([np.ones(len(starts) - int(taken.sum())), -np.ones(int(taken.sum()))])
    edges, cover = _cover(starts, sizes, sign)
    inside = np.flatnonzero(cover > 0)
    return edges[inside], (edges[inside + 1] - edges[inside]).astype(np.int64)


def _cover(starts: U64, sizes: I64, sign: np.ndarray) -> tuple[U64, np.ndarray]:
    """Edges in order, and how often what follows each is covered."""
    ends = starts + sizes.astype(np.uint64)
    edges, places = np.unique(np.concatenate([starts, ends]), return_inverse=True)
    change = np.bincount(places, np.concatenate([sign, -sign]), len(edges))
    return edges, np.cumsum(change)


def _free_pieces(starts: U64, sizes: I64, held_at: U64, held: I64) -> I64:
    """Sizes of the stretches of segments that no block covers; none crosses the start of a segment."""
    every = np.concatenate([starts, held_at])
    lengths = np.concatenate([sizes, held])
    sign = np.concatenate([np.ones(len(starts)), np.full(len(held_at), -1.0)])
    edges, cover = _cover(every, lengths, sign)
    if len(edges) < 2:
        return np.zeros(0, np.int64)
    free = np.flatnonzero(cover[:-1] > 0)
    if len(free) == 0:
        return np.zeros(0, np.int64)
    length = (edges[free + 1] - edges[free]).astype(np.int64)
    breaks = np.ones(len(free), np.bool_)
    breaks[1:] = (np.diff(free) > 1) | np.isin(edges[free[1:]], starts)
    found: I64 = np.add.reduceat(length, np.flatnonzero(breaks))
    return found


def private_free(history: DeviceHistory) -> int:
    """Free at the end in pools of which only their owners may take."""
    blocks = history.blocks
    if len(history.segments.is_private) == 0:
        return 0
    idle = (blocks.state == INACTIVE) & history.segments.is_private[blocks.segment]
    return int(blocks.size[idle].sum())


def needless_calls(history: DeviceHistory, walk: Walk) -> int:
    """Times the driver was asked for memory although as much was free already, in pieces."""
    events = history.events
    taken = np.flatnonzero(events.at(SEGMENT_ALLOC, SEGMENT_MAP))
    free = walk.reserved[taken] - events.size[taken] - walk.held[taken]
    return int((free >= events.size[taken]).sum())


def driver_calls(history: DeviceHistory) -> tuple[int, int]:
    """Times it was asked, and times something was given back."""
    if history.reserved is not None:
        change = np.diff(history.reserved)
        return int((change > 0).sum()), int((change < 0).sum())
    events = history.events
    taken, given = events.at(SEGMENT_ALLOC, SEGMENT_MAP), events.at(SEGMENT_FREE, SEGMENT_UNMAP)
    return int(taken.sum()), int(given.sum())


def largest_request(history: DeviceHistory) -> int:
    asked = history.events.size[history.events.at(ALLOC)]
    return int(asked.max()) if len(asked) else 0
