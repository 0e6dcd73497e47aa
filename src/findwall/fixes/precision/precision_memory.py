"""Sixteen bits: of all that has a number format, or, with autocast, of what its ops make.

Autocast keeps weights in fp32 and makes a copy of each in bf16 that lives until backward has used it: two
bytes a weight more. What it makes narrow are the results of products and convolutions, and what follows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from findwall.memory.autocast_ops import (
    ADDS,
    CASTS,
    KEEPS_ITS_RESULT,
    LARGE,
    NARROW,
    OF_A_WEIGHT,
    SUMMED_WIDE,
    WHOLE_NUMBERS,
    WIDE,
    WIDE_ON_DEVICES,
)
from findwall.memory.device_memory import DeviceMemoryFacts
from findwall.memory.lives import Mask
from findwall.memory.memory_kinds import (
    ACTIVATIONS,
    BEFORE_RECORDING,
    GRADIENTS,
    PARAMETERS,
    STATE,
    TEMPORARIES,
)
from findwall.memory.memory_ladder import Rung, rung
from findwall.memory.memory_phases import BACKWARD, FORWARD
from findwall.memory.played_memory import played
from findwall.model.catalogue import MAJORITY_SHARE
from findwall.model.intervals import F64
from findwall.model.memory_history import HOST, I64


def _all_of_it(facts: DeviceMemoryFacts) -> Iterator[Rung]:
    """The whole model in bf16: half of all, but what counts or points."""
    if not _knows_ops(facts) or _is_narrow(facts):
        return
    lives, whole = facts.walk.lives, _Forward(facts).counts
    half = played(facts).sized(np.where(whole, lives.asked, lives.asked // 2))
    yield rung("pure-bf16", half.and_also(*_summed_wide(facts)).peak, half.peak, price="training")


def _weights(facts: DeviceMemoryFacts) -> Mask:
    """A life for each weight that is a matrix: its gradient, or, where nothing is trained, what was there."""
    large = facts.walk.lives.asked >= LARGE
    gradients: Mask = (facts.kinds == GRADIENTS) & (facts.born_in == BACKWARD)
    if gradients.any():
        gradients &= large
        return gradients
    there: Mask = np.isin(facts.kinds, (PARAMETERS, BEFORE_RECORDING)) & large
    return there


def _summed_wide(facts: DeviceMemoryFacts) -> tuple[I64, I64, I64]:
    """A host without arithmetic in 16 bits adds a product up in fp32 beside its result, while it is made."""
    lives = facts.walk.lives
    sums = [stack for stack in np.unique(lives.stack).tolist() if facts.stacks.ops(stack) & SUMMED_WIDE]
    on_host = facts.history.device == HOST
    rows = (
        np.flatnonzero(np.isin(lives.stack, sums) & (lives.born >= 0)) if on_host else np.zeros(0, np.int64)
    )
    return lives.born[rows], lives.born[rows] + 1, lives.asked[rows]


def _is_narrow(facts: DeviceMemoryFacts) -> bool:
    """Whether the job casts most of its weights: then it uses autocast already."""
    lives = facts.walk.lives
    casts = [stack for stack in np.unique(lives.stack).tolist() if facts.stacks.ops(stack) & CASTS]
    made = (facts.born_in == FORWARD) & np.isin(lives.stack, casts)
    weights = lives.asked[_weights(facts)]
    sizes, count = np.unique(weights, return_counts=True)
    found = np.array([(lives.asked[made] == size // 2).sum() for size in sizes.tolist()])
    cast = int((sizes * np.minimum(count, found)).sum())
    return len(sizes) > 0 and cast > MAJORITY_SHARE * int((sizes * count).sum())


def _autocast(facts: DeviceMemoryFacts) -> Iterator[Rung]:
    if not _knows_ops(facts) or _is_narrow(facts):
        return
    lives = facts.walk.lives
    forward = _Forward(facts)
    passing = (facts.kinds == TEMPORARIES) & (facts.born_in == BACKWARD)
    as_forward = forward.share_of(lives.asked) > MAJORITY_SHARE
    weights = np.isin(lives.asked, np.unique(lives.asked[np.isin(facts.kinds, (GRADIENTS, PARAMETERS))]))
    peaks = []
    for narrow in (passing & as_forward & ~weights, passing & as_forward, passing & ~weights):
        given = played(facts).sized(np.where(forward.narrow | narrow, lives.asked // 2, lives.asked))
        given = given.and_also(*_copies(facts)).and_also(*forward.also())
        peaks += [given.and_also(*_summed_wide(facts)).peak, given.peak]
    yield rung("bf16-autocast", *peaks, price="numerics")


def _knows_ops(facts: DeviceMemoryFacts) -> bool:
    stacks = np.unique(facts.walk.lives.stack[facts.born_in == FORWARD]).tolist()
    return any(facts.stacks.ops(stack) & NARROW for stack in stacks)


def _copies(facts: DeviceMemoryFacts) -> tuple[I64, I64, I64]:
    """A copy of each weight that autocast's ops read, from the start of forward to its gradient."""
    lives, phases = facts.walk.lives, facts.phases
    rows = np.flatnonzero(_weights(facts))
    trained = facts.kinds[rows] == GRADIENTS
    read = {stack: bool(facts.stacks.ops(stack) & OF_A_WEIGHT) for stack in np.unique(lives.stack).tolist()}
    told = np.array([read[stack] for stack in lives.stack[rows].tolist()], np.bool_)
    rows, trained = rows[told | ~trained], trained[told | ~trained]
    before = np.maximum(phases.stretch_of(lives.born[rows]) - 1, 0)
    start = phases.start[np.where(trained, before, np.flatnonzero(phases.phase == FORWARD)[0])]
    end = np.where(trained, lives.born[rows] + 1, phases.count)
    # Of its gradient there is one in bf16 for a moment as well.
    born, died = np.concatenate([start, lives.born[rows[trained]]]), np.concatenate([end, end[trained]])
    return born, died, np.concatenate([lives.asked[rows], lives.asked[rows[trained]]]) // 2


