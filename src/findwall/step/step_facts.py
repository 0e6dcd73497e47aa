"""What a trace alone says of a rank's step: who launched what, where steps begin and end, what the host did
meanwhile, in which order the device ran. Only the columns are here; the other files of the room fill them."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from typing import TypeVar

import msgspec
import numpy as np

from findwall.model.events import Bool, Timeline
from findwall.model.intervals import F64, I64, Intervals, union
from findwall.model.measured_run import Rank, Run


class Links(msgspec.Struct, frozen=True):
    """Row-to-row references, one entry an event; -1 where there is none."""

    parent: I64  # host rows: the innermost host row around this one on its thread
    launch: I64  # device rows: the runtime call that issued it
    op: I64  # device rows: the innermost op around that call; host rows: the nearest op above or itself
    backward: Bool  # host rows: of the autograd engine
    forward: I64  # those rows: the op of the forward pass whose gradient they work out
    kernels_without_launch: int  # what was queued before the recording began is not counted
    launches_without_kernel: int
    ambiguous: int  # device rows whose correlation id several calls carry: matched by process and order

    def ancestors(self, row: int) -> list[int]:
        """The rows around a host row, innermost first."""
        found = []
        row = int(self.parent[row])
        while row >= 0:
            found.append(row)
            row = int(self.parent[row])
        return found


class Steps(msgspec.Struct, frozen=True):
    """The steps of one rank on its busiest device."""

    found_by: str  # "ProfilerStep", "optimizer", "range", "period" or "span"
    device: int  # -1 when there are no device events
    boundaries: I64  # device times: n + 1 of them for n steps
    host: I64  # host start of every step found, and the end of the last
    of_row: I64  # device rows: the step that launched it, -1 none
    without_device_work: tuple[str, ...]
    notes: tuple[str, ...]
    closed: bool = False  # the last step ends with the file: none follows that shows where

    @property
    def count(self) -> int:
        return max(len(self.boundaries) - 1, 0)

    @property
    def start(self) -> int:
        return int(self.boundaries[0]) if len(self.boundaries) else 0

    @property
    def end(self) -> int:
        return int(self.boundaries[-1]) if len(self.boundaries) else 0

    @property
    def lengths(self) -> I64:
        return np.diff(self.boundaries)


class Blocking(msgspec.Struct, frozen=True):
    """Calls that make the host wait for the device, in host order."""

    row: I64
    start: I64
    end: I64
    owner: I64  # -> OWNERS


class Plans(msgspec.Struct, frozen=True):
    """Stretches of set-up in host order. All columns have one length."""

    row: I64  # the op
    start: I64
    end: I64

    def __len__(self) -> int:
        return len(self.row)


class Host(msgspec.Struct, frozen=True):
    """Disjoint activities of the launching threads, by rank, and the weight of recorded events."""

    threads: I64
    activities: dict[str, Intervals]  # cause -> when the host did that; earlier keys win
    once: Intervals  # start-up behind which the device still had work: no part of the step
    working: Intervals  # any op or runtime call open
    blocking: Blocking
    plans: Plans  # inside ops: a library sets itself up for a new shape
    trials: I64  # ops in which it tries kernels out for one
    questions: I64  # ops that run only so that the host can look, the reads with them
    event_time: I64  # start of every host event that costs the profiler something
    event_weight: I64  # cumulative weight, one longer than event_time; thousandths of an event

    def weight_before(self, at: I64) -> I64:
        """Events recorded until each time, in thousandths."""
        return self.event_weight[np.searchsorted(self.event_time, at, side="left")]


class Queue(msgspec.Struct, frozen=True):
    """The rows, in the order they started. All columns have one length."""

    row: I64
    step: I64  # 0 … steps - 1
    start: I64
    end: I64
    stream: I64
    launched: Bool  # the trace has its launch call
    issued: I64  # start of that call; before all others where there is none
    idle_from: I64  # when the device ran out of work before this row
    idle_until: I64  # when it had work again: with this row, or with its like of the next steps
    since_free: I64  # from the end of the row before it on its stream to its start; negative: they overlap
    since_issue: I64  # from its launch to its start
    paced: Bool  # a copy from or to pageable memory: its length is the host's, not the device's
    elsewhere: F64  # share of the gap in which this process has another device at work
    device: int
    steps: int
    begins: int  # when the first of the steps begins, on either side
    opens: int  # host time of their first launch
    closes: int  # and of the first one of the step after them
    repeats: bool  # the trace goes on into the next step: these come again
    used: I64  # which of the steps that were found these are

    def positions(self, rows: I64) -> I64:
        """Where rows of this queue stand in it."""
        order = np.argsort(self.row, kind="stable")
        return order[np.searchsorted(self.row[order], rows)]


# Why a stretch of a recording is not the step.
LOADING, CONTEXT, MEMORY, CAPTURE, COMPILING = "loading", "context", "memory", "capture", "compiling"
CUT_AWAY, NOT_RECORDED = "cut-away", "not-recorded"
START_UP = (LOADING, CONTEXT, MEMORY, CAPTURE, COMPILING)
REASONS = (*START_UP, CUT_AWAY, NOT_RECORDED)


class LeftOut(msgspec.Struct, frozen=True):
    """The stretches, in order. All columns have one length."""

    start: I64  # in the file's own time
    end: I64
    reason: I64  # -> REASONS
    row: I64  # the call or range behind it; of what was cut away the first row seen
    hidden: Intervals  # of the same calls what the device did not wait for, on the clock of what is left

    def __len__(self) -> int:
        return len(self.start)

    def of(self, *reasons: str) -> LeftOut:
        wanted = np.isin(self.reason, [REASONS.index(one) for one in reasons])
        return LeftOut(
            self.start[wanted], self.end[wanted], self.reason[wanted], self.row[wanted], self.hidden
        )

    @property
    def length(self) -> int:
        """Time left out: what several reasons cover counts once."""
        return union(self.start, self.end).length


def start_up_by_step(left_out: LeftOut, steps: Steps) -> I64:
    """Start-up that was left out of each counted step, in ns. `steps` are those of the cleaned timeline."""
    gone = union(left_out.start, left_out.end)
    only = left_out.of(*START_UP)
    once = union(only.start, only.end)
    at = once.start - gone.covered_before(once.start)
    # What the host does for the first step lies before the device begins it.
    of_step = np.maximum(np.searchsorted(steps.boundaries[1:], at, side="right"), 0)
    found: I64 = np.bincount(of_step, once.end - once.start, minlength=steps.count + 1).astype(np.int64)
    return found[: steps.count]


class Whole(msgspec.Struct, frozen=True):
    """The whole trace of a rank, as far as it is cheap to know."""

    timeline: Timeline  # as recorded
    links: Links
    steps: Steps  # of what is told of it
    told: Timeline  # without what is not the step; its rows are those of `timeline`
    left_out: LeftOut
    cold_ms: tuple[float, ...] = ()  # of the steps in front that were not warm; the timeline is without them

    @property
    def start_up_ns(self) -> float:
        """What was left out as start-up, of the step that has least of it. All that could be told of its
        calls is gone; what else of such a step is warm-up nobody knows."""
        if len(self.left_out) == 0 or self.steps.count == 0:
            return 0.0
        return float(start_up_by_step(self.left_out, self.steps).min())


class Called(msgspec.Struct, frozen=True):
    """Lines of the job's own that called the ops of the step."""

    lines: list[str]  # "train.py:88"
    row: I64  # a host row each: into `lines`; -1 unknown

    def at(self, row: int) -> str | None:
        return self.lines[self.row[row]] if row >= 0 and self.row[row] >= 0 else None


