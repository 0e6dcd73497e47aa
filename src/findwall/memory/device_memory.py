"""All that is known of one device's memory: its walk, the phases, the kind of each allocation."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt

from findwall.memory.call_stacks import CallStacks
from findwall.memory.lives import Walk, walk
from findwall.memory.memory_kinds import GRADIENTS, kinds
from findwall.memory.memory_phases import BACKWARD, FORWARD, Phases, phases
from findwall.model.events import Bool
from findwall.model.memory_history import HOST, I32, I64, CodeFrame, DeviceHistory, MemoryHistory


class DeviceMemoryFacts:
    """Worked out once, when asked for."""

    def __init__(
        self, whole: MemoryHistory, history: DeviceHistory, stacks: CallStacks | None = None
    ) -> None:
        self.history, self.stacks, self._marked = history, stacks or CallStacks(whole), whole.marked
        self._known = None if whole.known is None else whole.known.on(history.device)
        self.is_narrow = whole.is_narrow  # most products are of 16-bit numbers; None: nobody knows

    @cached_property
    def walk(self) -> Walk:
        return walk(self.history)

    @cached_property
    def phases(self) -> Phases:
        return phases(self.history, self.walk.lives, self.stacks, self._marked)

    @cached_property
    def kinds(self) -> npt.NDArray[np.uint8]:
        return kinds(self.walk.lives, self.phases, self.stacks, self._known)

    @cached_property
    def born_in(self) -> npt.NDArray[np.uint8]:
        """The phase in which each life began; unknown of what was there before."""
        stretch = self.phases.stretch_of(self.walk.lives.born)
        if len(self.phases.phase) == 0:
            return np.zeros(len(stretch), np.uint8)
        found: npt.NDArray[np.uint8] = np.where(stretch >= 0, self.phases.phase[np.maximum(stretch, 0)], 0)
        return found

    @cached_property
    def sums_in_parts(self) -> Bool:
        """Lives in which sums are added up: in fp32, and as large as the device has room for threads."""
        found: Bool = self.stacks.sums_in_parts[self.walk.lives.stack]
        return found

    @cached_property
    def is_scratch(self) -> Bool:
        """Lives that a library's function begins and ends itself: what it works in, and no result."""
        of, directly = self.stacks.libraries
        lives, stacks = self.walk.lives, self.history.events.stack
        died = np.where(lives.died < len(stacks), lives.died, 0)
        ended_in = np.where(lives.died < len(stacks), of[stacks[died]] if len(stacks) else -1, -1)
        found: Bool = directly[lives.stack] & (of[lives.stack] >= 0) & (of[lives.stack] == ended_in)
        return found

    @cached_property
    def lines(self) -> tuple[I32, list[CodeFrame]]:
        """The line of each life as a number, -1 where nobody knows it; and the lines."""
        of, lines = self.stacks.lines
        return of[self.walk.lives.stack], lines

    @property
    def peak(self) -> int:
        return self.walk.peak

    @cached_property
    def at_peak(self) -> Bool:
        return self.walk.lives.alive_at(self.peak)

    @cached_property
    def peak_bytes(self) -> int:
        """As requested. Where nothing was recorded, what the segments hold."""
        return int(self.walk.lives.asked[self.at_peak].sum())

    @cached_property
    def most_reserved(self) -> int:
        total = int(self.history.segments.total.sum())
        return max(int(self.walk.reserved.max()), total) if len(self.walk.reserved) else total

    @property
    def reserved_times(self) -> float:
        """How many times the peak was taken from the driver for it; on the host nothing is."""
        is_told = self.peak_bytes and self.history.device != HOST
        return max(self.most_reserved / self.peak_bytes, 1.0) if is_told else 1.0

    @cached_property
    def weights(self) -> I64:
        """Sizes of the gradients of one step; none where no backward pass was recorded as a whole."""
        stretch = self.phases.stretch_of(self.walk.lives.born)
        rows = np.flatnonzero((self.kinds == GRADIENTS) & np.isin(stretch, self.phases.whole_backwards))
        most = np.bincount(stretch[rows]).argmax() if len(rows) else -1
        found: I64 = self.walk.lives.asked[rows[stretch[rows] == most]]
        return found

    @property
    def trains(self) -> bool:
        """Whether a forward pass was recorded with the backward pass that follows it."""
        return bool(((self.phases.phase[:-1] == FORWARD) & (self.phases.phase[1:] == BACKWARD)).any())

    @cached_property
    def backward_starts(self) -> I64:
        """The first event of each backward pass: the same moment of every step."""
        found: I64 = self.phases.start[self.phases.phase == BACKWARD]
        return found


def device_memory(history: MemoryHistory) -> list[DeviceMemoryFacts]:
    """Every device, the one with the highest peak first."""
    stacks = CallStacks(history)
    found = [DeviceMemoryFacts(history, one, stacks) for one in history.devices]
    return sorted(found, key=lambda one: -one.peak_bytes)
