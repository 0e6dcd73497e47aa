"""A step that nobody recorded, made of what the job told when a request for memory failed.

Its weights and what an optimizer keeps of them are known. All else that was held is taken for activations, as
many more of them as the forward pass had still to come, in pieces that backward frees one by one.
"""

from __future__ import annotations

import numpy as np

from findwall.memory.device_memory import DeviceMemoryFacts
from findwall.model.answers.memory_answer import FailedModel, MemoryKind, OutOfMemory
from findwall.model.catalogue import MAJORITY_SHARE, NEAR
from findwall.model.memory_history import (
    ALLOC,
    ALLOCATED,
    BACKWARD_PASS,
    FORWARD_PASS,
    FREE_COMPLETED,
    HOST,
    KINDS,
    UPDATE_PASS,
    Blocks,
    DeviceHistory,
    KnownMemory,
    MemoryEvents,
    MemoryHistory,
    Segments,
)
from findwall.units import GIB

PIECES = 16  # of the activations, by hand: more make the steps of the curve smaller, and no peak another
# How much of what a pass takes is there when it fails in it, at the least and at the most, where nobody knows
# better: backward frees as it goes. By hand.
SEEN = {"forward": (MAJORITY_SHARE, 1.0), "backward": (NEAR, 1.0), "optimizer": (1.0, 1.0)}
MOST_GIB = 1 << 20  # of anything: more is damage
LEAST_SEEN = 0.1  # of a forward pass: from less nobody can tell the whole


def told_steps(oom: OutOfMemory, model: FailedModel) -> tuple[DeviceMemoryFacts, ...]:
    """The step with the fewest activations that it may have, and the one with the most; none where nothing is
    trained or the request was of no such step, or nobody knows what was asked for."""
    if oom.of_training is False or not model.weights or oom.asked_gib is None or oom.held_gib is None:
        return ()
    if any(
        not 0 <= gib <= MOST_GIB for gib in (oom.asked_gib, oom.held_gib, *(row.gib for row in oom.kinds))
    ):
        return ()
    shares = SEEN.get(oom.phase, SEEN["forward"])
    if oom.phase == "forward" and model.forward is not None and model.forward[0] >= LEAST_SEEN:
        shares = model.forward
    return tuple(_Told(oom, model, shares[at], at == 0).facts() for at in (1, 0))


class _Told:
    """One such step, as the allocator would have recorded it."""

    def __init__(self, oom: OutOfMemory, model: FailedModel, seen: float, is_most: bool) -> None:
        self._device = HOST if oom.device is None else oom.device
        self._rows: list[tuple[int, int, int, int]] = []  # action, address, bytes, pass
        self._blocks: list[tuple[int, int, MemoryKind]] = []  # address, bytes
        self._next = 1
        self._weights = [size for size, count in model.weights for _ in range(count)]
        kinds = {row.kind: int(row.gib * GIB) for row in oom.kinds}
        asked, rest = int((oom.asked_gib or 0.0) * GIB), kinds.get("unknown", 0)
        self._hold("parameters", [*self._weights, kinds.get("parameters", 0) - sum(self._weights)])
        self._hold("optimizer-state", self._state(model, kinds.get("optimizer-state", 0)))
        updates = oom.phase == "optimizer"
        stays = rest if updates else min(model.before, rest)  # activations are gone when an update begins
        self._hold("unknown", [stays])
        rest -= stays
        # What an update asks for is of its state, or passes.
        passing = model.passing if not updates or oom.state_gib is not None else max(asked, model.passing)
        self._is_most = is_most
        self._step(int((rest + (0 if updates else asked)) / max(seen, LEAST_SEEN)), passing)

    def _hold(self, kind: MemoryKind, sizes: list[int]) -> None:
        """From before the step, to its end."""
        for size in sizes:
            if size > 0:
                self._blocks.append((self._place(), size, kind))

    def _state(self, model: FailedModel, there: int) -> list[int]:
        """Of each weight as many whole copies as there are; complete, also where the first update is still
        to come."""
        total = sum(self._weights)
        times = max(model.state_times, there / total if total else 0.0)
        copies = int(times + MAJORITY_SHARE)
        if copies:
            return self._weights * copies
        return [int(size * times) for size in self._weights]

    def _step(self, activations: int, passing: int) -> None:
        pieces = [self._made(activations // PIECES, FORWARD_PASS) for _ in range(PIECES)]
        gradients = np.array_split(np.array(self._weights, np.int64), PIECES)
        for piece, sizes in zip(reversed(pieces), gradients, strict=True):
            # Its own gradient may be as large as a piece, and is there before that is freed.
            own = self._made(piece[1] if self._is_most else 1, BACKWARD_PASS)
            for size in sizes.tolist():
                self._made(size, BACKWARD_PASS)
            self._freed(piece, BACKWARD_PASS)
            self._freed(own, BACKWARD_PASS)
        self._freed(self._made(max(passing, 1), UPDATE_PASS), UPDATE_PASS)

    def _place(self) -> int:
        self._next += 1
        return self._next

    def _made(self, size: int, during: int) -> tuple[int, int]:
        place = self._place()
        self._rows.append((ALLOC, place, size, during))
        return place, size

    def _freed(self, one: tuple[int, int], during: int) -> None:
        self._rows.append((FREE_COMPLETED, *one, during))

    def facts(self) -> DeviceMemoryFacts:
        action, address, size, passes = (np.array(column) for column in zip(*self._rows, strict=True))
        none = np.full(len(action), -1, np.int32)
        columns = action.astype(np.uint8), address.astype(np.uint64), size.astype(np.int64)
        events = MemoryEvents(*columns, none.astype(np.int64), none)
        history = DeviceHistory(self._device, events, _nothing(), self._held(), passes.astype(np.uint8))
        whole = MemoryHistory("", (history,), [], [], known=self._known())
        return DeviceMemoryFacts(whole, history)

    def _held(self) -> Blocks:
        places, sizes, _ = zip(*self._blocks, strict=True)
        count = len(places)
        size, stack = np.array(sizes, np.int64), np.full(count, -1, np.int32)
        states = np.full(count, ALLOCATED, np.uint8)
        return Blocks(np.zeros(count, np.int32), np.array(places, np.uint64), size, size, states, stack)

    def _known(self) -> KnownMemory:
        mine = [one for one in self._blocks if one[2] != "unknown"]
        places, sizes, kinds = zip(*mine, strict=True)
        return KnownMemory(
            np.array(places, np.uint64),
            np.array(sizes, np.int64),
            np.array([KINDS.index(kind) for kind in kinds], np.uint8),
            np.full(len(mine), self._device, np.int32),
        )


def _nothing() -> Segments:
    """Of what the driver gave nothing is said."""
    none, no = np.zeros(0, np.int64), np.zeros(0, np.bool_)
    return Segments(none.astype(np.uint64), none, none, none, no)
