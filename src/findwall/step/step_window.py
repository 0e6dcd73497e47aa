"""Which steps of a long trace are looked at closely: a run of typical ones, as many as can be afforded.

Step times, device busy time and trace quality are of the whole file. The budget needs every op of a
step and its neighbours, and a hundred steps say no more about that than ten.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from itertools import pairwise

import numpy as np
from msgspec.structs import replace

from findwall.model.catalogue import FAIR_PART
from findwall.model.events import DEVICE_KINDS, Kind, Timeline
from findwall.model.intervals import I64
from findwall.step.call_names import OPTIMIZER_STEP
from findwall.step.left_out import NOTHING_LEFT_OUT, find_left_out, without_left_out
from findwall.step.links import link_launches
from findwall.step.recurring import FEWEST_REPEATS
from findwall.step.step_bounds import begun, find_steps, step_numbers
from findwall.step.step_facts import Steps, Whole, start_up_by_step
from findwall.units import NS_PER_MS

# Events looked at closely: a trace of more is cut to typical steps, so that reading stays a matter of
# seconds.
CLOSE_LOOK_EVENTS = 50_000


def survey(
    timeline: Timeline, on_cores: bool = False, apart: Set[int] = frozenset(), warm: bool = False
) -> Whole:
    """Find the steps, then find them again in what is left without start-up and cut-away work.

    `apart`: numbers of steps that are unlike those that were timed, as they held an evaluation. The longest
    run of steps between them is looked at, as if the rest had not been recorded. So it is with steps in front
    that are not warm yet, unless whoever chose the steps knows them to be (`warm`).
    """
    whole = _survey(timeline, on_cores)
    run = _longest_run(step_numbers(timeline), apart)
    if run is not None:
        whole = _survey(_cut(timeline, whole.steps, *run), on_cores)
    cold = 0 if warm else _cold_steps(whole)
    if cold == 0:
        return whole
    marked = begun(whole.told, whole.steps)
    kept = _rows_of_steps(whole.told, whole.steps, int(marked[cold]), int(marked[-1]))
    rest = _survey(replace(whole.timeline, events=whole.timeline.events.take(kept)), on_cores)
    return replace(rest, cold_ms=tuple((whole.steps.lengths[:cold] / NS_PER_MS).tolist()))


def _survey(timeline: Timeline, on_cores: bool) -> Whole:
    links = link_launches(timeline)
    steps = find_steps(timeline, links)
    left_out = NOTHING_LEFT_OUT if on_cores else find_left_out(timeline, links, steps)
    if len(left_out) == 0:
        return Whole(timeline, links, steps, timeline, left_out)
    told = without_left_out(timeline, left_out)
    return Whole(timeline, links, find_steps(told, links), told, left_out)


def _cold_steps(whole: Whole) -> int:
    """Steps in front that are still warm-up without the start-up that was left out of them: all of them take
    far longer than all that follow, and by more than those differ. They are half of the steps at most. One
    that follows alone shows no noise: then only a step that held start-up is taken for cold."""
    lengths = whole.steps.lengths
    if whole.steps.device < 0 or whole.steps.found_by == "span" or len(lengths) < 2:
        return 0
    seen = _closing_ns(whole)
    for cold in range(len(lengths) // 2, 0, -1):
        rest = lengths[cold:]
        longest = max(float(rest.max()), seen)
        noise = max(longest - float(rest.min()), FAIR_PART * longest)
        known = len(rest) > 1 or (len(whole.left_out) and start_up_by_step(whole.left_out, whole.steps)[0])
        if known and lengths[:cold].min() > longest + noise:
            return cold
    return 0


def _closing_ns(whole: Whole) -> int:
    """How long the step that only closes the last one lasted at least."""
    steps = whole.steps
    rows = np.flatnonzero(steps.of_row == begun(whole.told, steps)[-1])
    return 0 if steps.closed else int(whole.told.events.end[rows].max(initial=0)) - steps.end


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
    count = whole.steps.count
    # One odd step may not speak for the job.
    keep = max(FEWEST_REPEATS, count * CLOSE_LOOK_EVENTS // max(len(whole.told.events), 1))
    if keep >= count or whole.steps.found_by == "span":
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
    return replace(timeline, events=timeline.events.take(_rows_of_steps(timeline, steps, first, last)))


def _rows_of_steps(timeline: Timeline, steps: Steps, first: int, last: int) -> I64:
    events = timeline.events
    start, end = int(steps.host[first]), int(steps.host[min(last + 1, len(steps.host) - 1)])
    device = events.is_kind(*DEVICE_KINDS, Kind.DEVICE_ANNOTATION, Kind.SYNC)
    keep = ~device & (events.start >= start) & (events.start < end)
    keep |= device & (steps.of_row >= first) & (steps.of_row <= last)
    if steps.found_by == "optimizer":  # the call that ends where the first step begins
        calls = timeline.rows_named(OPTIMIZER_STEP, Kind.ANNOTATION, Kind.OP)
        keep[calls] |= events.end[calls] == start
    return np.flatnonzero(keep)
