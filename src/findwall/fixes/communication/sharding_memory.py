"""The model spread over several ranks: state, gradients and weights, each rank with its part.

What is gathered for a moment is told by no recording of one rank, so peaks are intervals: at the least exact
parts, at the most what the libraries hold beside them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from findwall.memory.device_memory import DeviceMemoryFacts
from findwall.memory.lives import Mask
from findwall.memory.memory_kinds import GRADIENTS, PARAMETERS, STATE, TEMPORARIES
from findwall.memory.memory_ladder import Rung, rung
from findwall.memory.memory_phases import OPTIMIZER
from findwall.memory.played_memory import Played, played
from findwall.memory.repeated import repeated_blocks

RANKS = 8  # of one machine
BUCKET_BYTES = 25 << 20  # of gradients that are sent together, as DistributedDataParallel has it
AT_A_TIME = 2  # blocks whose weights are there: the one at work and the next
FOUR_BITS = (0.5625 / 4, 0.5625 / 2)  # of fp32 and 16-bit weights: four bits and a scale for each 64 of them
ADAPTERS = 0.02  # of the weights, with their gradients and state


def over_ranks(facts: DeviceMemoryFacts, ranks: int) -> list[Rung]:
    """ZeRO's three stages on so many ranks; the third is what FSDP does."""
    kinds, lives = facts.kinds, facts.walk.lives
    weights = int(lives.asked[(kinds == PARAMETERS) & facts.at_peak].sum())
    if not weights or not (kinds == GRADIENTS).any():
        return []
    updating = (kinds == TEMPORARIES) & (facts.born_in == OPTIMIZER)
    bucket = min(BUCKET_BYTES, weights)
    blocks = repeated_blocks(facts)
    block = weights // blocks.times if blocks is not None else weights
    shared = [(kinds == STATE) | updating]
    shared.append(shared[-1] | (kinds == GRADIENTS))
    shared.append(shared[-1] | (kinds == PARAMETERS))
    beside = ((0, 0), (bucket, 2 * bucket), (AT_A_TIME * block, (AT_A_TIME + 1) * block))
    found = []
    for stage, (mine, (likely, most)) in enumerate(zip(shared, beside, strict=True), 1):
        least = _parts(facts, mine, ranks).peak
        peaks = (least + likely, least, least + most)
        found.append(rung(f"zero-{stage}", *peaks, price="ranks", count=ranks))
    return found


def _parts(facts: DeviceMemoryFacts, rows: Mask, ranks: int) -> Played:
    asked = facts.walk.lives.asked
    return played(facts).sized(np.where(rows, -(-asked // ranks), asked))


def _sharded(facts: DeviceMemoryFacts) -> Iterator[Rung]:
    yield from over_ranks(facts, RANKS)


def _adapters(facts: DeviceMemoryFacts) -> Iterator[Rung]:
    """Weights in four bits that are not trained, small matrices beside them that are (QLoRA)."""
    kinds, asked = facts.kinds, facts.walk.lives.asked
    if not (kinds == GRADIENTS).any() or not (kinds == PARAMETERS).any():
        return
    trained = np.isin(kinds, (GRADIENTS, STATE))
    sizes = [
        np.where(kinds == PARAMETERS, (part + ADAPTERS) * asked, np.where(trained, ADAPTERS * asked, asked))
        for part in FOUR_BITS
    ]
    low, high = (played(facts).sized(one).peak for one in sizes)
    yield rung("qlora", (low + high) // 2, low, high, price="training")


RUNGS = (_sharded, _adapters)
