"""Blocks of a model that are alike: the same calls again and again in one forward pass."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import msgspec
import numpy as np

from findwall.memory.device_memory import DeviceMemoryFacts
from findwall.memory.memory_kinds import ACTIVATIONS
from findwall.memory.memory_phases import BACKWARD, FORWARD
from findwall.model.memory_history import I64

FEWEST = 3  # blocks: two calls of one function are no stack of layers


class Blocks(msgspec.Struct, frozen=True):
    """Activations of each block but its output, and the event before which the block has ended."""

    rows: list[I64]
    ends: list[int]
    times: int  # blocks of one forward pass
    line: int


def repeated_blocks(facts: DeviceMemoryFacts) -> Blocks | None:
    """Of every forward pass with a backward: the calls that most of its activations' bytes repeat in step.

    A stack names the way to an op, and it is the same in every block of a loop: so the stacks that come as
    often as most bytes do are a block's, and the first of them is where blocks begin.
    """
    lives, phases = facts.walk.lives, facts.phases
    waiting = np.flatnonzero(facts.kinds == ACTIVATIONS)
    waiting = waiting[np.argsort(lives.born[waiting], kind="stable")]
    born = lives.born[waiting]
    rows, ends, times, line = [], [], 0, -1
    for at in np.flatnonzero(phases.phase[:-1] == FORWARD).tolist():
        if phases.phase[at + 1] != BACKWARD:
            continue
        mine = waiting[slice(*np.searchsorted(born, (phases.start[at], phases.end(at))).tolist())]
        found = _starts(lives.stack[mine].tolist(), lives.asked[mine].tolist())
        if found is None:
            continue
        edges = lives.born[mine[found]].tolist()
        edges.append(_last_end(mine, found, lives.born, phases.end(at)))
        for start, end in pairwise(edges):
            block = mine[slice(*np.searchsorted(lives.born[mine], (start, end)).tolist())]
            if len(block) > 1:
                rows.append(block[:-1])  # the last is what the next block reads
                ends.append(end - 1)
        times = max(times, len(found))
        line = int(facts.lines[0][mine[found[0]]])
    return Blocks(rows, ends, times, line) if rows else None


def _starts(stacks: list[int], sizes: list[int]) -> list[int] | None:
    """Where each block begins, as places in this list; None where nothing repeats."""
    times = Counter(stacks)
    weight: Counter[int] = Counter()
    for stack, size in zip(stacks, sizes, strict=True):
        weight[times[stack]] += size
    often = max((count for count in weight if count >= FEWEST), key=lambda count: weight[count], default=0)
    if not often or 2 * weight[often] < sum(sizes):
        return None
    first = next(stack for stack in stacks if times[stack] == often)
    return [place for place, stack in enumerate(stacks) if stack == first]


def _last_end(rows: I64, starts: list[int], born: I64, end: int) -> int:
    """The last block has as many activations as the one before it."""
    length = starts[-1] - starts[-2]
    after = starts[-1] + length
    return int(born[rows[after]]) if after < len(rows) else end
