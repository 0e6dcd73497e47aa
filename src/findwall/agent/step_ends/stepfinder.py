"""Where a step ends, in a job that marks none.

What ends a step, best first: a call that says so, an optimizer's step, the outermost module's forward call,
the replay of a CUDA graph, a batch from the data loader, the end of a no_grad region, a turn of the job's own
loop. A better kind takes over whenever it shows up; a poorer one is believed only after a while in which no
better one did.
"""

from __future__ import annotations

import enum
import weakref
from collections.abc import Hashable, Set
from typing import Any

from findwall.agent.timing.warmup import LONG_STEP_NS


class StepEnd(enum.IntEnum):
    """What may end a step, best first."""

    EXPLICIT = 0
    OPTIMIZER = 1
    FORWARD = 2
    REPLAY = 3
    LOADER = 4
    REGION = 5
    LOOP = 6

    @property
    def label(self) -> str:
        return ("explicit", "optimizer", "forward", "graph-replay", "loader", "no-grad-region", "loop")[self]


MANY_MARKS = 16  # chosen by hand
# Marks of a kind to see, with none of a better kind, before it is believed.
PATIENCE = {
    StepEnd.EXPLICIT: 0,
    StepEnd.OPTIMIZER: 0,
    StepEnd.FORWARD: 6,
    StepEnd.REPLAY: MANY_MARKS,
    StepEnd.LOADER: MANY_MARKS,
    StepEnd.REGION: MANY_MARKS,
    StepEnd.LOOP: 0,  # many turns were seen before it is marked at all
}
PATIENCE_SLOW = 2  # where marks are seconds apart, waiting for many would take minutes
# Where an optimizer exists or gradients are on, steps of it should come: gradient accumulation can be long.
PATIENCE_IN_TRAINING = 256
# An anchor is forgotten after so many marks without it: twice its longest pause, and beyond that at least
# FORGET_AFTER_MARKS, or so many for each one known. Chosen by hand, not calibrated.
FORGET_AFTER_MARKS = 64
FORGET_PAUSES = 2
SHAPES_SEEN = 64  # of each of an optimizer's groups


class Mark:
    """An optimizer that marks steps: what it is like, as long as it is there."""

    __slots__ = ("_optimizer", "key", "like")

    def __init__(self, optimizer: Any) -> None:
        self._optimizer = weakref.ref(optimizer)
        self.key = id(optimizer)
        shapes = [
            tuple(one.shape) for group in optimizer.param_groups for one in group["params"][:SHAPES_SEEN]
        ]
        self.like: Hashable = (type(optimizer).__qualname__, *shapes)

    @property
    def is_there(self) -> bool:
        return self._optimizer() is not None


class Anchor:
    """Of several recurring marks (optimizers, graphs), the one that ends a step: the rarest still recurring.

    With a generator's and a critic's optimizer that is the generator's; with an optimizer for each parameter
    (stepped inside backward) the last one of the round. One that comes in the place of another that is gone,
    and is like it, ends the same steps: a job may have an optimizer for each of its problems.
    """

    def __init__(self) -> None:
        self.changed = False
        self._forget()

    def _forget(self) -> None:
        self.key: int | None = None
        self.known: set[int] = set()
        self._since = 0  # marks since the anchor's last
        self._longest = 0
        self._latest: dict[Hashable, Mark] = {}  # of all that are alike

    def mark(self, key: int, seen: Mark | None = None) -> bool:
        """`seen`: what it is that marks; None where that is not known."""
        if key not in self.known and seen is not None:
            self._take_the_place(key, seen)
        if key == self.key:
            self._longest = max(self._longest, self._since)
            self._since = 0
            return True
        if key not in self.known:
            self.known.add(key)
            self.changed = self.key is not None
            self.key, self._since, self._longest = key, 0, 0
            return True
        self._since += 1
        if self._since > FORGET_PAUSES * self._longest + max(
            FORGET_AFTER_MARKS, MANY_MARKS * len(self.known)
        ):
            self._forget()
            return self.mark(key, seen)
        return False

    def _take_the_place(self, key: int, seen: Mark) -> None:
        before, self._latest[seen.like] = self._latest.get(seen.like), seen
        if before is None or before.is_there or before.key not in self.known:
            return
        self.known.remove(before.key)
        self.known.add(key)
        if before.key == self.key:
            self.key = key


