"""Which steps of a long trace are looked at closely: a run of typical ones, as many as can be afforded.

Step times, device busy time and trace quality are of the whole file. The budget needs every op of a
step and its neighbours, and a hundred steps say no more about that than ten.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from itertools import pairwise

import msgspec
import numpy as np
from msgspec.structs import replace

from findwall.model.events import DEVICE_KINDS, Kind, Timeline
from findwall.model.intervals import I64
from findwall.structure.left_out import (
    NOTHING_LEFT_OUT,
    LeftOut,
    find_left_out,
    start_up_by_step,
    without_left_out,
)
from findwall.structure.links import Links, link_launches
from findwall.structure.steps import Steps, find_steps, step_numbers

# Events looked at closely: a trace of more is cut to typical steps, so that reading stays a matter of
# seconds.
CLOSE_LOOK_EVENTS = 50_000
FEWEST_STEPS_KEPT = 3  # so that one odd step does not speak for the job; chosen by hand


class Whole(msgspec.Struct, frozen=True):
    """The whole trace of a rank, as far as it is cheap to know."""

    timeline: Timeline  # as recorded
    links: Links
    steps: Steps  # of what is told of it
    told: Timeline  # without what is not the step; its rows are those of `timeline`
    left_out: LeftOut

    @property
    def start_up_share(self) -> float:
        """Of the step that has least of it: how much of what was recorded was start-up."""
        if len(self.left_out) == 0 or self.steps.count == 0:
            return 0.0
        once = start_up_by_step(self.left_out, self.steps)
        return float((once / np.maximum(once + self.steps.lengths, 1)).min())


def survey(timeline: Timeline, on_cores: bool = False, apart: Set[int] = frozenset()) -> Whole:
    """Find the steps, then find them again in what is left without start-up and cut-away work.

    `apart`: numbers of steps that are unlike those that were timed, as they held an evaluation. The longest
    run of steps between them is looked at, as if the rest had not been recorded.
    """
    links = link_launches(timeline)
    steps = find_steps(timeline, links)
    run = _longest_run(step_numbers(timeline), apart)
    if run is not None:
        timeline = _cut(timeline, steps, *run)
        links = link_launches(timeline)
        steps = find_steps(timeline, links)
    left_out = NOTHING_LEFT_OUT if on_cores else find_left_out(timeline, links, steps)
    if len(left_out) == 0:
        return Whole(timeline, links, steps, timeline, left_out)
    told = without_left_out(timeline, left_out)
    return Whole(timeline, links, find_steps(told, links), told, left_out)


def _longest_run(numbers: I64, apart: Set[int]) -> tuple[int, int] | None:
    """Places of the first step and of the one that closes the last; None where all of them may stay, or
    none would."""
    odd = [at for at, number in enumerate(numbers.tolist()) if number in apart]
    if not odd:
        return None
    ends = [-1, *odd, len(numbers) - 1]  # the last step of the trace has none to close it
    runs = [(before + 1, after) for before, after in pairwise(ends) if after > before + 1]
    return max(runs, key=lambda run: run[1] - run[0], default=None)


def representative(whole: Whole, kinds: Sequence[str] = ()) -> Timeline:
    """The timeline itself, or the part of it around a run of steps of about the mean length.

    `kinds`: of every step found, where they are known. Of several, one of each is in the run.
    """
    count, events = whole.steps.count, len(whole.told.events)
    if events <= CLOSE_LOOK_EVENTS or count <= FEWEST_STEPS_KEPT or whole.steps.found_by == "span":
        return whole.told
    keep = min(max(FEWEST_STEPS_KEPT, count * CLOSE_LOOK_EVENTS // events), count)
    if keep >= count:
        return whole.told
    if len(set(kinds[:count])) > 1:
        return _cut(whole.told, whole.steps, *_one_of_each(kinds[:count], keep))
    lengths = whole.steps.lengths.astype(np.float64)
    means = np.convolve(lengths, np.ones(keep) / keep, mode="valid")
    first = int(np.argmin(np.abs(means - lengths.mean())))
    return _cut(whole.told, whole.steps, first, first + keep)


def _one_of_each(kinds: Sequence[str], least: int) -> tuple[int, int]:
    """The shortest run of steps with all kinds in it, of so many steps at least."""
    count, wanted = len(kinds), set(kinds)
    runs = ((first, last) for first in range(count) for last in range(first + least, count + 1))
    whole = (run for run in runs if set(kinds[run[0] : run[1]]) == wanted)
    return min(whole, key=lambda run: run[1] - run[0], default=(0, count))


def _cut(timeline: Timeline, steps: Steps, first: int, last: int) -> Timeline:
    """Rows launched in steps first to last, and the first kernels after them that close the last step."""
    events = timeline.events
    start, end = int(steps.host[first]), int(steps.host[min(last + 1, len(steps.host) - 1)])
    device = events.is_kind(*DEVICE_KINDS, Kind.DEVICE_ANNOTATION, Kind.SYNC)
    keep = ~device & (events.start >= start) & (events.start < end)
    of_row = steps.of_row
    keep |= device & (of_row >= first) & (of_row <= last)
    return replace(timeline, events=events.take(np.flatnonzero(keep)))
