"""Steps that no profiler marks: a range of the job's own that recurs, or a sequence of kernels that does.

A range that recurs and holds what is launched may be a step. Layers, parameters and requests may be ranges
too, and may be numbered. Steps hold nearly all that the device does in the whole recording, and nearly all of
the host's time from its first launch to its last; no number that they bear comes twice; and none of them is a
part of one execution: of an op, of a graph's launch, of a module's call or of an optimizer's step.
"""

from __future__ import annotations

import re

import msgspec
import numpy as np

from findwall.model.catalogue import MAJORITY_SHARE, NEARLY_ALL
from findwall.model.events import DEVICE_KINDS, Kind, Timeline
from findwall.model.intervals import I64
from findwall.step.step_facts import Links

FEWEST_REPEATS = 3  # of anything that recurs: fewer are chance. Chosen by hand.
_STEP = re.compile(r"(?:^|[^a-z])(?:step|iter(?:ation)?|batch)(?:[^a-z]|$)", re.IGNORECASE)
_NOT_A_STEP = re.compile(
    r"optim|sched|loader|nccl|ProfilerStep|layer|block|param|module|bucket|stage|expert", re.IGNORECASE
)
# Ranges and frames that are one call, with all that is in them.
_ONE_CALL = re.compile(r"^Optimizer\.step|^nn\.Module:|forward|backward|enqueue|execut", re.IGNORECASE)
_NUMBER = re.compile(r"\d+")


class _Issued(msgspec.Struct, frozen=True):
    """Device rows in the order they were launched; what nobody is known to have launched is in `total`."""

    at: I64
    until: I64  # device time of all rows so far, one longer than `at`
    total: int

    def share(self, start: I64, end: I64) -> float:
        """Of all device time, what was launched in these stretches (disjoint, in order)."""
        took = self.until[np.searchsorted(self.at, end)] - self.until[np.searchsorted(self.at, start)]
        return float(took.sum()) / max(self.total, 1)


def recurring_ranges(timeline: Timeline, links: Links, device: int) -> I64:
    """The ranges around steps, in order; none where no range can be one."""
    events = timeline.events
    rows = timeline.rows(Kind.ANNOTATION)
    best, length_best = rows[:0], (False, 0.0)
    issued = _issued(timeline, links, device)
    if len(rows) == 0 or len(issued.at) == 0:
        return best
    families = [_NUMBER.sub("#", name) for name in timeline.names]
    by_family: dict[str, list[int]] = {}
    for name in np.unique(events.name[rows]).tolist():
        by_family.setdefault(families[name], []).append(name)
    for family, names in by_family.items():
        if _NOT_A_STEP.search(family):
            continue
        mine = rows[np.isin(events.name[rows], names)]
        mine = mine[np.argsort(events.start[mine], kind="stable")]
        named = _STEP.search(family) is not None
        length = float(events.duration[mine].sum())
        if (named, length) > length_best and _are_steps(timeline, mine, len(names), issued, named):
            best, length_best = mine, (named, length)
    return best


def _issued(timeline: Timeline, links: Links, device: int) -> _Issued:
    events = timeline.events
    rows = timeline.rows(*DEVICE_KINDS)
    rows = rows[events.device[rows] == device]
    launched = links.launch[rows] >= 0
    # What runs before the first row that was launched here is left of earlier work, launched before it began.
    own = events.start[rows] >= events.start[rows[launched]].min(initial=np.iinfo(np.int64).max)
    total = int(events.duration[rows[own]].sum())
    rows = rows[launched]
    at = events.start[links.launch[rows]]
    order = np.argsort(at, kind="stable")
    return _Issued(at[order], np.concatenate([[0], np.cumsum(events.duration[rows[order]])]), total)


def _are_steps(timeline: Timeline, rows: I64, names: int, issued: _Issued, named: bool) -> bool:
    """Whether these ranges, in order, are steps. What is called a step may leave out the loader or the
    optimizer, which come between; what is called anything else may not."""
    events = timeline.events
    if len(rows) < FEWEST_REPEATS or 1 < names < len(rows):
        return False  # a number that comes again counts something inside a step
    start, end = events.start[rows], events.end[rows]
    if (start[1:] < end[:-1]).any() or len(np.unique(events.process[rows])) > 1:
        return False
    if issued.share(start, end) < (MAJORITY_SHARE if named else NEARLY_ALL):
        return False
    if issued.share(start[:1], end[-1:]) < NEARLY_ALL or inside_one_call(timeline, rows, start, end):
        return False
    first, last = int(issued.at[0]), int(issued.at[-1])
    held = min(last, int(end[-1])) - max(first, int(start[0]))
    return held >= NEARLY_ALL * (last - first)


def inside_one_call(timeline: Timeline, rows: I64, start: I64, end: I64) -> bool:
    """Whether any of these stretches lies inside one op or call, or inside a range or frame that is one, on
    the thread of these rows."""
    events = timeline.events
    around = np.flatnonzero(events.thread == events.thread[rows[0]])
    around = around[events.is_kind(Kind.OP, Kind.RUNTIME, Kind.ANNOTATION, Kind.PYTHON)[around]]
    calls = events.is_kind(Kind.OP, Kind.RUNTIME)[around]
    around = around[calls | timeline.bears(_ONE_CALL, around)]
    # Some recorders write a range twice, as a range and as an op.
    twice = np.isin(events.start[around], start) & np.isin(events.end[around], end)
    around = around[~twice]
    if len(around) == 0:
        return False
    around = around[np.argsort(events.start[around], kind="stable")]
    reach = np.maximum.accumulate(events.end[around])
    at = np.searchsorted(events.start[around], start, side="right") - 1
    return bool(((at >= 0) & (reach[at] >= end)).any())


# -- steps from the kernels alone: the sequence that repeats, in launch order -----------------------------
#
# A model's layers repeat too. A true step repeats *everything*: each kernel name must occur equally often
# in every repeat, or the repeat is a layer and not a step. Nor does a step begin inside an op, a graph's
# launch or an optimizer's step that another one began in.


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
    order = np.lexsort((events.start[rows], events.start[links.launch[rows]]))
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
