"""Steps from the kernels alone: the sequence that repeats, in launch order.

A model's layers repeat too. A true step repeats *everything*: each kernel name must occur equally often in
every repeat, or the repeat is a layer and not a step. Nor does a step begin inside an op, a graph's launch or
an optimizer's step that another one began in.
"""

from __future__ import annotations

import msgspec
import numpy as np

from findwall.model.catalogue import NEARLY_ALL
from findwall.model.events import Kind, Timeline
from findwall.model.intervals import I64
from findwall.structure.links import Links
from findwall.structure.recurring import FEWEST_REPEATS, inside_one_call

PLACE_KERNELS = 64  # looked at at either end, before all are


class Period(msgspec.Struct, frozen=True):
    begins: I64  # host time of each repeat's first launch
    ends: I64  # and when its last one returned
    kernels: int  # in one of them


def find_period(timeline: Timeline, links: Links, device: int) -> Period | None:
    """The repeats of the whole sequence; None where it has none, or where they are no steps."""
    events = timeline.events
    every = timeline.rows(Kind.KERNEL)
    every = every[events.device[every] == device]
    rows = every[links.launch[every] >= 0]
    if events.duration[rows].sum() < NEARLY_ALL * events.duration[every].sum():
        return None
    issued = events.start[links.launch[rows]]
    order = np.lexsort((events.start[rows], issued))
    period = _smallest_period(events.name[rows[order]])
    if period is None:
        return None
    repeats = len(rows) // period
    # A partial step at the front is an earlier step's tail.
    calls = links.launch[rows[order]][len(rows) - repeats * period :]
    begins, ends = events.start[calls[::period]], events.end[calls[period - 1 :: period]]
    if inside_one_call(timeline, calls[::period], begins[:-1], begins[1:]):
        return None
    return Period(begins, ends, period)


def _smallest_period(sequence: I64) -> int | None:
    length = len(sequence)
    counts = np.unique(sequence, return_counts=True)[1]
    if len(counts) < 2:
        return None  # one and the same kernel over and over: nothing says where a step begins
    # A step that occurs R times leaves every name a multiple of R, give or take the cut ends.
    most = int(counts.min()) + 1
    periods = np.arange(1, length // FEWEST_REPEATS + 1)
    periods = _likely_periods(sequence, periods[length // periods <= most])
    order = np.lexsort((-periods, -(length // periods)))  # most repeats first
    for period in map(int, periods[order]):
        if np.array_equal(sequence[period:], sequence[: length - period]):
            return period
    return None


def _likely_periods(sequence: I64, periods: I64) -> I64:
    """Those at which both ends of the sequence repeat: of hundreds of thousands hardly one is left."""
    length = len(sequence)
    for at in range(min(PLACE_KERNELS, length - int(periods.max(initial=0)))):
        here = sequence[periods + at] == sequence[at]
        there = sequence[length - 1 - at - periods] == sequence[length - 1 - at]
        periods = periods[here & there]
    return periods
