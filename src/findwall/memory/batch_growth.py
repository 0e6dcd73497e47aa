"""What of a recorded step grows with the batch: which lives, by how much, and the peak at another size of it.

One recording says what is likely: by the kind of each life, and by what made it where C++ was recorded. Two
recordings with batches of two sizes say it for certain: what one place in the code asks for the k-th time is
the same tensor in both.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import log

import msgspec
import numpy as np
import numpy.typing as npt

from findwall.memory.device_memory import DeviceMemoryFacts
from findwall.memory.lives import total
from findwall.memory.memory_kinds import ACTIVATIONS, GRADIENTS, INPUTS, KEPT, PARAMETERS, TEMPORARIES
from findwall.memory.memory_phases import BACKWARD, FORWARD
from findwall.memory.played_memory import Played, played
from findwall.model.arms import BatchLines
from findwall.model.catalogue import MAJORITY_SHARE
from findwall.model.events import Bool
from findwall.model.memory_history import BACKWARD_PASS, I64, UPDATE_PASS

F64 = npt.NDArray[np.float64]
# Of what a library works in for the gradient of a weight, or for a recurrent layer with its weights packed,
# so much grows with the batch: on an H200 0.16, 0.25, 0.33, 0.33 and 0.72 of such buffers in five recordings,
# and of other scratch at least 0.8.
SCRATCH_OF_WEIGHTS_GROWS = 0.33


class Grows(msgspec.Struct, frozen=True):
    """The share of each life that is as large as the batch: most likely, at the least and at the most."""

    likely: F64
    least: F64
    most: F64
    scratch: Bool  # of libraries, which may take another way at another size, and nothing for it


def follows_batch(facts: DeviceMemoryFacts) -> Grows:
    """By one recording.

    A temporary of backward as large as a weight's gradient is most likely one of that weight. The parts of a
    sum fill the device's threads, and no more of them come with a larger batch. What only some forward passes
    make is of something beside the step, as an evaluation, which has batches of its own.
    """
    kinds, lives = facts.kinds, facts.walk.lives
    of_model = np.unique(lives.asked[np.isin(kinds, (GRADIENTS, PARAMETERS))])
    of_weights = np.isin(lives.asked, of_model) & (facts.born_in == BACKWARD)
    follows = np.isin(kinds, (ACTIVATIONS, INPUTS, KEPT))
    passing = (kinds == TEMPORARIES) & np.isin(facts.born_in, (FORWARD, BACKWARD))
    likely = np.where(follows | (passing & ~of_weights & ~facts.sums_in_parts), 1.0, 0.0)
    scratch = passing & facts.is_scratch
    likely[scratch & facts.stacks.works_on_weights[lives.stack]] = SCRATCH_OF_WEIGHTS_GROWS
    beside = _beside_the_step(facts)
    not_weights = 1 - _casts_of_weights(facts, beside)
    return Grows(
        likely * not_weights * ~beside,
        (follows & ~scratch & ~beside) * not_weights,
        (follows | passing) * np.ceil(not_weights),
        scratch & ~beside,
    )


def _beside_the_step(facts: DeviceMemoryFacts) -> Bool:
    """Lives of places in the code at which no more than half of the forward passes that are trained on made
    something."""
    lives, order = facts.walk.lives, facts.phases.phase
    trained = np.flatnonzero((order[:-1] == FORWARD) & (order[1:] == BACKWARD))
    stretch = facts.phases.stretch_of(lives.born)
    rows = np.flatnonzero(np.isin(stretch, trained) & (lives.stack >= 0))
    found = np.zeros(len(lives), np.bool_)
    numbers: dict[tuple[str, ...], int] = {}
    stacks, at = np.unique(lives.stack[rows], return_inverse=True)
    places = np.array(
        [numbers.setdefault(facts.stacks.place(one), len(numbers)) for one in stacks.tolist()], np.int64
    )[at]
    seen = np.unique(np.stack([places, stretch[rows]]), axis=1)[0]
    times = np.bincount(seen, minlength=len(numbers))
    found[rows] = times[places] <= MAJORITY_SHARE * len(trained)
    return found


def _casts_of_weights(facts: DeviceMemoryFacts, beside: Bool) -> F64:
    """How surely each life is autocast's copy of a weight: of those of one size in one pass, as many as there
    are weights of twice the size."""
    lives, found = facts.walk.lives, np.zeros(len(facts.walk.lives))
    rows = np.flatnonzero(facts.stacks.casts[lives.stack] & (facts.born_in == FORWARD) & ~beside)
    passes = facts.phases.stretch_of(lives.born[rows])
    sizes, times = np.unique(facts.weights, return_counts=True)
    for size, count in zip(sizes.tolist(), times.tolist(), strict=True):
        alike = 2 * lives.asked[rows] == size
        for one in np.unique(passes[alike]).tolist():
            mine = rows[alike & (passes == one)]
            found[mine] = min(count / len(mine), 1.0)
    return found


def paired(facts: DeviceMemoryFacts, other: DeviceMemoryFacts, factor: float) -> F64:
    """The share of each life that is as large as the batch, with another recording, of which this batch is so
    many times as large. Where a place asked more often in one of them, one recording alone is told."""
    found = follows_batch(facts).likely
    asked = facts.walk.lives.asked
    others = _by_place(other)
    for place, rows in _by_place(facts).items():
        theirs = others.get(place)
        if theirs is None or len(theirs) != len(rows):
            continue
        grown = (asked[rows] - other.walk.lives.asked[theirs]) * factor / (factor - 1)
        found[rows] = np.clip(grown / np.maximum(asked[rows], 1), 0.0, 1.0)
    return found


def _by_place(facts: DeviceMemoryFacts) -> dict[tuple[str, ...], I64]:
    """The lives that began at each place in the code, in order."""
    lives = facts.walk.lives
    rows = np.flatnonzero((lives.born >= 0) & (lives.stack >= 0))
    rows = rows[np.lexsort((lives.born[rows], lives.stack[rows]))]
    stacks, starts = np.unique(lives.stack[rows], return_index=True)
    found: dict[tuple[str, ...], list[I64]] = {}
    for stack, mine in zip(stacks.tolist(), np.split(rows, starts[1:]), strict=True):
        found.setdefault(facts.stacks.place(stack), []).append(mine)
    return {
        place: (joined := np.concatenate(parts))[np.argsort(lives.born[joined], kind="stable")]
        for place, parts in found.items()
    }


def with_batch(facts: DeviceMemoryFacts, factor: float) -> list[Played]:
    """The steps with so much of a batch, in the same order: most likely, at the least and at the most, and
    most likely where libraries work in nothing."""
    asked, grows = facts.walk.lives.asked, follows_batch(facts)
    shares = (grows.likely, grows.least, grows.most)
    found = [played(facts).sized((asked * (1 + (factor - 1) * share)).astype(np.int64)) for share in shares]
    return [*found, found[0].without(grows.scratch)]


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


def lines_by_size(recorded: Mapping[int, DeviceMemoryFacts]) -> dict[int, BatchLines]:
    """Of each size that was recorded its lines, with the nearest other size where there is one."""
    found = {}
    for size, facts in recorded.items():
        apart = {abs(log(size / one)): one for one in recorded if one != size}
        other = apart[min(apart)] if apart else None
        grows = None if other is None else paired(facts, recorded[other], size / other)
        found[size] = batch_lines(facts, grows)
    return found


def batch_lines(facts: DeviceMemoryFacts, grows: F64 | None = None) -> BatchLines:
    """The peak for every size of the batch. What libraries work in at another size nobody knows: at the least
    nothing, at the most what they take here or as much more as the batch."""
    likely = follows_batch(facts)
    share = likely.likely if grows is None else grows
    asked, scratch = facts.walk.lives.asked, likely.scratch
    found = BatchLines(_highest(_totals(facts, asked, share)), between=between_steps(facts))
    if not scratch.any():
        return found
    least = _totals(facts, np.where(scratch, 0, asked), share)
    most = [_totals(facts, asked, np.where(scratch, grown, share)) for grown in (0.0, 1.0)]
    return msgspec.structs.replace(found, least=_highest(least), most=_highest(*most))


def _totals(facts: DeviceMemoryFacts, asked: I64, share: F64) -> tuple[I64, I64]:
    """Bytes that stay and bytes that grow with the batch, after each event."""
    lives, count = facts.walk.lives, facts.phases.count
    growing = total(lives, (asked * share).astype(np.int64), count)
    return total(lives, asked, count) - growing, growing


def _highest(*totals: tuple[I64, I64]) -> tuple[tuple[int, int], ...]:
    """What stays and what grows at events of which one is the peak, whatever the size of the batch: the
    largest of `stays + factor * grows` is the peak."""
    staying, growing = (np.concatenate(parts) for parts in zip(*totals, strict=True))
    found: list[tuple[int, int]] = []
    for at in np.lexsort((-growing, -staying)).tolist():  # what stays most first
        line = int(staying[at]), int(growing[at])
        if found and line[1] <= found[-1][1]:
            continue  # another is never below it
        while len(found) > 1 and _is_never_highest(found[-2], found[-1], line):
            found.pop()
        found.append(line)
    return tuple(found)


def _is_never_highest(one: tuple[int, int], two: tuple[int, int], three: tuple[int, int]) -> bool:
    """Whether the second lies above the first only where the third lies above it."""
    return (one[0] - three[0]) * (two[1] - one[1]) <= (one[0] - two[0]) * (three[1] - one[1])


def largest_batch(facts: DeviceMemoryFacts, room: int) -> float:
    """How many times as large a batch surely fits: at every event what does not follow the batch is there
    already, and the rest has what is left. 0 where that alone takes more, as an update may."""
    grows = follows_batch(facts)
    if not grows.least.any() or not facts.phases.count:
        return 0.0
    staying, growing = _totals(facts, facts.walk.lives.asked, grows.most)
    if not growing.any() or (staying > room).any():
        return 0.0
    return float(((room - staying) / np.maximum(growing, 1))[growing > 0].min())
