"""What of a recording is not the step: start-up, waiting for work that the file does not hold, and pauses.

Three kinds of stretches, all only as far as nothing runs on any device of the file, so that no work is lost:

- *Start-up.* What happens once, call by call: the first launch of a kernel loads its code, the first call
  into a library creates a context, the first call of an op sets its library up, memory is asked from the
  driver until there is enough of it, a graph is captured, a function is compiled for the first time. Not the
  launch that waits before a full queue: the device is busy then.
- *Cut away.* The beginning of a slice of a longer trace. The first row of the stream that does most of the
  work had been launched and did not start for a long time, or launches before the file's first device row
  have no row at all: the device was working on what was cut away.
- *Not recorded.* The profiler was off: the numbers of the steps jump, so others came between. Where no steps
  could be told apart, nothing says that a pause in which no side does anything is part of one. (Nsight
  Systems records a process as a whole: what it leaves silent is the job's.)

A row that was queued and did not start in the *middle* of a step is something else. Its stream had rows in
the file before it, so the recording had begun: device work of the same time was lost or belongs to another
process, nobody knows how long it is part of the step, and the replay calls that time unknown. So it is with
streams that wait for an event: only the compute stream's beginning is the beginning of the file.

The stretches are taken out of the clock of both sides, as if they had taken no time. What of start-up the
device did not wait for, because its queue still held work, is no idle time; but it costs the host its lead,
and the replay leaves it out of the host's time.
"""

from __future__ import annotations

import re

import numpy as np
from msgspec.structs import replace

from findwall.model.catalogue import MENTION_SHARE, WAITED_FOR_SHARE, WORTH_IT
from findwall.model.events import DEVICE_KINDS, TORCH, Kind, Timeline
from findwall.model.intervals import EMPTY, I64, Intervals, intersection, union
from findwall.step.call_names import ALLOCATOR, COMPILE, FREE
from findwall.step.library_set_up import first_set_ups, firsts
from findwall.step.links import LAUNCH, PAGEABLE, launches_before
from findwall.step.recurring import FEWEST_REPEATS
from findwall.step.step_bounds import compute_stream, step_numbers
from findwall.step.step_facts import (
    CAPTURE,
    COMPILING,
    CONTEXT,
    CUT_AWAY,
    LOADING,
    MEMORY,
    NOT_RECORDED,
    REASONS,
    START_UP,
    LeftOut,
    Links,
    Steps,
)

# After its launch returned: a row that starts later did not wait for its launch. Far beyond latency; chosen
# by hand.
QUEUED_NS = 100_000

_MODULE = re.compile(r"^(cu|cuda|hip)(Module|Library)Load|^(cu|hip)LinkComplete", re.IGNORECASE)
# Calls that may wait for the device, for memory or for the host: their length is not set-up.
_MAY_WAIT = re.compile(
    r"Synchronize|Memcpy|Memset|MemPrefetch|Malloc|Free|HostAlloc|HostRegister|^cuMem|Launch|Wait|Query"
    r"|Capture|Barrier",
    re.IGNORECASE,
)
_RUNTIME = re.compile(r"^(cuda|cu|hip)[A-Z]")
_BEGIN_CAPTURE = re.compile(r"^(cuda|cu|hip)StreamBeginCapture")
_CAPTURED = re.compile(r"^(cuda|cu|hip)(StreamEndCapture|GraphInstantiate)")
_FIRST_COMPILE = re.compile(r"compile_id=\d+/0\b")

Stretches = tuple[I64, I64, I64]  # rows, starts, ends


_NONE = np.empty(0, np.int64)
NOTHING_LEFT_OUT = LeftOut(_NONE, _NONE, _NONE, _NONE, EMPTY)


def find_left_out(timeline: Timeline, links: Links, steps: Steps) -> LeftOut:
    """What of the counted steps is not the step."""
    events = timeline.events
    device = timeline.rows(*DEVICE_KINDS)
    if steps.device < 0 or len(device) == 0 or steps.count == 0:
        return NOTHING_LEFT_OUT
    idle = union(events.start[device], events.end[device]).gaps(
        int(events.start.min()), int(events.end.max())
    )
    step = float(steps.lengths.mean())
    least = int(WAITED_FOR_SHARE * step)  # of a call: nobody waits for less
    once = [
        (LOADING, *_first_launches(timeline, links, least)),
        (LOADING, *_now_and_then(steps, *_module_loads(timeline, least))),
        (CONTEXT, *_contexts(timeline, least)),
        (CAPTURE, *_now_and_then(steps, *_captures(timeline))),
        (COMPILING, *_now_and_then(steps, *_first_compiles(timeline, least))),
    ]
    is_cold = _joined(once).length >= MENTION_SHARE * step
    once.append((MEMORY, *_first_memory(timeline, steps, is_cold)))
    once.append((CONTEXT, *first_set_ups(timeline, links, is_cold)))
    if _joined(once).length < MENTION_SHARE * step:  # first calls of a warm process
        once = []
    missing = [
        (CUT_AWAY, *_cut_away(timeline, links, steps)),
        (NOT_RECORDED, *_not_recorded(timeline, steps)),
    ]
    return _idle_parts(_joined([*once, *missing]), idle)


