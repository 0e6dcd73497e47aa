"""The way over batch sizes: the job's own first, then doubled as long as that is faster and fits, then halved
until it is clear where it begins to cost. Who runs the processes is the caller's matter.

Whatever is not started says why. What ran out of memory ends the way up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from math import inf, log
from typing import Literal

import msgspec

from findwall.model.answers.sweep_answer import Outcome
from findwall.model.arms import BatchLines, FedLoader, Peaks, Swept
from findwall.model.catalogue import MAJORITY_SHARE, NEARLY_ALL, WORTH_IT
from findwall.trial.peak_lines import PredictedPeak, on_line, predicted

Ended = Literal["done", "deadline", "interrupted"]
DOUBLINGS = range(1, 30)  # more than any memory holds
STEPS_RUN = 3  # times as many as are timed: warm-up, and the traced ones. By hand.
LEVEL_AFTER = 2  # doublings in a row that give nothing: one may do so by chance. By hand.


class Ran(msgspec.Struct, frozen=True):
    """One process of a sweep, as it ended."""

    swept: Swept | None = None
    seconds: float = 0.0  # with the look at it
    trouble: Literal["", "out-of-memory", "failed", "no-step", "deadline", "interrupted"] = ""
    why: str = ""
    fed: Sequence[FedLoader] = ()  # of one that died: what fed its steps


class Tried(msgspec.Struct, frozen=True):
    """One size, with what was predicted of it before."""

    size: int
    outcome: Outcome
    swept: Swept | None = None
    samples: float | None = None  # a step
    predicted: PredictedPeak = PredictedPeak()
    seconds: float = 0.0
    why: str = ""

    @property
    def rate(self) -> float | None:
        """Samples a second."""
        if self.swept is None or self.samples is None or self.outcome != "measured":
            return None
        return self.samples / self.swept.mean_ms * 1e3


class Way(msgspec.Struct, frozen=True):
    """How a sweep goes."""

    run: Callable[[int], Ran]
    left_s: Callable[[], float]
    own: int  # the job's own size, or the one that is tried first
    given: tuple[int, ...] = ()  # sizes that a person named: no others then
    samples: int | None = None  # that a pass of the loader has
    limit: float | None = None  # bytes that the process may take, on the cores
    tell: Callable[[Tried], None] = lambda _tried: None
    loader: FedLoader | None = None  # whose size is varied; None: an argument is
    # Of the sizes at which the allocator was recorded, so far.
    recorded: Callable[[], Mapping[int, BatchLines]] = dict


def sweep(way: Way, first: Ran | None = None) -> tuple[list[Tried], Ended]:
    """All sizes that were tried, or that there is a reason not to try, by size. `first`: what the process
    with the job's own size told, where it ran already."""
    going = _Going(way)
    going.go(first)
    return sorted(going.tried.values(), key=lambda one: one.size), going.ended


class _Going:
    def __init__(self, way: Way) -> None:
        self._way = way
        self.tried: dict[int, Tried] = {}
        self.ended: Ended = "done"

    def go(self, first: Ran | None) -> None:
        way = self._way
        begins = self._note(way.own, first, PredictedPeak()) if first is not None else self._try(way.own)
        up, down = self._sizes()
        if begins.outcome == "measured":
            self._go(up, self._is_level, ())
        self._go(down, self._is_steep, ("out-of-memory", "would-not-fit", "too-few-samples", "too-few-steps"))
        late = "no-time" in [one.outcome for one in self.tried.values()]
        for size in sorted(set(way.given) - self.tried.keys()):
            self._keep(self._unmeasured(size, "no-time" if late else "not-started"))

    def _go(self, sizes: Sequence[int], is_enough: Callable[[], bool], passes: Sequence[Outcome]) -> None:
        """One way, until it is clear, or one size gives no figures: `passes` are no reason to stop."""
        for size in sizes:
            if self.ended != "done" or (not self._way.given and is_enough()):
                return
            if self._try(size).outcome not in ("measured", *passes):
                return

    def _sizes(self) -> tuple[list[int], list[int]]:
        own, given = self._way.own, self._way.given
        if given:
            return sorted(one for one in given if one > own), sorted(one for one in given if one < own)[::-1]
        return [own << power for power in DOUBLINGS], [half for power in DOUBLINGS if (half := own >> power)]

    def _try(self, size: int) -> Tried:
        why_not = self._why_not(size)
        if why_not is not None:
            return self._keep(self._unmeasured(size, why_not))
        before = self._predicted(size)
        return self._note(size, self._way.run(size), before)

    def _predicted(self, size: int) -> PredictedPeak:
        return predicted(peaks_of(self.tried.values()), size, self._way.recorded())

    def _why_not(self, size: int) -> Outcome | None:
        way = self._way
        if way.samples is not None and way.samples < size:
            return "too-few-samples"
        limit, peak = limit_of(self.tried.values(), way), self._predicted(size).low
        if limit is not None and peak is not None and peak > limit:
            return "would-not-fit"
        return "no-time" if self._takes_s(size) > way.left_s() else None

    def _takes_s(self, size: int) -> float:
        """As long to start as others did, and the steps as their line says."""
        ran = [(one, one.swept) for one in self.tried.values() if one.swept is not None]
        step_ms = on_line([(float(one.size), swept.mean_ms) for one, swept in ran], size) or 0.0
        starts = [one.seconds - STEPS_RUN * swept.steps * swept.mean_ms / 1e3 for one, swept in ran]
        steps = [swept.steps for _, swept in ran]
        return max([*starts, 0.0]) + STEPS_RUN * min(steps, default=0) * step_ms / 1e3

    def _note(self, size: int, ran: Ran, before: PredictedPeak) -> Tried:
        """`before`: the peak that was predicted."""
        if ran.trouble in ("deadline", "interrupted"):
            self.ended = "interrupted" if ran.trouble == "interrupted" else "deadline"
        swept = ran.swept
        outcome: Outcome = "measured"
        if ran.trouble:
            outcome = _OUTCOMES[ran.trouble]
        elif swept is None or not swept.is_enough:
            outcome = "too-few-steps"
        samples = samples_of(swept, size, self._way.loader) if swept is not None else None
        return self._keep(Tried(size, outcome, swept, samples, before, ran.seconds, ran.why))

    def _unmeasured(self, size: int, why_not: Outcome) -> Tried:
        return Tried(size, why_not, predicted=self._predicted(size))

    def _keep(self, tried: Tried) -> Tried:
        self.tried[tried.size] = tried
        self._way.tell(tried)
        return tried

    def _is_level(self) -> bool:
        """Whether the last doublings gave nothing that is worth it."""
        rates = _rates(self.tried.values())[-LEVEL_AFTER - 1 :]
        gains = [after / before for (_, before), (_, after) in pairwise(rates)]
        return len(gains) == LEVEL_AFTER and max(gains) < 1 + WORTH_IT

    def _is_steep(self) -> bool:
        """Whether smaller sizes are known to cost: below what is as good as the best, and below the knee."""
        rates = _rates(self.tried.values())
        steep = [one for one, two in pairwise(rates) if not _is_flat(one, two)]
        best = max((rate for _, rate in rates), default=0.0)
        return rates[:1] == steep[:1] and bool(steep) and rates[0][1] < (1 - WORTH_IT) * best


