"""A smaller or larger batch, and the same batch in parts."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from findwall.memory.device_memory import DeviceMemoryFacts
from findwall.memory.memory_kinds import GRADIENTS, INPUTS
from findwall.memory.memory_ladder import Rung, rung
from findwall.memory.played_memory import gradients_stay, with_batch


def _smaller(facts: DeviceMemoryFacts) -> Iterator[Rung]:
    """Half the batch: what follows it is halved."""
    if not (facts.kinds == GRADIENTS).any():
        return
    yield rung("smaller-batch", *(one.peak for one in with_batch(facts, 0.5)), count=2)
    # In parts, the gradients of the first part are there while the second is computed; the batch is there whole.
    whole = (facts.kinds == INPUTS) & ~facts.stacks.calls_module[facts.walk.lives.stack]
    parts = [one.sized(np.where(whole, facts.walk.lives.asked, one.lives.asked)) for one in with_batch(facts, 0.5)]
    yield rung("accumulate-gradients", *(gradients_stay(one).peak for one in parts), longer=0.02, count=2)


RUNGS = (_smaller,)