class _Forward:
    """Which lives of the forward passes autocast makes narrow: each as its op says, or as what it was made
    of, which is most likely the latest that is as large."""

    def __init__(self, facts: DeviceMemoryFacts) -> None:
        self._facts, self._lives = facts, facts.walk.lives
        self.narrow: Mask = np.zeros(len(self._lives), np.bool_)
        self.counts: Mask = np.zeros(len(self._lives), np.bool_)  # whole numbers and masks: of no format
        self._more: list[tuple[int, int, int]] = []
        self._on_host = facts.history.device == HOST
        self._ops = {stack: facts.stacks.ops(stack) for stack in np.unique(self._lives.stack).tolist()}
        passing = np.isin(facts.kinds, (TEMPORARIES, STATE)) & (facts.born_in != FORWARD)
        rows = np.flatnonzero((self._lives.born >= 0) & (facts.born_in != BACKWARD) & ~passing)
        self._rows = rows[np.argsort(self._lives.born[rows], kind="stable")]
        self._alike: dict[int, list[int]] = defaultdict(list)
        self._latest = -1
        for row in self._rows.tolist():
            self._make(row)

    def share_of(self, sizes: I64) -> F64:
        """Of each size, how much of what forward made of it is narrow."""
        made, place = np.unique(self._lives.asked[self._rows], return_inverse=True)
        share = np.bincount(place, self.narrow[self._rows]) / np.bincount(place) if len(made) else np.zeros(0)
        at = np.minimum(np.searchsorted(made, sizes), max(len(made) - 1, 0))
        found: F64 = np.where(made[at] == sizes, share[at], 0.0) if len(made) else np.zeros(len(sizes))
        return found

    def also(self) -> tuple[I64, I64, I64]:
        born, died, asked = np.array(self._more or np.zeros((0, 3)), np.int64).T
        return born, died, asked

    def _make(self, row: int) -> None:
        lives = self._lives
        ops = self._ops[int(lives.stack[row])]
        same = self._alike[int(lives.asked[row])]
        same[:] = [one for one in same if lives.died[one] > lives.born[row]]
        source = same[-1] if same else self._latest
        if ops & WHOLE_NUMBERS:
            self.counts[row] = True
        elif ops & NARROW:
            self.narrow[row] = True
            self._cast_input(row)
        elif same and self.counts[source]:
            self.counts[row] = True
        elif not ops & (WIDE if self._on_host else WIDE | WIDE_ON_DEVICES):
            is_wide = ops & ADDS and any(not self.narrow[one] and not self._is_made_wide(one) for one in same)
            self.narrow[row] = source >= 0 and bool(self.narrow[source]) and not is_wide
        same.append(row)
        if not self.counts[row]:
            self._latest = row

    def _is_made_wide(self, row: int) -> bool:
        return bool(self._ops[int(self._lives.stack[row])] & (WIDE | WIDE_ON_DEVICES))

    def _cast_input(self, row: int) -> None:
        """What the op reads is cast first; backward keeps the copy, and the original if another reads it."""
        lives, given = self._lives, self._latest
        if given < 0 or self.narrow[given] or self.counts[given] or lives.died[given] <= lives.born[row]:
            return
        own = self._ops[int(lives.stack[given])]
        born, size = int(lives.born[row]), int(lives.asked[given])
        if self._facts.kinds[given] == ACTIVATIONS and not own & KEEPS_ITS_RESULT and not own & ADDS:
            self.narrow[given] = True
            self._more.append((int(lives.born[given]), born + 1, size))
        else:
            self._more.append((born, int(lives.died[row]), size // 2))


RUNGS = (_all_of_it, _autocast)