def without_left_out(timeline: Timeline, left_out: LeftOut) -> Timeline:
    """The timeline on a clock that stands still while something is left out. Rows keep their numbers."""
    gone = union(left_out.start, left_out.end)
    events = timeline.events
    start, end = (at - gone.covered_before(at) for at in (events.start, events.end))
    return replace(timeline, events=replace(events, start=start, end=end))


def _joined(found: list[tuple[str, I64, I64, I64]]) -> LeftOut:
    """Stretches of several reasons: rows, starts and ends of each."""
    reason = np.concatenate([np.full(len(rows), REASONS.index(name)) for name, rows, _, _ in found])
    rows, start, end = (np.concatenate([one[at] for one in found]) for at in (1, 2, 3))
    return LeftOut(start, end, reason, rows, EMPTY)


def _idle_parts(whole: LeftOut, idle: Intervals) -> LeftOut:
    """Of each stretch what lies in idle time; on the remaining clock, what of start-up does not."""
    parts = [(_NONE, _NONE, _NONE, _NONE)]
    for at in range(len(whole)):
        part = intersection(union(whole.start[at : at + 1], whole.end[at : at + 1]), idle)
        of = np.full(len(part), at)
        parts.append((part.start, part.end, whole.reason[of], whole.row[of]))
    start, end, reason, row = (np.concatenate(column) for column in zip(*parts, strict=True))
    gone = union(start, end)
    once = whole.of(*START_UP)
    rest = union(once.start, once.end) - gone
    hidden = union(rest.start - gone.covered_before(rest.start), rest.end - gone.covered_before(rest.end))
    order = np.argsort(start, kind="stable")
    return LeftOut(start[order], end[order], reason[order], row[order], hidden)


def _calls(timeline: Timeline, pattern: re.Pattern[str], least: int = 0) -> I64:
    rows = timeline.rows_named(pattern, Kind.RUNTIME)
    return rows[timeline.events.duration[rows] > least]


def _first_launches(timeline: Timeline, links: Links, least: int) -> Stretches:
    """Launches that are the first of their kernel, or whose kernel is not in the file: what they take longer
    than launches do.

    Code is loaded before the kernel can start: what a launch does after that (a graph is handed over piece by
    piece) is launching.
    """
    events = timeline.events
    rows = timeline.rows(Kind.KERNEL)
    rows = rows[links.launch[rows] >= 0]
    issued = events.start[links.launch[rows]]
    first = links.launch[rows[firsts(events.name[rows].astype(np.int64), issued)]]
    calls = _calls(timeline, LAUNCH)
    later = events.duration[calls[~np.isin(calls, first)]]
    usual = int(np.median(later)) if len(later) else int(events.duration[calls].min(initial=least))
    device = timeline.rows(*DEVICE_KINDS)
    device = device[links.launch[device] >= 0]
    calls = calls[np.isin(calls, first) | ~np.isin(calls, links.launch[device])]
    until = events.end.copy()
    np.minimum.at(until, links.launch[device], events.start[device])
    calls = calls[until[calls] - events.start[calls] - usual > least]
    return calls, events.start[calls] + usual, until[calls]


def _module_loads(timeline: Timeline, least: int) -> Stretches:
    """Calls that load code, other than for a compiler: what that loads is part of compiling."""
    events = timeline.events
    rows = _calls(timeline, _MODULE, least)
    ranges = timeline.rows_named(COMPILE, Kind.ANNOTATION, Kind.OP)
    compiling = union(events.start[ranges], events.end[ranges])
    rows = rows[compiling.covered_within(events.start[rows], events.end[rows]) == 0]
    return rows, events.start[rows], events.end[rows]


def _contexts(timeline: Timeline, least: int) -> Stretches:
    """Calls that should take no time and are the first of their name; of those that ask for memory, the first
    where it takes longer than all others together: whichever call comes first creates the context."""
    events = timeline.events
    rows = _calls(timeline, _RUNTIME)
    first = rows[firsts(events.name[rows].astype(np.int64), events.start[rows])]
    name, took = events.name[first], events.duration[first]
    memory = timeline.named(ALLOCATOR, rows)[name]
    others = np.bincount(events.name[rows], events.duration[rows], len(timeline.names))[name] - took
    plain = ~(timeline.named(_MAY_WAIT, rows) | timeline.named(_MODULE, rows))[name]
    found = first[(took > least) & (plain | (memory & (took > others)))]
    return found, events.start[found], events.end[found]