class StepFinder:
    """Turns marks into steps."""

    def __init__(self) -> None:
        self.source: StepEnd | None = None
        self.restarted = False  # what ends a step has changed: earlier steps are of another kind
        self.better = False  # by a kind of mark that says more
        self.training_expected = False
        self.optimizer_captured = False  # optimizer.step() ran inside a CUDA-graph capture
        self._anchors = {source: Anchor() for source in StepEnd}
        self._seen = dict.fromkeys(StepEnd, 0)
        self._first = dict.fromkeys(StepEnd, 0)

    def mark(self, source: StepEnd, key: int = 0, now: int = 0, seen: Mark | None = None) -> bool:
        """Something that may end a step has ended. True if a step did."""
        if (
            self.source is None
            or source < self.source
            or (source is StepEnd.REPLAY and self.optimizer_captured)
        ):
            if not self._believe(source, now):
                return False
        elif source != self.source:
            return False
        anchor = self._anchors[source]
        ended = anchor.mark(key, seen)
        if anchor.changed:
            anchor.changed = False
            self.restarted = True
        return ended

    def _believe(self, source: StepEnd, now: int) -> bool:
        if source is self.source:
            return True
        self._seen[source] += 1
        patience = self._patience(source)
        if self._seen[source] == 1:
            self._first[source] = now
        apart = (now - self._first[source]) / max(1, self._seen[source] - 1)
        if self._seen[source] <= (min(patience, PATIENCE_SLOW) if apart > LONG_STEP_NS else patience):
            return False
        self.restarted = self.better = self.source is not None
        self.source = source
        if source is StepEnd.OPTIMIZER:
            self.optimizer_captured = False
        return True

    def _patience(self, source: StepEnd) -> int:
        if source is StepEnd.REPLAY and self.optimizer_captured:
            return 0
        if self.training_expected and source > StepEnd.OPTIMIZER:
            return PATIENCE_IN_TRAINING
        return PATIENCE[source]

    def so_far(self) -> list[tuple[StepEnd, int, int]]:
        """While nothing is believed yet: each kind of mark, how many were seen, how many more it takes."""
        return [
            (source, seen, max(self._patience(source) + 1 - seen, 1))
            for source, seen in self._seen.items()
            if seen and self.source is None
        ]

    @property
    def marks(self) -> int:
        """How many marks were seen of kinds that were not believed then, turns of a loop left out."""
        return sum(seen for source, seen in self._seen.items() if source is not StepEnd.LOOP)

    @property
    def key(self) -> int | None:
        """What ends a step now."""
        return None if self.source is None else self._anchors[self.source].key

    @property
    def known(self) -> Set[int]:
        """What else of that kind was seen; what was not may end steps from now on."""
        return frozenset() if self.source is None else self._anchors[self.source].known

    def take_restart(self) -> tuple[bool, bool]:
        """Whether what ends a step has changed since the last call, and whether to a better kind."""
        taken = self.restarted, self.better
        self.restarted = self.better = False
        return taken


class Nest:
    """Optimizers whose step() is under way: one may call another's, and that is no step of its own."""

    def __init__(self) -> None:
        self._open: list[int] = []

    @property
    def inside(self) -> bool:
        return bool(self._open)

    def enter(self, key: int) -> None:
        self._open.append(key)

    def leave(self, key: int) -> None:
        """Out of this one's innermost step(), and of all inside it."""
        while self._open and self._open.pop() != key:
            continue
