"""What an optimizer keeps of each weight, what it makes during its step, and whether gradients stay after it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from findwall.memory.device_memory import DeviceMemoryFacts
from findwall.memory.memory_kinds import GRADIENTS, STATE, TEMPORARIES
from findwall.memory.memory_ladder import Rung, rung
from findwall.memory.memory_phases import OPTIMIZER, Phases
from findwall.memory.played_memory import Mask, Played, gradients_stay, played
from findwall.model.memory_history import I64

BYTES_OF_EIGHT_BITS = 0.25  # of an fp32 state, beside one scale for many values


def _optimizers(facts: DeviceMemoryFacts) -> Iterator[Rung]:
    """The same weights with another optimizer; only where one makes its step."""
    if not (facts.kinds == STATE).any() and not _passing(facts).any():
        return
    first, later = _copies(facts)
    bare = played(facts).without(_passing(facts))
    line = _line(facts, _passing(facts) if _passing(facts).any() else facts.kinds == STATE)
    yield rung("fused-optimizer", bare.peak, line=line)
    if later.any():
        yield rung("sgd-momentum", bare.without(later).peak)
        yield rung("sgd", bare.without(first | later).peak)
        eighth = np.where(first | later, bare.lives.asked * BYTES_OF_EIGHT_BITS, bare.lives.asked)
        yield rung("8-bit-optimizer", bare.sized(eighth).peak, longer=0.0)
        yield rung("foreach-optimizer", _with_lists(bare).peak)
        yield rung("no-foreach", _with_lists(bare, one_by_one=True).peak)


def _passing(facts: DeviceMemoryFacts) -> Mask:
    """What its step makes and gives back."""
    return (facts.kinds == TEMPORARIES) & (facts.born_in == OPTIMIZER)


def _copies(facts: DeviceMemoryFacts) -> tuple[Mask, Mask]:
    """The first value of each weight in the state, and all others."""
    rows = np.flatnonzero(facts.kinds == STATE)
    asked = facts.walk.lives.asked
    weights = _weights(facts)
    first, later = np.zeros(len(asked), np.bool_), np.zeros(len(asked), np.bool_)
    for size in np.unique(asked[rows]).tolist():
        mine = rows[asked[rows] == size]
        count = int((weights == size).sum())
        first[mine[:count]] = True
        later[mine[count:]] = True
    return first, later


def _weights(facts: DeviceMemoryFacts) -> I64:
    """The sizes of the gradients of one step."""
    lives = facts.walk.lives
    rows = np.flatnonzero((facts.kinds == GRADIENTS) & (lives.born >= 0))
    if len(rows) == 0:
        return np.zeros(0, np.int64)
    stretch = facts.phases.stretch_of(lives.born[rows])
    return lives.asked[rows[stretch == np.bincount(stretch).argmax()]]


def _with_lists(bare: Played, one_by_one: bool = False) -> Played:
    """Adam's arithmetic beside the weights: a copy of all of them at once, or of one, twice."""
    facts = bare.facts
    born, died = _steps(facts.phases)
    weights = _weights(facts)
    size = 2 * int(weights.max()) if one_by_one else int(weights.sum())
    return bare.and_also(born, died, np.full(len(born), size))


def _steps(phases: Phases) -> tuple[I64, I64]:
    """From where to where the optimizer's steps go, their first tensors of state made."""
    mine = np.flatnonzero(phases.phase == OPTIMIZER)
    end = np.array([phases.end(int(one)) for one in mine], np.int64)
    return end - 1, end


def _set_to_none(facts: DeviceMemoryFacts) -> Iterator[Rung]:
    """Gradients that are set to zero are there during the next forward pass as well."""
    yield rung("keep-gradients", gradients_stay(played(facts)).peak)


def _line(facts: DeviceMemoryFacts, rows: Mask) -> int:
    of, _ = facts.lines
    return int(np.bincount(of[rows] + 1, facts.walk.lives.asked[rows]).argmax()) - 1


RUNGS = (_optimizers, _set_to_none)