def _first_memory(timeline: Timeline, steps: Steps, is_cold: bool) -> Stretches:
    """Calls for the driver's memory, of steps in front that later ones are without. In one step alone they
    are its own only where memory goes back and forth and nothing else is start-up: what it got once it may
    have kept."""
    events = timeline.events
    rows = _calls(timeline, ALLOCATOR)
    rows = rows[np.argsort(events.start[rows], kind="stable")]
    if len(steps.host) > 2:
        holding = np.unique(np.searchsorted(steps.host, events.start[rows], side="right") - 1)
        holding = holding[holding >= 0]
        once = len(holding) < len(steps.host) - 1 and len(holding) == holding.max(initial=-1) + 1
    else:
        gives = timeline.bears(FREE, rows)
        once = is_cold or int((gives[:-1] & ~gives[1:]).sum()) < FEWEST_REPEATS
    rows = rows if once else _NONE
    return rows, events.start[rows], events.end[rows]


def _captures(timeline: Timeline) -> Stretches:
    """From the begin of a capture to its end, or to the graph that is made of it."""
    events = timeline.events
    begun = _calls(timeline, _BEGIN_CAPTURE)
    begun = begun[np.argsort(events.start[begun], kind="stable")]
    done = np.sort(events.end[_calls(timeline, _CAPTURED)])
    if len(begun) == 0 or len(done) == 0:
        return _NONE, _NONE, _NONE
    following = np.append(events.start[begun[1:]], np.iinfo(np.int64).max)
    until = done[np.maximum(np.searchsorted(done, following) - 1, 0)]  # the last that belongs to it
    known = until > events.start[begun]
    return begun[known], events.start[begun[known]], until[known]


def _first_compiles(timeline: Timeline, least: int) -> Stretches:
    """Ranges in which a function is compiled for the first time; again (0/1, 0/2) is recompilation."""
    events = timeline.events
    rows = timeline.rows_named(_FIRST_COMPILE, Kind.ANNOTATION, Kind.OP)
    rows = rows[events.duration[rows] > least]
    return rows, events.start[rows], events.end[rows]


def _now_and_then(steps: Steps, rows: I64, start: I64, end: I64) -> Stretches:
    """Nothing of what several steps all do: that is part of the step."""
    if steps.count < 2 or len(np.unique(np.searchsorted(steps.host, start, side="right"))) < steps.count:
        return rows, start, end
    return _NONE, _NONE, _NONE


def _cut_away(timeline: Timeline, links: Links, steps: Steps) -> Stretches:
    """Before the first row of the compute stream: it was queued, or launches before it have no row."""
    events = timeline.events
    rows = timeline.rows(*DEVICE_KINDS)
    rows = rows[events.device[rows] == steps.device]
    mine = rows[events.stream[rows] == compute_stream(timeline, rows)]
    row = int(mine[np.argmin(events.start[mine])])
    began, call = int(events.start[row]), int(links.launch[row])
    since = began
    paced = events.kind[row] == Kind.MEMCPY and bool(timeline.named(PAGEABLE)[events.name[row]])
    if call >= 0 and not paced and began - int(events.end[call]) > QUEUED_NS:
        since = int(events.end[call])
    lost = launches_before(timeline, links)
    if len(lost):
        since = min(since, int(events.start[lost].min()))
    since = max(since, steps.start)
    if since >= began:
        return _NONE, _NONE, _NONE
    return np.array([row]), np.array([since]), np.array([began])


def _not_recorded(timeline: Timeline, steps: Steps) -> Stretches:
    """Stretches in which no row of the file is open, and after which the host goes on first (a device that
    did worked on rows that are missing): between steps whose numbers jump, and, where the whole span counts
    as one step, those that would decide what is said of it."""
    events = timeline.events
    order = np.argsort(events.start, kind="stable")
    silent = union(events.start, events.end).gaps(int(events.start.min()), int(events.end.max()))
    following = order[np.searchsorted(events.start[order], silent.end)]
    if steps.found_by == "span" and timeline.header.recorder == TORCH:
        paused = silent.end - silent.start > WORTH_IT * float(steps.lengths.sum())
    else:
        jumps = np.flatnonzero(np.diff(step_numbers(timeline)) > 1) + 1
        paused = np.isin(np.searchsorted(steps.host, silent.start, side="right"), jumps)
    paused &= ~np.isin(events.kind[following], DEVICE_KINDS)
    return following[paused], silent.start[paused], silent.end[paused]
