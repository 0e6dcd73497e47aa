"""What each allocation is, by when it is born and when it dies; never by its size alone.

Born in backward and alive after it: a gradient. Born in forward and freed by backward: an activation. Born
in the optimizer's step and alive after it: its state. What was there before is told by whole copies of the
gradients' sizes: the first is the parameters, the others are the optimizer's. Where the job itself said what
lies at an address, that is what it is.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import numpy.typing as npt

from findwall.memory.call_stacks import CallStacks
from findwall.memory.lives import BEFORE, Lives
from findwall.memory.memory_phases import BACKWARD, FORWARD, OPTIMIZER, SET_UP, Phases
from findwall.model.events import Bool
from findwall.model.memory_history import I64, KINDS, U64, KnownMemory

(
    NOT_KNOWN,
    PARAMETERS,
    GRADIENTS,
    STATE,
    ACTIVATIONS,
    INPUTS,
    TEMPORARIES,
    WORKSPACE,
    KEPT,
    BEFORE_RECORDING,
) = range(len(KINDS))
# What cuBLAS is given by torch to work in: 8 MiB and 16 buffers of 8 KiB, on Hopper and later 32 MiB. One a
# thread and stream, taken once and never given back.
WORKSPACE_BYTES = (8_519_680, 33_554_432)
Codes = npt.NDArray[np.uint8]


def kinds(lives: Lives, phases: Phases, stacks: CallStacks, known: KnownMemory | None = None) -> Codes:
    """The kind of each life. `known`: what the job says of what is alive at the end, on this device."""
    found = _Sorting(lives, phases, stacks).found
    if known is not None:
        told = _set_known(found, lives, known, lives.died >= phases.count)
        if known.tells_all_state:
            _leave_told_state(found, lives, told, lives.died >= phases.count)
    return found


def _set_known(found: Codes, lives: Lives, known: KnownMemory, alive: Bool) -> I64:
    """Where several lie in one block, as in the flat buffers of sharded models, it is what most of it is.
    Returns the lives that the job told of."""
    rows = np.flatnonzero(alive)
    rows = rows[np.argsort(lives.address[rows], kind="stable")]
    if len(rows) == 0 or len(known) == 0:
        return rows[:0]
    start = lives.address[rows]
    at = np.searchsorted(start, known.address, side="right") - 1
    inside = at >= 0
    inside &= known.address - start[np.maximum(at, 0)] < lives.held[rows[np.maximum(at, 0)]].astype(np.uint64)
    held = np.zeros((len(rows), len(KINDS)), np.int64)
    np.add.at(held, (at[inside], known.kind[inside]), known.size[inside])
    told = held.any(axis=1)
    found[rows[told]] = held[told].argmax(axis=1)
    return rows[told]


def _leave_told_state(found: Codes, lives: Lives, told: I64, alive: Bool) -> None:
    """What merely outlives the optimizer's step is not its state, where the job told all that is. Some make
    it anew in every step: what was freed is as large as what it holds now."""
    guessed = found == STATE
    guessed[told] = False
    was_state = ~alive & np.isin(lives.asked, lives.asked[told[found[told] == STATE]])
    other = np.where(alive, KEPT, INPUTS)
    other[lives.born == BEFORE] = BEFORE_RECORDING
    found[guessed & ~was_state] = other[guessed & ~was_state]


def holder(lives: Lives, event: int, address: U64) -> I64:
    """The life that holds each address right after an event; -1 where none does."""
    alive = np.flatnonzero(lives.alive_at(event))
    if len(alive) == 0:
        return np.full(len(address), -1, np.int64)
    alive = alive[np.argsort(lives.address[alive], kind="stable")]
    place = np.searchsorted(lives.address[alive], address, side="right") - 1
    row = alive[np.maximum(place, 0)]
    holds = (place >= 0) & (address < lives.address[row] + lives.held[row].astype(np.uint64))
    return np.where(holds, row, -1)


class _Sorting:
    def __init__(self, lives: Lives, phases: Phases, stacks: CallStacks) -> None:
        self._lives, self._phases, self._stacks = lives, phases, stacks
        self.found = np.zeros(len(lives), np.uint8)
        self.found[lives.born == BEFORE] = BEFORE_RECORDING
        if not phases.is_known:
            return
        self._stretch, self._end = phases.stretch_of(lives.born), phases.stretch_of(lives.died)
        self._phase = self._phases_of(self._stretch)
        self._never_dies = lives.died >= phases.count
        self._as_large_as_one: Bool = np.isin(lives.asked, WORKSPACE_BYTES)
        self._backward()
        self._forward()
        self._optimizer()
        self._workspaces(stacks.takes_workspace[lives.stack], INPUTS, ACTIVATIONS, NOT_KNOWN)
        self._standing()
        # Where no C++ was recorded: of that size, and no other of it is of the model.
        of_model = np.isin(self.found, (PARAMETERS, STATE))
        alike = np.isin(lives.asked, np.unique(lives.asked[of_model]))
        self._workspaces(self._as_large_as_one & ~alike)

    def _phases_of(self, stretch: I64) -> Codes:
        known = (stretch >= 0) & (stretch < len(self._phases.phase))
        found: Codes = np.where(known, self._phases.phase[np.where(known, stretch, 0)], 0)
        return found

    def _backward(self) -> None:
        born = self._phase == BACKWARD
        self.found[born] = np.where(self._end[born] == self._stretch[born], TEMPORARIES, GRADIENTS)

    def _forward(self) -> None:
        """What the next backward frees is an activation, and so is what a backward still to come may want."""
        born = self._phase == FORWARD
        backwards = np.flatnonzero(self._phases.phase == BACKWARD)
        following = np.searchsorted(backwards, self._stretch)
        has_next = following < len(backwards)
        freed_by = self._phases_of(self._end)
        for_backward = born & np.where(has_next, freed_by == BACKWARD, self._never_dies)
        self.found[for_backward] = ACTIVATIONS
        outlives = born & ~for_backward & has_next
        outlives &= (
            self._end > backwards[np.minimum(following, max(len(backwards) - 1, 0))]
            if len(backwards)
            else False
        )
        self.found[born & ~for_backward] = TEMPORARIES
        first = self._first_births(for_backward)
        self.found[outlives] = np.where(
            self._lives.born[outlives] < first[self._stretch[outlives]], INPUTS, KEPT
        )

    def _first_births(self, rows: Bool) -> I64:
        """The first birth among these, in each stretch."""
        first = np.full(len(self._phases.start), np.iinfo(np.int64).max)
        np.minimum.at(first, self._stretch[rows], self._lives.born[rows])
        return first

    def _optimizer(self) -> None:
        born = self._phase == OPTIMIZER
        self.found[born] = np.where(self._end[born] == self._stretch[born], TEMPORARIES, STATE)
        # Nobody marked a step: what follows a backward may be the next batch as well.
        unmarked = born & (self.found == STATE) & ~self._stacks.updates[self._lives.stack]
        sizes = np.unique(self._lives.asked[self.found == GRADIENTS])
        self.found[unmarked & ~np.isin(self._lives.asked, sizes)] = INPUTS

    def _standing(self) -> None:
        """What was there before the first forward, by whole copies of the gradients."""
        lives = self._lives
        standing = ((lives.born == BEFORE) | (self._phase == SET_UP)) & (self.found != WORKSPACE)
        self.found[standing & (lives.born != BEFORE)] = np.where(self._never_dies, KEPT, INPUTS)[
            standing & (lives.born != BEFORE)
        ]
        whole = self._phases.whole_backwards
        if len(whole) == 0:
            self._forward_alone(standing)
            return
        wanted = self._wanted(standing, (self.found == GRADIENTS) & (self._stretch == whole[0]))
        early = standing & (self._end < whole[0])  # freed before the first backward: of the step before
        self._copies(early, wanted, (GRADIENTS,), 1)
        copies = self._copies(standing & ~early, wanted, (PARAMETERS, STATE))
        # In half precision an optimizer often keeps its own in full.
        twice = Counter({2 * size: count for size, count in wanted.items()})
        if copies and not twice.keys() & wanted.keys():
            self._copies(standing & ~early & (self.found == BEFORE_RECORDING), twice, (STATE,))

    def _wanted(self, standing: Bool, gradients: Bool) -> Counter[int]:
        """The sizes of the gradients of a pass. The first pass also takes workspaces: without C++ they look
        like gradients that stay, and no weight is as large."""
        wanted = Counter(self._lives.asked[gradients].tolist())
        if self._times(standing, wanted):
            return wanted
        return Counter(self._lives.asked[gradients & ~(self._as_large_as_one & self._never_dies)].tolist())

    def _times(self, among: Bool, wanted: Counter[int]) -> int:
        there = Counter(self._lives.asked[among].tolist())
        return min((there[size] // count for size, count in wanted.items()), default=0)

    def _forward_alone(self, standing: Bool) -> None:
        """Without a whole backward: what was made before the first forward and stays."""
        self.found[standing & (self._phase == SET_UP) & self._never_dies] = PARAMETERS

    def _copies(
        self, among: Bool, wanted: Counter[int], named: tuple[int, ...], most: int | None = None
    ) -> int:
        """Name so many whole copies of these sizes as there are; how many there were."""
        rows = np.flatnonzero(among)
        rows = rows[np.argsort(self._lives.born[rows], kind="stable")]  # a model is made before its batches
        copies = self._times(among, wanted)
        copies = copies if most is None else min(copies, most)
        seen: Counter[int] = Counter()
        for row in rows if copies else ():
            size = int(self._lives.asked[row])
            copy = seen[size] // wanted[size] if wanted[size] else copies
            if copy < copies:
                seen[size] += 1
                self.found[row] = named[min(copy, len(named) - 1)]
        return copies

    def _workspaces(self, taken: Bool, *more: int) -> None:
        """Taken once and never given back, for products of matrices."""
        kept = np.isin(self.found, (GRADIENTS, KEPT, BEFORE_RECORDING, *more))
        self.found[taken & self._never_dies & kept] = WORKSPACE
