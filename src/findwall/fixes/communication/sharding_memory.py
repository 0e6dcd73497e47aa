"""The model spread over several ranks: state, gradients and weights, each rank with its part.

What is gathered for a moment is told by no recording of one rank, so peaks are intervals: at the least exact
parts, at the most what the libraries hold beside them.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from findwall.memory.device_memory import DeviceMemoryFacts
from findwall.memory.memory_kinds import GRADIENTS, PARAMETERS, STATE, TEMPORARIES
from findwall.memory.memory_ladder import Rung, rung
from findwall.memory.memory_phases import BACKWARD, FORWARD, OPTIMIZER
from findwall.memory.played_memory import Played, played
from findwall.memory.repeated import repeated_blocks
from findwall.model.events import Bool

RANKS = 8  # of one machine
BUCKET_BYTES = 25 << 20  # of gradients that are sent together, as DistributedDataParallel has it
AT_A_TIME = 2  # blocks whose weights are there: the one at work and the next
FOUR_BITS = (0.5625 / 4, 0.5625 / 2)  # of fp32 and 16-bit weights: four bits and a scale for each 64 of them
ADAPTERS = 0.02  # of the weights, with their gradients and state


def over_ranks(facts: DeviceMemoryFacts, ranks: int) -> list[Rung]:
    """ZeRO's stages on so many ranks: the first as ZeroRedundancyOptimizer makes it, the others as FSDP,
    which has parts alone in the optimizer's step: the second gathers all weights, the third a few."""
    kinds, lives = facts.kinds, facts.walk.lives
    weights = int(lives.asked[(kinds == PARAMETERS) & facts.at_peak].sum())
    if not weights or not (kinds == GRADIENTS).any():
        return []
    updating = (kinds == TEMPORARIES) & (facts.born_in == OPTIMIZER)
    blocks = repeated_blocks(facts)
    block = weights // blocks.times if blocks is not None else weights
    whole = min(BUCKET_BYTES, block)  # gradients that are there before they are summed over ranks
    first = _parts(facts, kinds == STATE, _share(facts, ranks))
    parts = _parts(facts, updating | np.isin(kinds, (STATE, GRADIENTS, PARAMETERS)), 1 / ranks)
    some = min(AT_A_TIME * block, weights), min((AT_A_TIME + 1) * block, weights)
    found = [rung("zero-1", first.peak, _parts(facts, (kinds == STATE) | updating, 1 / ranks).peak)]
    for stage, gathered in ((2, (weights, weights)), (3, some)):
        likely, most = (_beside(parts, size, times * whole).peak for times, size in enumerate(gathered, 1))
        found.append(rung(f"zero-{stage}", likely, parts.peak, most))
    return [msgspec.structs.replace(one, price="ranks", count=ranks) for one in found]


def _share(facts: DeviceMemoryFacts, ranks: int) -> float:
    """Of the state what the first rank has: whole weights, the largest first, each to who has least."""
    held = [0] * ranks
    for size in sorted(facts.weights.tolist(), reverse=True):
        held[held.index(min(held))] += size
    return held[0] / sum(held) if sum(held) else 1 / ranks


def _parts(facts: DeviceMemoryFacts, rows: Bool, share: float) -> Played:
    asked = facts.walk.lives.asked
    return played(facts).sized(np.where(rows, np.ceil(asked * share), asked))


def _beside(parts: Played, weights: int, gradients: int) -> Played:
    """With what is gathered: weights from each forward to the end of its backward, gradients in backward."""
    phases = parts.facts.phases
    backward = np.flatnonzero(phases.phase == BACKWARD)
    forward = np.flatnonzero(phases.phase == FORWARD)
    end = np.array([phases.end(int(one)) for one in backward], np.int64)
    following = np.searchsorted(backward, forward)
    until = np.append(end, phases.count)[following]
    given = parts.and_also(phases.start[forward], until, np.full(len(forward), weights))
    return given.and_also(phases.start[backward], end, np.full(len(backward), gradients))


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


PATCHES = {
    "zero-1": "torch.distributed.optim.ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=lr)",
    "zero-2": "torch.distributed.fsdp.fully_shard(model, reshard_after_forward=False)",
    "zero-3": "for block in model.blocks: torch.distributed.fsdp.fully_shard(block)",
    "qlora": 'peft.get_peft_model(model, peft.LoraConfig(target_modules="all-linear"))',
}
RUNGS = (_sharded, _adapters)
