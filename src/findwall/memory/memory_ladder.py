"""What would make the peak smaller: changes that the files of fixes declare, in the order they should be tried."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec

from findwall.memory.device_memory import DeviceMemoryFacts
from findwall.memory.played_memory import Played

WORTH_A_RUNG = 0.01  # of the peak: less is within what a prediction misses


class Rung(msgspec.Struct, frozen=True):
    """A change and the peak it leaves, in bytes as the recording counts them."""

    fix: str
    low: int
    mid: int
    high: int
    longer: float = 0.0  # by how much of the step it makes the step longer
    line: int = -1  # of the job that it concerns; -1: nobody knows it
    count: int = 0  # of what it concerns: blocks, attentions, parts of a batch
    module: str = ""  # the class of what it concerns, where that is known


def rung(
    fix: str, *peaks: int, longer: float = 0.0, line: int = -1, count: int = 0, module: str = ""
) -> Rung:
    """The likely peak first, then others that may be."""
    return Rung(fix, min(peaks), peaks[0], max(peaks), longer, line, count, module)


# What a file beside a fix declares as `RUNGS`: how the recorded steps would go with it.
Edit = Callable[[DeviceMemoryFacts], Iterator[Rung]]


def predicted(facts: DeviceMemoryFacts, edits: Iterable[Edit]) -> list[Rung]:
    """Every change that can be predicted, also those that make the peak larger."""
    if not facts.phases.is_known:
        return []
    return [rung for edit in edits for rung in edit(facts)]


def ladder(facts: DeviceMemoryFacts, edits: Iterable[Edit]) -> list[Rung]:
    """Those that make the peak smaller: what costs no time first, then by what they give. What is equal stays
    in the order in which people are told to try it."""
    most = (1.0 - WORTH_A_RUNG) * facts.peak_bytes
    found = [one for one in predicted(facts, edits) if one.high <= most]
    return sorted(found, key=lambda one: (one.longer > 0, one.mid))


__all__ = ["Edit", "Played", "Rung", "ladder", "predicted", "rung"]
