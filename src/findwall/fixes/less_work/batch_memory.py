"""A smaller or larger batch, and the same batch in parts."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from findwall.memory.batch_growth import with_batch
from findwall.memory.device_memory import DeviceMemoryFacts
from findwall.memory.memory_kinds import GRADIENTS, INPUTS
from findwall.memory.memory_ladder import Rung, rung
from findwall.memory.played_memory import gradients_stay

HALF = 0.5  # of the batch


def _smaller(facts: DeviceMemoryFacts) -> Iterator[Rung]:
    """Half the batch: what follows it is halved."""
    if not (facts.kinds == GRADIENTS).any():
        return
    yield rung("smaller-batch", *(one.peak for one in with_batch(facts, HALF)), price="training", count=2)
    # In parts, gradients of the first are there while the second is computed, and so is the whole batch.
    whole = (facts.kinds == INPUTS) & ~facts.stacks.calls_module[facts.walk.lives.stack]
    asked = facts.walk.lives.asked
    parts = [one.sized(np.where(whole, asked, one.lives.asked)) for one in with_batch(facts, HALF)]
    peaks = (gradients_stay(one).peak for one in parts)
    yield rung("accumulate-gradients", *peaks, price="time", count=2)


PATCHES = {
    "smaller-batch": "batch_size //= 2",
    "accumulate-gradients": "for part in batch.chunk(2): (loss_of(part) / 2).backward()",
}
RUNGS = (_smaller,)
