"""What an optimizer keeps of each weight, what its step makes, and whether gradients stay after it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from findwall.memory.device_memory import DeviceMemoryFacts
from findwall.memory.memory_kinds import GRADIENTS, STATE, TEMPORARIES
from findwall.memory.memory_ladder import Rung, rung
from findwall.memory.memory_phases import BACKWARD, OPTIMIZER, Phases
from findwall.memory.played_memory import Played, gradients_stay, played
from findwall.model.events import Bool
from findwall.model.memory_history import HOST, I64

BYTES_OF_EIGHT_BITS = 0.25  # of an fp32 state, beside one scale for many values


def _optimizers(facts: DeviceMemoryFacts) -> Iterator[Rung]:
    """The same weights with another optimizer; only where one makes its step."""
    if not (facts.kinds == STATE).any() and not _passing(facts).any():
        return
    first, later = _copies(facts)
    bare = played(facts).without(_passing(facts))
    line = _line(facts, _passing(facts) if _passing(facts).any() else facts.kinds == STATE)
    yield rung("fused-optimizer", bare.peak, line=line)
    if not later.any() or not len(facts.weights):
        return
    eighth = np.where(first | later, bare.lives.asked * BYTES_OF_EIGHT_BITS, bare.lives.asked)
    yield rung("8-bit-optimizer", bare.sized(eighth).peak, price="numerics", line=line)
    yield rung("sgd-momentum", bare.without(later).peak, price="training", line=line)
    yield rung("sgd", bare.without(first | later).peak, price="training", line=line)
    if not facts.stacks.others_update[facts.walk.lives.stack[_passing(facts)]].any():
        yield rung("foreach-optimizer", _in_lists(bare).peak, line=line)
        yield rung("single-tensor-optimizer", _one_by_one(bare).peak, price="time", line=line)
    if facts.history.device != HOST:
        held = facts.kinds == STATE
        yield rung("offload-state", bare.without(held).peak, price="host", line=line)


def _passing(facts: DeviceMemoryFacts) -> Bool:
    """What its step makes and gives back."""
    found: Bool = (facts.kinds == TEMPORARIES) & (facts.born_in == OPTIMIZER)
    return found


def _copies(facts: DeviceMemoryFacts) -> tuple[Bool, Bool]:
    """The first value of each weight in the state, and all others."""
    rows = np.flatnonzero(facts.kinds == STATE)
    asked = facts.walk.lives.asked
    first, later = np.zeros(len(asked), np.bool_), np.zeros(len(asked), np.bool_)
    # Some optimizers write their state anew in every step: of each moment of birth so many are the first.
    key = np.stack([asked[rows], facts.phases.stretch_of(facts.walk.lives.born[rows])])
    distinct, place = np.unique(key, axis=1, return_inverse=True)
    for at, size in enumerate(distinct[0].tolist()):
        mine = rows[place.reshape(-1) == at]
        count = int((facts.weights == size).sum())
        first[mine[:count]] = True
        later[mine[count:]] = True
    return first, later


def _in_lists(bare: Played) -> Played:
    """Adam's arithmetic for all weights together: a copy of them all beside the state."""
    born, died = _steps(bare.facts.phases)
    return bare.and_also(born, died, np.full(len(born), int(bare.facts.weights.sum())))


def _one_by_one(bare: Played) -> Played:
    """The same for one weight after the other: two copies of one."""
    born, died = _steps(bare.facts.phases)
    return bare.and_also(born, died, np.full(len(born), 2 * int(bare.facts.weights.max())))


def _steps(phases: Phases) -> tuple[I64, I64]:
    """From where to where the optimizer's steps go, their first tensors of state made."""
    mine = np.flatnonzero(phases.phase == OPTIMIZER)
    end = np.array([phases.end(int(one)) for one in mine], np.int64)
    return end - 1, end


def _set_to_none(facts: DeviceMemoryFacts) -> Iterator[Rung]:
    """Gradients that are set to zero are there during the next forward pass; those set to None are not."""
    kept = (facts.kinds == GRADIENTS) & (facts.walk.lives.died >= facts.phases.count)
    backward = np.flatnonzero(facts.phases.phase == BACKWARD)
    if len(backward) < 2:
        return
    if not (kept & (facts.walk.lives.born < facts.phases.start[backward[1]])).any():
        # What stays longer makes no peak lower, however the recording was cut.
        yield rung("keep-gradients", max(gradients_stay(played(facts)).peak, facts.peak_bytes))
        return
    start = facts.phases.start[backward]
    end = np.append(start[1:], facts.phases.count)
    for at, one in enumerate(backward.tolist()):
        after = min(one + 2, len(facts.phases.start))  # backward, and the update that follows it
        end[at] = facts.phases.end(after - 1)
    given = played(facts).without(kept)
    total = int(facts.walk.lives.asked[kept].sum())
    again = given.and_also(start, end, np.full(len(start), total))
    yield rung("set-to-none", again.peak)


def _line(facts: DeviceMemoryFacts, rows: Bool) -> int:
    of, _ = facts.lines
    return int(np.bincount(of[rows] + 1, facts.walk.lives.asked[rows]).argmax()) - 1


PATCHES = {
    "fused-optimizer": "torch.optim.…(…, fused=True)",
    "foreach-optimizer": "torch.optim.…(…, foreach=True)",
    "single-tensor-optimizer": "torch.optim.…(…, foreach=False)",
    "8-bit-optimizer": "bitsandbytes.optim.AdamW8bit(model.parameters(), lr=lr)",
    "sgd-momentum": "torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)",
    "sgd": "torch.optim.SGD(model.parameters(), lr=lr)",
    "offload-state": "torchao.optim.CPUOffloadOptimizer(model.parameters(), torch.optim.AdamW, lr=lr)",
    "set-to-none": "optimizer.zero_grad(set_to_none=True)",
}
RUNGS = (_optimizers, _set_to_none)
