"""Activation checkpointing by block: of each block its output stays, the rest comes back in backward."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from findwall.memory.device_memory import DeviceMemoryFacts
from findwall.memory.memory_kinds import ACTIVATIONS, TEMPORARIES
from findwall.memory.memory_ladder import Rung, rung
from findwall.memory.memory_phases import BACKWARD, FORWARD
from findwall.memory.played_memory import played
from findwall.memory.repeated import Blocks, repeated_blocks
from findwall.model.memory_history import I64

ALLOCATIONS = frozenset(("empty", "empty_like", "empty_memory_format", "empty_strided", "resize_"))
SUMS = frozenset(("sum", "sum_dim_IntList"))  # over what was broadcast, a bias over its rows
FORWARD_AGAIN = 1 / 3  # of the step: backward costs two forwards


def _checkpoint(facts: DeviceMemoryFacts) -> Iterator[Rung]:
    blocks = repeated_blocks(facts)
    if blocks is None:
        return
    lives = facts.walk.lives
    rows = np.concatenate(blocks.rows)
    lengths = [len(one) for one in blocks.rows]
    starts = np.cumsum([0, *lengths[:-1]])
    died = lives.died.copy()
    died[rows] = np.minimum(died[rows], np.repeat(blocks.ends, lengths))
    for row, block in blocks.handed:
        died[row] = lives.died[blocks.rows[block]].max()
    # All of a block is there again when backward first asks for some of it.
    asked, done = _read(facts, lives.died[rows])
    back = np.repeat(np.minimum.reduceat(asked, starts), lengths)
    given = played(facts).living(lives.born, died).and_also(back, done, lives.asked[rows])
    # While it comes back, so does what its forward made and gave back.
    at = back[starts]
    given = given.and_also(at, at + 1, _beside(facts, blocks))
    yield rung(
        "checkpoint-blocks",
        given.peak,
        price="time",
        longer=FORWARD_AGAIN,
        line=blocks.line,
        count=blocks.times,
        module=blocks.module,
    )


def _read(facts: DeviceMemoryFacts, freed: I64) -> tuple[I64, I64]:
    """When an op of backward asks for what is freed at these events, and when it is done with it. It has all
    that it reads before it makes anything. What is computed again is gone when it is done: before autograd
    sums up what the op made. Where ops are not known, both are when it is freed."""
    lives, stacks = facts.walk.lives, facts.stacks
    made = np.flatnonzero(facts.born_in == BACKWARD)
    made = made[np.argsort(lives.born[made], kind="stable")]
    ends = np.sort(lives.died[facts.kinds == ACTIVATIONS])  # ops before it have freed theirs
    asked, done = freed.copy(), freed.copy()
    for at, event in enumerate(freed.tolist()):
        last = int(np.searchsorted(ends, event)) - 1
        since = int(ends[last]) if last >= 0 else -1
        mine = made[slice(*np.searchsorted(lives.born[made], (since, event)).tolist())].tolist()
        while mine and stacks.ops(int(lives.stack[mine[-1]])) & SUMS:
            done[at] = lives.born[mine.pop()]
        ops = stacks.ops(int(lives.stack[mine[-1]])) - ALLOCATIONS if mine else frozenset()
        for row in reversed(mine):
            if not ops & stacks.ops(int(lives.stack[row])):
                break
            asked[at] = lives.born[row] - 1
    return asked, done


def _beside(facts: DeviceMemoryFacts, blocks: Blocks) -> I64:
    """By how much each block's forward takes more, at its most, than what backward waits for."""
    lives = facts.walk.lives
    passing = np.flatnonzero((facts.kinds == TEMPORARIES) & (facts.born_in == FORWARD))
    passing = passing[np.argsort(lives.born[passing], kind="stable")]
    born = lives.born[passing]
    found = []
    seen: dict[bytes, int] = {}  # blocks of a stack, and of every step, are alike
    for rows, start, end in zip(blocks.rows, blocks.starts, blocks.ends, strict=True):
        first, after = np.searchsorted(born, (start - 1, end + 1))
        made = np.concatenate([rows, passing[first:after]])
        # What happens behind the forward pass makes nothing larger in it.
        time = np.minimum(np.concatenate([lives.born[made], lives.died[made]]), end + 1) - start
        change = np.concatenate([lives.asked[made], -lives.asked[made]])
        key = np.concatenate([time, change, [len(rows)]]).tobytes()
        if key not in seen:
            most = np.cumsum(
                change[np.lexsort((change, time))]
            ).max()  # what dies at an event is gone after it
            seen[key] = max(int(most) - int(lives.asked[rows].sum()), 0)
        found.append(seen[key])
    return np.array(found, np.int64)


PATCHES = {"checkpoint-blocks": "x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)"}
RUNGS = (_checkpoint,)
