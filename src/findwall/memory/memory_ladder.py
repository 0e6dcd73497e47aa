"""What would make the peak smaller: changes that files beside the fixes declare, in the order to try them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from findwall.memory.device_memory import DeviceMemoryFacts
from findwall.model.answers.memory_answer import MemoryPrice

TENTHS = 10  # of the peak: changes that differ by less are alike
WORTH_A_RUNG = 0.01  # of the peak: less is within what a prediction misses


# What a person gives up least for comes first: nothing; then time or bits; then another training or machine.
_CHEAP: tuple[tuple[MemoryPrice, ...], ...] = (("none",), ("time", "numerics"), ("training", "ranks", "host"))
# What is alike otherwise comes in the order in which people are told to try it.
_TRIED = (
    *("set-to-none", "sdpa", "fused-optimizer", "foreach-optimizer", "single-tensor-optimizer"),
    *("bf16-autocast", "pure-bf16", "checkpoint-blocks", "accumulate-gradients", "smaller-batch"),
    *("zero-1", "zero-2", "zero-3", "8-bit-optimizer", "sgd-momentum", "sgd", "offload-state", "qlora"),
)


class Rung(msgspec.Struct, frozen=True):
    """A change and the peak it leaves, in bytes as the recording counts them."""

    fix: str
    low: int
    mid: int
    high: int
    price: MemoryPrice = "none"
    longer: float = 0.0  # by how much of the step it makes the step longer
    line: int = -1  # of the job that it concerns; -1: nobody knows it
    count: int = 0  # of what it concerns: blocks, attentions, parts of a batch, ranks
    module: str = ""  # the class of what it concerns, where that is known
    if_wide: bool = False  # only of a job that computes in fp32, and nobody knows whether this one does


def rung(fix: str, *peaks: int, **more: Any) -> Rung:
    """The likely peak first, then others that may be."""
    return Rung(fix, min(peaks), peaks[0], max(peaks), **more)


# What a file beside a fix declares as `RUNGS`: how the recorded steps would go with it.
Edit = Callable[[DeviceMemoryFacts], Iterator[Rung]]


def predicted(facts: DeviceMemoryFacts, edits: Iterable[Edit]) -> list[Rung]:
    """Every change that can be predicted, also those that make the peak larger."""
    if not facts.phases.is_known:
        return []
    return [rung for edit in edits for rung in edit(facts)]


def ladder(
    facts: DeviceMemoryFacts, edits: Sequence[Edit], beside: DeviceMemoryFacts | None = None
) -> list[Rung]:
    """Those that make the peak smaller: the cheap ones first, then by the tenths of the peak that they take
    away, and what is alike in the order in which people try it.

    `beside`: another recording of the same steps, for the changes that this one cannot tell, such as a
    trace's ops beside a snapshot's lines.
    """
    most = (1.0 - WORTH_A_RUNG) * facts.peak_bytes
    found = {one.fix: one for one in predicted(facts, edits)}
    if beside is not None and beside.peak_bytes:
        for one in predicted(beside, edits):
            found.setdefault(one.fix, _of_peak(one, facts.peak_bytes / beside.peak_bytes))
    return sorted(
        (one for one in found.values() if one.high <= most), key=lambda one: _place(one, facts.peak_bytes)
    )


def _of_peak(one: Rung, times: float) -> Rung:
    """The same of a recording with another peak, and other lines."""
    peaks = {name: round(getattr(one, name) * times) for name in ("low", "mid", "high")}
    return msgspec.structs.replace(one, **peaks, line=-1)


def _place(one: Rung, peak: int) -> tuple[int, int, int]:
    dear = next(at for at, prices in enumerate(_CHEAP) if one.price in prices)
    return dear, round(TENTHS * one.mid / peak), _TRIED.index(one.fix) if one.fix in _TRIED else len(_TRIED)
