"""Sixteen bits: of all that has a number format, or, with autocast, of what its ops make.

Autocast keeps weights in fp32 and makes a copy of each in bf16 that lives until backward has used it: two
bytes a weight more. What it makes narrow are the results of products and convolutions, and what follows.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from findwall.fixes.precision.autocast_lives import BackwardFormats, ForwardFormats
from findwall.memory.autocast_ops import CASTS, LARGE, NARROW, OF_A_WEIGHT, SUMMED_WIDE
from findwall.memory.device_memory import DeviceMemoryFacts
from findwall.memory.memory_kinds import (
    BEFORE_RECORDING,
    GRADIENTS,
    PARAMETERS,
    WORKSPACE,
)
from findwall.memory.memory_ladder import Rung, rung
from findwall.memory.memory_phases import BACKWARD, FORWARD
from findwall.memory.played_memory import played
from findwall.model.catalogue import MAJORITY_SHARE
from findwall.model.events import Bool
from findwall.model.memory_history import HOST, I64


def _all_of_it(facts: DeviceMemoryFacts) -> Iterator[Rung]:
    """The whole model in bf16: half of all, but what counts or points, and what a library takes for itself:
    workspaces, and the parts in which a sum is added up, in fp32."""
    if not _knows_ops(facts) or _is_narrow(facts):
        return
    lives = facts.walk.lives
    whole = ForwardFormats(facts).counts | (facts.kinds == WORKSPACE) | facts.sums_in_parts
    half = played(facts).sized(np.where(whole, lives.asked, lives.asked // 2))
    peaks = half.and_also(*_summed_wide(facts)).peak, half.peak
    yield rung("pure-bf16", *peaks, price="training", if_wide=facts.is_narrow is None)


def _weights(facts: DeviceMemoryFacts) -> Bool:
    """A life for each weight that is a matrix: its gradient, or, where nothing is trained, what was there."""
    large = facts.walk.lives.asked >= LARGE
    gradients: Bool = (facts.kinds == GRADIENTS) & (facts.born_in == BACKWARD)
    if gradients.any():
        gradients &= large
        return gradients
    there: Bool = np.isin(facts.kinds, (PARAMETERS, BEFORE_RECORDING)) & large
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
    """Whether the job multiplies in 16 bits; where nobody knows the formats, whether it casts most of its
    weights, as autocast does."""
    if facts.is_narrow is not None:
        return facts.is_narrow
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
    forward = ForwardFormats(facts)
    backward = BackwardFormats(facts, forward)
    weights = np.isin(lives.asked, np.unique(lives.asked[np.isin(facts.kinds, (GRADIENTS, PARAMETERS))]))
    peaks = []
    for narrow in (backward.narrow & ~weights, backward.narrow, backward.may_be_narrow & ~weights):
        given = played(facts).sized(np.where(forward.narrow | narrow, lives.asked // 2, lives.asked))
        given = given.and_also(*_copies(facts)).and_also(*forward.also()).and_also(*backward.also())
        peaks += [given.and_also(*_summed_wide(facts)).peak, given.peak]
    yield rung("bf16-autocast", *peaks, price="numerics", if_wide=facts.is_narrow is None)


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


PATCHES = {
    "bf16-autocast": "with torch.autocast(device, torch.bfloat16):",
    "pure-bf16": "model.to(torch.bfloat16)",
}
RUNGS = (_all_of_it, _autocast)