_OUTCOMES: dict[str, Outcome] = {
    "out-of-memory": "out-of-memory",
    "failed": "failed",
    "no-step": "too-few-steps",
    "deadline": "no-time",
    "interrupted": "no-time",
}


def limit_of(tried: Iterable[Tried], way: Way) -> float | None:
    """What may be taken: all that torch could have of a device; of a machine's memory a part stays free, for
    what else runs there."""
    peaks = next((one.swept.peaks for one in tried if one.swept is not None), Peaks())
    if peaks.of != "resident":
        return peaks.limit
    return None if way.limit is None else NEARLY_ALL * way.limit


def samples_of(swept: Swept, size: int, varied: FedLoader | None) -> float | None:
    """Samples a step: what the loader that feeds it gave. Where none says how many that are, each batch has
    as many as the argument says."""
    told = max(swept.fed, key=lambda one: one.batches).size if swept.fed else None
    each = size if told is None and varied is None else told
    batches = swept.batches if swept.fed else 1.0
    return None if each is None or batches is None else each * batches


def peaks_of(tried: Iterable[Tried]) -> dict[int, Peaks]:
    """What each size was seen to take."""
    return {one.size: one.swept.peaks for one in tried if one.swept is not None}


def _rates(tried: Iterable[Tried]) -> list[tuple[int, float]]:
    return sorted((one.size, one.rate) for one in tried if one.rate is not None)


def _is_flat(smaller: tuple[int, float], larger: tuple[int, float]) -> bool:
    """Whether a batch k times as large gives less than the root of k times the samples a second."""
    return log(larger[1] / smaller[1]) < MAJORITY_SHARE * log(larger[0] / smaller[0])


class Shape(msgspec.Struct, frozen=True):
    """What two points or more say together."""

    best: int
    smallest: int  # within 5 % of the best
    plateau: tuple[int, int]  # the sizes from the first to the last that are
    levels: bool  # whether larger sizes were tried and gave no more
    knee: int | None  # the first from which on a larger batch gives less than the root of its size
    knee_is_lower: bool  # the smallest that was tried lies above it


def shape_of(tried: Sequence[Tried]) -> Shape | None:
    rates = _rates(tried)
    if len(rates) < 2:
        return None
    best = max(rates, key=lambda one: one[1])
    good = [size for size, rate in rates if rate >= (1 - WORTH_IT) * best[1]]
    # Behind the last doubling that gives much: one that gives little may do so by chance.
    at = max((at + 1 for at, (one, two) in enumerate(pairwise(rates)) if not _is_flat(one, two)), default=0)
    knee = rates[at][0] if at + 1 < len(rates) else None
    lower = knee is not None and at == 0 and knee > 1
    levels = good[0] < rates[-1][0]
    return Shape(best[0], good[0], (good[0], good[-1]), levels, knee, lower)


def largest_predicted(tried: Sequence[Tried], way: Way, limit: float | None) -> int | None:
    """Of the sizes of this sweep the largest whose peak is predicted to fit, with all that torch reserves for
    it. None: nobody knows the limit."""
    known, recorded = peaks_of(tried), way.recorded()
    failed = min((one.size for one in tried if one.outcome == "out-of-memory"), default=inf)
    if limit is None or not known:
        return None
    found = None
    doubled = (
        *(way.own >> power for power in DOUBLINGS),
        way.own,
        *(way.own << power for power in DOUBLINGS),
    )
    for size in way.given or [one for one in doubled if one]:
        peaks = predicted(known, size, recorded)
        peak = max((one for one in (peaks.high, peaks.reserved) if one), default=None)
        is_there = way.samples is None or size <= way.samples
        if size < failed and is_there and peak is not None and peak <= limit:
            found = max(found or 0, size)
    return found
