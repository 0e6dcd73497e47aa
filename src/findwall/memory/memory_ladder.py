"""What would make the peak smaller: the recorded steps played again with sizes and lives changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec
import numpy as np

from findwall.memory.device_memory import DeviceMemoryFacts
from findwall.memory.lives import Lives, Mask, total
from findwall.memory.memory_kinds import ACTIVATIONS, GRADIENTS, INPUTS, KEPT, PARAMETERS, TEMPORARIES
from findwall.memory.memory_phases import BACKWARD, FORWARD, OPTIMIZER
from findwall.memory.repeated import repeated_blocks
from findwall.memory.written_out_attention import written_out
from findwall.model.memory_history import I64

WORTH_A_RUNG = 0.01  # of the peak: less is within what a prediction misses


class Rung(msgspec.Struct, frozen=True):
    """A change and the peak it leaves, in bytes as requested."""

    fix: str
    low: int
    mid: int
    high: int
    slower: bool = False  # it costs time
    line: int = -1  # of the job that it concerns; -1: nobody knows it
    count: int = 0  # of what it concerns: blocks, attentions, parts of a batch


def ladder(facts: DeviceMemoryFacts) -> list[Rung]:
    """Changes that make the peak smaller: those that cost no time first, then by what they give."""
    if not facts.phases.is_known:
        return []
    most = (1.0 - WORTH_A_RUNG) * facts.peak_bytes
    found = [rung for make in RUNGS for rung in make(facts) if rung.high <= most]
    return sorted(found, key=lambda one: (one.slower, one.mid))


def peak_of(lives: Lives, count: int) -> int:
    return int(total(lives, lives.asked, count).max()) if count else 0


def _without(facts: DeviceMemoryFacts, rows: Mask) -> int:
    """The peak, if these had never been."""
    return _sized(facts, np.where(rows, 0, facts.walk.lives.asked))


def _sized(facts: DeviceMemoryFacts, asked: I64) -> int:
    return peak_of(msgspec.structs.replace(facts.walk.lives, asked=asked), facts.phases.count)


def _sdpa(facts: DeviceMemoryFacts) -> Iterator[Rung]:
    found = written_out(facts)
    if found is not None:
        # A fused backward works in tiles as well.
        low = _without(facts, found.matrices | found.in_backward)
        yield Rung("sdpa", low, low, _without(facts, found.matrices), line=found.line, count=found.times)


def _checkpoint(facts: DeviceMemoryFacts) -> Iterator[Rung]:
    """Of each block its output stays; the rest is freed, and comes back when backward reaches the block."""
    blocks = repeated_blocks(facts)
    if blocks is None:
        return
    lives = facts.walk.lives
    rows = np.concatenate(blocks.rows)
    lengths = [len(one) for one in blocks.rows]
    starts = np.cumsum([0, *lengths[:-1]])
    until = lives.died.copy()
    until[rows] = np.minimum(until[rows], np.repeat(blocks.ends, lengths))
    # All of a block is there again from when backward frees the first of it.
    back = np.repeat(np.minimum.reduceat(lives.died[rows], starts), lengths)
    once = msgspec.structs.replace(lives, died=until)
    again = Lives(
        back, lives.died[rows], lives.asked[rows], lives.held[rows], lives.address[rows], lives.stack[rows]
    )
    peak = peak_of(_together([once, again]), facts.phases.count)
    yield Rung("checkpoint-blocks", peak, peak, peak, slower=True, line=blocks.line, count=blocks.times)


def _together(parts: list[Lives]) -> Lives:
    columns = zip(*(msgspec.structs.astuple(part) for part in parts), strict=True)
    return Lives(*(np.concatenate(column) for column in columns))


def _smaller_batch(facts: DeviceMemoryFacts) -> Iterator[Rung]:
    """Half the batch: what follows it is halved. A temporary as large as a gradient is one of a weight."""
    if not (facts.kinds == GRADIENTS).any():
        return
    low, mid, high = (_sized(facts, sizes) for sizes in batch_sizes(facts, 0.5))
    yield Rung("smaller-batch", low, mid, high, count=2)
    # In parts, the gradients of the first part are there while the second is computed.
    lives = facts.walk.lives
    grads = np.flatnonzero((facts.kinds == GRADIENTS) & (lives.born >= 0))
    before = facts.phases.stretch_of(lives.born[grads]) - 1
    born = lives.born.copy()
    born[grads] = np.where(before >= 0, facts.phases.start[before], -1)
    longer = msgspec.structs.replace(lives, born=born)
    low, mid, high = (
        peak_of(msgspec.structs.replace(longer, asked=sizes), facts.phases.count)
        for sizes in batch_sizes(facts, 0.5)
    )
    yield Rung("accumulate-gradients", low, mid, high, slower=True, count=2)


def batch_sizes(facts: DeviceMemoryFacts, factor: float) -> tuple[I64, I64, I64]:
    """The sizes of all lives with so much of a batch: at the least, most likely and at the most."""
    lives, kinds = facts.walk.lives, facts.kinds
    follows = np.isin(kinds, (ACTIVATIONS, INPUTS, KEPT))
    passing = (kinds == TEMPORARIES) & np.isin(facts.born_in, (FORWARD, BACKWARD))
    of_weights = np.isin(lives.asked, np.unique(lives.asked[np.isin(kinds, (GRADIENTS, PARAMETERS))]))
    masks = (follows | passing, follows | (passing & ~of_weights), follows)
    least, likely, most = (
        np.where(mask, (lives.asked * factor).astype(np.int64), lives.asked) for mask in masks
    )
    return (least, likely, most) if factor <= 1 else (most, likely, least)


def _fused_optimizer(facts: DeviceMemoryFacts) -> Iterator[Rung]:
    """One kernel for all of the step: nothing in between is written down."""
    passing = (facts.kinds == TEMPORARIES) & (facts.born_in == OPTIMIZER)
    if passing.any():
        low = _without(facts, passing)
        of, _ = facts.lines
        size = np.bincount(of[passing] + 1, facts.walk.lives.asked[passing])
        yield Rung("fused-optimizer", low, low, low, line=int(size.argmax()) - 1)


RUNGS: tuple[Callable[[DeviceMemoryFacts], Iterator[Rung]], ...] = (
    _sdpa,
    _fused_optimizer,
    _checkpoint,
    _smaller_batch,
)
