"""Blocks of a model that are alike: the same calls again and again in one forward pass."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import numpy as np
import numpy.typing as npt

from findwall.memory.autocast_ops import STATISTICS
from findwall.memory.device_memory import DeviceMemoryFacts
from findwall.memory.memory_kinds import ACTIVATIONS, TEMPORARIES
from findwall.memory.memory_phases import BACKWARD, FORWARD
from findwall.model.memory_history import I64, ModuleCalls

FEWEST = 3  # blocks: two calls of one function are no stack of layers


class Blocks(msgspec.Struct, frozen=True):
    """What of each block backward waits for, but its output, and the events at which it begins and ends."""

    rows: list[I64]
    starts: list[int]
    ends: list[int]
    times: int  # blocks of one forward pass
    line: int
    module: str = ""  # whose calls they are, where that is known
    # What a block is given and backward waits for only where blocks are computed again; and which block.
    handed: tuple[tuple[int, int], ...] = ()


def repeated_blocks(facts: DeviceMemoryFacts) -> Blocks | None:
    """Those whose calls were recorded, else those that stacks show."""
    if facts.history.calls is not None:
        return _called(facts, facts.history.calls)
    return _seen(facts)


def _called(facts: DeviceMemoryFacts, calls: ModuleCalls) -> Blocks | None:
    """Calls of one module's class, one after the other, in which most of the activations are made: of several
    ways the one with the fewest calls, which are the largest."""
    lives, phases = facts.walk.lives, facts.phases
    waiting = np.flatnonzero(facts.kinds == ACTIVATIONS)
    waiting = waiting[np.argsort(lives.born[waiting], kind="stable")]
    made = np.concatenate([[0], np.cumsum(lives.asked[waiting])])
    stretch = phases.stretch_of(
        calls.last
    )  # a forward is told by its first activation, and a call may begin before
    forward = np.flatnonzero(phases.phase[np.maximum(stretch, 0)] == FORWARD)
    within = [np.searchsorted(lives.born[waiting], at) for at in (calls.first, calls.last + 1)]
    held = made[within[1]] - made[within[0]]
    best: tuple[int, I64] | None = None
    for way in np.unique(calls.way[forward]).tolist():
        mine = forward[calls.way[forward] == way]
        times = int(np.bincount(stretch[mine]).max())
        if times >= FEWEST and 2 * held[mine].sum() >= made[-1] and (best is None or times < best[0]):
            best = times, mine
    if best is None:
        return None
    chosen = best[1][np.argsort(calls.first[best[1]], kind="stable")]
    around = _Around(facts)
    rows: list[I64] = []
    starts: list[int] = []
    ends: list[int] = []
    handed: list[tuple[int, int]] = []
    for one in chosen.tolist():
        block = waiting[within[0][one] : within[1][one]]
        if len(block) < 2:
            continue
        start, end = int(calls.first[one]), int(calls.last[one])
        if not around.returns_more(start, end):
            block = np.delete(block, _last_made(facts, block))
        if (given := around.given(start)) >= 0:
            handed.append((given, len(rows)))
        rows.append(block)
        starts.append(start)
        ends.append(end)
    if not rows:
        return None
    line = int(facts.lines[0][rows[0][0]])
    return Blocks(rows, starts, ends, best[0], line, calls.names[int(calls.way[chosen[0]])], tuple(handed))


class _Around:
    """What of the forward passes is there around a call."""

    def __init__(self, facts: DeviceMemoryFacts) -> None:
        lives = facts.walk.lives
        self._facts = facts
        rows = np.flatnonzero(facts.born_in == FORWARD)
        self._rows = rows[np.argsort(lives.born[rows], kind="stable")]
        self._born, self._died = lives.born[self._rows], lives.died[self._rows]
        self._passes = facts.kinds[self._rows] == TEMPORARIES
        self._starts = facts.phases.start

    def returns_more(self, first: int, last: int, until: int | None = None) -> bool:
        """Whether a call makes and leaves, `until` something else is made of it, what backward does not wait
        for: then that is its result."""
        made = slice(*np.searchsorted(self._born, (first, last + 1)).tolist())
        return bool((self._passes[made] & (self._died[made] > (last if until is None else until))).any())

    def made(self, first: int, end: int) -> int:
        """How many tensors are made from one event up to another."""
        return int(np.diff(np.searchsorted(self._born, (first, end)))[0])

    def before(self, event: int, count: int) -> int:
        """The event that makes the first of so many tensors that are made before another event."""
        return int(self._born[max(int(np.searchsorted(self._born, event)) - count, 0)])

    def given(self, start: int) -> int:
        """What the last op before a call made first, if it is there and backward does not wait for it."""
        stretch = int(np.searchsorted(self._starts, start, side="right")) - 1
        of_pass = slice(*np.searchsorted(self._born, (self._starts[max(stretch, 0)], start)).tolist())
        there = np.flatnonzero(self._died[of_pass] > start) + of_pass.start
        if len(there) == 0:
            return -1
        made = int(there[_last_made(self._facts, self._rows[there])])
        return int(self._rows[made]) if self._passes[made] else -1


def _last_made(facts: DeviceMemoryFacts, block: I64) -> int:
    """The place of the result in what a block makes: the first that its last op makes, which is larger than
    the means and deviations that a norm makes beside it."""
    lives, stacks = facts.walk.lives, facts.stacks
    stack, asked = lives.stack[block], lives.asked[block]
    same = stack == stack[-1]
    place = int(np.flatnonzero(~same)[-1]) + 1 if not same.all() else len(block) - 1
    while place and asked[place] < asked[place - 1]:
        if not stacks.ops(int(stack[place])) & stacks.ops(int(stack[place - 1])) & STATISTICS:
            break
        place -= 1
    return place


def _seen(facts: DeviceMemoryFacts) -> Blocks | None:
    """Of every forward pass with a backward: the calls that most of its activations' bytes repeat in step.

    A stack names the way to an op, and it is the same in every block of a loop. So the fewest times that
    most bytes repeat in is the number of blocks, and the first stack of them is where blocks begin.
    """
    lives, phases = facts.walk.lives, facts.phases
    waiting = np.flatnonzero(facts.kinds == ACTIVATIONS)
    waiting = waiting[np.argsort(lives.born[waiting], kind="stable")]
    born = lives.born[waiting]
    around = _Around(facts)
    found = Blocks([], [], [], 0, -1)
    for at in np.flatnonzero(phases.phase[:-1] == FORWARD).tolist():
        if phases.phase[at + 1] != BACKWARD:
            continue
        made = slice(*np.searchsorted(born, (phases.start[at], phases.end(at))).tolist())
        mine = waiting[made]
        starts = _starts(lives.stack[mine], lives.asked[mine])
        if starts is not None:
            found = _with_pass(facts, around, found, mine, starts)
    return found if found.rows else None


def _with_pass(
    facts: DeviceMemoryFacts, around: _Around, found: Blocks, mine: I64, starts: list[int]
) -> Blocks:
    """And the blocks of one more pass, whose first activations are at these places among its own. A block
    begins when all is made that backward waits for of the one before it, and the last has as many as that."""
    born = facts.walk.lives.born[mine]
    places = [*starts, min(2 * starts[-1] - starts[-2], len(mine))]
    ends = (born[np.array(places[1:]) - 1] + 1).tolist()
    until = int(born[starts[1]]) - ends[0]  # the next block has made its first
    first = around.before(int(born[starts[0]]), around.made(ends[0], int(born[starts[1]])))
    rows, begun, ended, handed = [*found.rows], [*found.starts], [*found.ends], [*found.handed]
    for (start, following), begins, end in zip(pairwise(places), [first, *ends], ends, strict=False):
        block = mine[start:following]
        if len(block) < 2:
            continue
        if not around.returns_more(begins, end - 1, end + until):
            block = np.delete(block, _last_made(facts, block))
        if (given := around.given(begins)) >= 0:
            handed.append((given, len(rows)))
        rows.append(block)
        begun.append(begins)
        ended.append(end)
    line = int(facts.lines[0][mine[starts[0]]])
    return Blocks(rows, begun, ended, max(found.times, len(starts)), line, handed=tuple(handed))


def _starts(stacks: npt.NDArray[np.int32], sizes: I64) -> list[int] | None:
    """Where each block begins, as places in this list; None where nothing repeats."""
    _, which, counts = np.unique(stacks, return_inverse=True, return_counts=True)
    times = counts[which]
    weight = {count: int(sizes[times == count].sum()) for count in np.unique(times).tolist()}
    # A block may call one layer twice: what comes twice as often is of it as well.
    often = next((count for count in weight if _fills(weight, count, int(sizes.sum()))), 0)
    if not often:
        return None
    first = int((times % often == 0).argmax())
    places: list[int] = np.flatnonzero(stacks == stacks[first]).tolist()
    return places[:: len(places) // often]


def _fills(weight: dict[int, int], often: int, whole: int) -> bool:
    """Whether what comes so often, or a whole number of times as often, is most of it."""
    mine = sum(size for count, size in weight.items() if count % often == 0)
    return often >= FEWEST and 2 * mine >= whole