class StepFacts(msgspec.Struct, frozen=True, dict=True):
    """One rank with device events: the step as its trace has it. Who needs no more asks for no more."""

    run: Run
    rank: Rank  # of the run: whose facts these are
    timeline: Timeline
    links: Links
    steps: Steps
    host: Host
    queue: Queue
    whole: Whole  # the trace these steps are taken from
    called: Called | None  # None: nobody saw Python beside the ops
    roles: I64  # what the op of each host row is for, into ROLES; -1 unknown (`dataflow/roles.py`)


F = TypeVar("F", bound=StepFacts)
T = TypeVar("T")


def found_once(find: Callable[[F], T]) -> Callable[[F], T]:
    """What another module finds in facts: looked for when it is first asked for, and kept with them as their
    own cached properties are."""
    name = f"{find.__module__}.{find.__qualname__}"  # two modules may call theirs the same

    @wraps(find)
    def found(facts: F) -> T:
        kept: dict[str, T] = vars(facts)
        if name not in kept:
            kept[name] = find(facts)
        return kept[name]

    return found


def rows_matching(timeline: Timeline, rows: I64, pattern: re.Pattern[str]) -> I64:
    """Of these rows those in whose name the pattern is found."""
    return rows[timeline.bears(pattern, rows)]


OWNERS = ("copy-exposed", "host-sync", "allocator")  # who a blocking call belongs to
