"""The recorded steps played again with sizes and lives changed: what an edit of memory is made of."""

from __future__ import annotations

import msgspec
import numpy as np

from findwall.memory.device_memory import DeviceMemoryFacts
from findwall.memory.lives import Lives, total
from findwall.memory.memory_kinds import GRADIENTS
from findwall.memory.memory_phases import BACKWARD
from findwall.model.events import Bool
from findwall.model.memory_history import I64


class Played(msgspec.Struct, frozen=True):
    """A recording, changed. The first rows of its lives are those of the recording, in their order."""

    facts: DeviceMemoryFacts
    lives: Lives

    @property
    def peak(self) -> int:
        count = self.facts.phases.count
        return int(total(self.lives, self.lives.asked, count).max()) if count else 0

    def sized(self, asked: I64) -> Played:
        return self._with(asked=asked.astype(np.int64))

    def without(self, rows: Bool) -> Played:
        return self.sized(np.where(rows, 0, self.lives.asked))

    def living(self, born: I64, died: I64) -> Played:
        return self._with(born=born, died=died)

    def and_also(self, born: I64, died: I64, asked: I64) -> Played:
        """With tensors that the recording does not have."""
        count = len(born)
        none, nowhere = np.full(count, -1, np.int32), np.zeros(count, np.uint64)
        also = Lives(born, died, asked.astype(np.int64), asked.astype(np.int64), nowhere, none)
        columns = zip(msgspec.structs.astuple(self.lives), msgspec.structs.astuple(also), strict=True)
        return Played(self.facts, Lives(*(np.concatenate(column) for column in columns)))

    def _with(self, **columns: I64) -> Played:
        return Played(self.facts, msgspec.structs.replace(self.lives, **columns))


def played(facts: DeviceMemoryFacts) -> Played:
    """As it was."""
    return Played(facts, facts.walk.lives)


def gradients_stay(given: Played) -> Played:
    """Gradients are there from the first backward pass on, and each pass adds its own to them: those it
    makes are temporaries, gone when the next one is made."""
    facts, lives = given.facts, given.lives
    rows = np.flatnonzero((facts.kinds == GRADIENTS) & (facts.born_in == BACKWARD))
    if len(rows) == 0:
        return given
    born, died = lives.born.copy(), lives.died.copy()
    stretch = facts.phases.stretch_of(born[rows])
    order = rows[np.argsort(born[rows], kind="stable")]
    following = np.append(born[order][1:], facts.phases.count)
    died[order] = np.minimum(died[order], following)
    # All of one pass, which hold for every pass.
    first = rows[stretch == np.bincount(stretch, lives.asked[rows]).argmax()]
    start = np.full(len(first), -1, np.int64)
    end = np.full(len(first), facts.phases.count, np.int64)
    return given.living(born, died).and_also(start, end, lives.asked[first])
