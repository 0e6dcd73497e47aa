"""What was alive when: every allocation with its birth and death, and the allocator's totals over time.

A walk that starts at nothing misses what was there before. So it starts from what the segments hold and no
event explains, and from what is freed and no event allocated; and it must end at what the segments say.
"""

from __future__ import annotations

import msgspec
import numpy as np

from findwall.model.events import Bool
from findwall.model.memory_history import (
    ALLOC,
    AWAITING_FREE,
    FREE_COMPLETED,
    FREE_REQUESTED,
    I32,
    I64,
    INACTIVE,
    SEGMENT_ALLOC,
    SEGMENT_FREE,
    SEGMENT_MAP,
    SEGMENT_UNMAP,
    U64,
    DeviceHistory,
)

BEFORE = -1  # the birth of what was there when the recording began
SMALLEST_BLOCK = 512  # bytes: torch rounds every request up to a multiple


class Lives(msgspec.Struct, frozen=True):
    """One row an allocation. Births and deaths are events by number; who never died has their count."""

    born: I64
    died: I64
    asked: I64  # bytes, as the job asked for them
    held: I64  # bytes of its block: exact where it is alive at the end, else at the least
    address: U64
    stack: I32

    def __len__(self) -> int:
        return len(self.born)

    def alive_at(self, event: int) -> Bool:
        """Right after an event; -1 is before the first."""
        return (self.born <= event) & (self.died > event)


class Walk(msgspec.Struct, frozen=True):
    """One device from the beginning of the recording to its end. Totals are those after each event."""

    lives: Lives
    asked: I64
    held: I64
    reserved: I64
    off_by: int  # bytes that the walk ends away from what the segments say of themselves
    unpaired: int  # allocations or frees whose other half was not recorded, in the midst of others

    @property
    def peak(self) -> int:
        """The event after which most was alive; -1 where nothing was recorded."""
        return int(self.asked.argmax()) if len(self.asked) else -1


def walk(history: DeviceHistory) -> Walk:
    lives, unpaired = _lives(history)
    count = len(history.events)
    off_by = int(lives.asked[lives.alive_at(count - 1)].sum()) - int(history.segments.requested.sum())
    return Walk(
        lives,
        total(lives, lives.asked, count),
        total(lives, lives.held, count),
        reserved(history)[1:] if history.reserved is None else history.reserved,
        off_by,
        unpaired,
    )


def _lives(history: DeviceHistory) -> tuple[Lives, int]:
    events, blocks = history.events, history.blocks
    count = len(events)
    rows = np.flatnonzero(events.at(ALLOC, _free(history)))
    rows = rows[np.argsort(events.address[rows], kind="stable")]  # of each address, in the order of time
    is_birth = events.action[rows] == ALLOC
    address = events.address[rows]
    first = np.ones(len(rows), np.bool_)
    first[1:] = address[1:] != address[:-1]
    last = np.ones(len(rows), np.bool_)
    last[:-1] = first[1:]
    # Every birth is a life: until the next event of its address, which should be a death.
    births = np.flatnonzero(is_birth)
    died = np.full(len(births), count, np.int64)
    ends = ~last[births]
    died[ends] = rows[births[ends] + 1]
    # A death that no birth precedes is one too: from before, or from where the death before it was.
    lone = np.flatnonzero(~is_birth & (first | ~np.roll(is_birth, 1)))
    since = np.where(first[lone], BEFORE, rows[lone - 1])
    unpaired = int((ends & is_birth[np.minimum(births + 1, len(rows) - 1)]).sum()) + int((~first[lone]).sum())
    # What is alive at the end and was not born in the recording was there before.
    alive = np.flatnonzero(blocks.state != INACTIVE)
    open_at = rows[births[~ends]]
    block_of = _match(events.address[open_at], blocks.address[alive])
    held = _rounded(events.size[rows[births]])
    known = np.flatnonzero(~ends)[block_of >= 0]
    held[known] = blocks.size[alive[block_of[block_of >= 0]]]
    old = np.delete(alive, block_of[block_of >= 0])
    lives = Lives(
        np.concatenate([rows[births], since, np.full(len(old), BEFORE)]).astype(np.int64),
        np.concatenate([died, rows[lone], np.full(len(old), count)]).astype(np.int64),
        np.concatenate([events.size[rows[births]], events.size[rows[lone]], blocks.requested[old]]),
        np.concatenate([held, _rounded(events.size[rows[lone]]), blocks.size[old]]),
        np.concatenate([address[births], address[lone], blocks.address[old]]),
        np.concatenate([events.stack[rows[births]], np.full(len(lone), -1, np.int32), blocks.stack[old]]),
    )
    return lives, unpaired


def _free(history: DeviceHistory) -> int:
    """The event that ends a life: when no stream reads it any longer, where that was recorded."""
    action, awaiting = history.events.action, history.blocks.state == AWAITING_FREE
    if (action == FREE_COMPLETED).any():
        return FREE_COMPLETED
    # None is there because none came yet, where all that were asked for are still awaited.
    requested = int((action == FREE_REQUESTED).sum())
    return FREE_COMPLETED if 0 < requested <= int(awaiting.sum()) else FREE_REQUESTED


def _match(wanted: U64, among: U64) -> I64:
    """Where each address is among others; -1 where it is not."""
    if len(among) == 0:
        return np.full(len(wanted), -1, np.int64)
    order = np.argsort(among, kind="stable")
    place = np.minimum(np.searchsorted(among, wanted, sorter=order), len(among) - 1)
    found: I64 = np.where(among[order[place]] == wanted, order[place], -1)
    return found


def _rounded(sizes: I64) -> I64:
    return np.maximum(-(-sizes // SMALLEST_BLOCK), 1) * SMALLEST_BLOCK


def total(lives: Lives, sizes: I64, count: int) -> I64:
    """Bytes alive after each event."""
    change = np.zeros(count + 2, np.int64)  # what was there before comes first, what never died goes last
    np.add.at(change, lives.born + 1, sizes)
    np.subtract.at(change, lives.died + 1, sizes)
    return np.cumsum(change, out=change)[1 : count + 1]


def reserved(history: DeviceHistory) -> I64:
    """Bytes taken from the driver before the recording and after each event, counted back from what the
    segments hold at the end."""
    events = history.events
    change = np.zeros(len(events) + 1, np.int64)
    change[1:] += np.where(events.at(SEGMENT_ALLOC, SEGMENT_MAP), events.size, 0)
    change[1:] -= np.where(events.at(SEGMENT_FREE, SEGMENT_UNMAP), events.size, 0)
    after = np.cumsum(change)
    found: I64 = int(history.segments.total.sum()) - after[-1] + after
    return found
