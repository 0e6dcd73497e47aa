"""The recorded steps played again with sizes and lives changed: what an edit of memory is made of."""

from __future__ import annotations

import msgspec
import numpy as np

from findwall.memory.device_memory import DeviceMemoryFacts
from findwall.memory.lives import Lives, total
from findwall.memory.memory_kinds import ACTIVATIONS, GRADIENTS, INPUTS, KEPT, PARAMETERS, TEMPORARIES
from findwall.memory.memory_phases import BACKWARD, FORWARD
from findwall.model.events import Bool
from findwall.model.memory_history import BACKWARD_PASS, I64, UPDATE_PASS


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


def follows_batch(facts: DeviceMemoryFacts) -> tuple[Bool, Bool, Bool]:
    """Which lives are as large as the batch: most likely, at the least and at the most.

    A temporary as large as a weight's gradient is most likely one of that weight. The parts of a sum fill the
    device's threads, and no more of them come with a larger batch.
    """
    kinds = facts.kinds
    follows = np.isin(kinds, (ACTIVATIONS, INPUTS, KEPT))
    passing = (kinds == TEMPORARIES) & np.isin(facts.born_in, (FORWARD, BACKWARD))
    of_model = np.unique(facts.walk.lives.asked[np.isin(kinds, (GRADIENTS, PARAMETERS))])
    of_weights = np.isin(facts.walk.lives.asked, of_model)
    return follows | (passing & ~of_weights & ~facts.sums_in_parts), follows, follows | passing


def with_batch(facts: DeviceMemoryFacts, factor: float) -> list[Played]:
    """The steps with so much of a batch, in the same order."""
    asked = facts.walk.lives.asked
    return [played(facts).sized(np.where(mask, asked * factor, asked)) for mask in follows_batch(facts)]


def between_steps(facts: DeviceMemoryFacts) -> int | None:
    """Bytes alive when an optimizer's step had ended, or, where its step takes nothing, the backward pass;
    None where nobody knows which events are the optimizer's."""
    passes = facts.history.passes
    if passes is None:
        return None
    for ended in (UPDATE_PASS, BACKWARD_PASS):
        rows = np.flatnonzero(passes == ended)
        if len(rows):
            return int(facts.walk.asked[rows[-1]])
    return None


def batch_lines(facts: DeviceMemoryFacts) -> list[tuple[int, int]]:
    """The likely peak for every size of the batch: what stays and what grows with it at events of which one
    is the peak, whatever the size. The largest of `stays + factor * grows` is the peak."""
    lives, count = facts.walk.lives, facts.phases.count
    if not count:
        return []
    grows = total(lives, np.where(follows_batch(facts)[0], lives.asked, 0), count)
    stays = total(lives, lives.asked, count) - grows
    found: list[tuple[int, int]] = []
    for at in np.lexsort((-grows, -stays)).tolist():  # what stays most first
        line = int(stays[at]), int(grows[at])
        if found and line[1] <= found[-1][1]:
            continue  # another is never below it
        while len(found) > 1 and _is_never_highest(found[-2], found[-1], line):
            found.pop()
        found.append(line)
    return found


def _is_never_highest(one: tuple[int, int], two: tuple[int, int], three: tuple[int, int]) -> bool:
    """Whether the second lies above the first only where the third lies above it."""
    return (one[0] - three[0]) * (two[1] - one[1]) <= (one[0] - two[0]) * (three[1] - one[1])


def largest_batch(facts: DeviceMemoryFacts, room: int) -> float:
    """How many times as large a batch surely fits: at every event what does not follow the batch is there
    already, and the rest has what is left."""
    lives, count = facts.walk.lives, facts.phases.count
    _, least, most = follows_batch(facts)
    if not least.any() or not count:
        return 0.0
    grows = total(lives, np.where(most, lives.asked, 0), count)
    stays = total(lives, lives.asked, count) - grows
    if not grows.any():
        return 0.0
    return max(float(((room - stays) / np.maximum(grows, 1))[grows > 0].min()), 0.0)


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
