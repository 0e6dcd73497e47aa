"""Where a step begins and ends, on the host and on the device, and which step a kernel belongs to.

Markers, best first: `ProfilerStep` ranges, optimizer ranges, ranges of the job's own that recur, the period
of the kernel sequence, and failing all of those the whole span as one step. A kernel belongs to the step that
launched it; on the device a step runs from its first kernel on the busiest compute stream to that of the next
step.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from findwall.model.events import DEVICE_KINDS, Bool, Kind, Timeline
from findwall.model.intervals import I64, union
from findwall.step.call_names import GRADIENT, OPTIMIZER_STEP, PROFILER_STEP
from findwall.step.links import BACKWARD, launches_before, unanswered
from findwall.step.recurring import find_period, recurring_ranges
from findwall.step.step_facts import Links, Steps

# Optimizers of one class in a step: how long an alternation is looked for. A GAN has two; chosen by hand.
MOST_ALTERNATING_OPTIMIZERS = 8
WHOLE_STEPS_NEEDED = 2  # first kernels: a step that follows a whole one closes it
_STEPS_NAMED = 5  # steps without device work that the note lists by name


class _Markers(msgspec.Struct, frozen=True):
    found_by: str
    edges: I64  # host times: n + 1 for n steps
    labels: tuple[str, ...]
    notes: tuple[str, ...] = ()


def find_steps(timeline: Timeline, links: Links) -> Steps:
    """Tell the steps apart. Always answers; `found_by` says how far to trust it."""
    device = busiest_device(timeline)
    markers = _profiler_steps(timeline) or _optimizer_steps(timeline) or _recurring(timeline, links, device)
    markers = markers or _period(timeline, links, device) or _span(timeline)
    if device < 0:  # the host's own ranges
        return _steps(markers, -1, np.full(len(timeline.events), -1, np.int64), markers.edges)
    return _device_steps(timeline, links, markers, device)


def busiest_device(timeline: Timeline) -> int:
    """The device with the most work of this rank, -1 if there is none."""
    rows = timeline.rows(*DEVICE_KINDS)
    if len(rows) == 0:
        return -1
    found, index = np.unique(timeline.events.device[rows], return_inverse=True)
    return int(found[int(np.argmax(np.bincount(index, timeline.events.duration[rows])))])


def _profiler_steps(timeline: Timeline) -> _Markers | None:
    rows = timeline.rows_named(PROFILER_STEP, Kind.ANNOTATION, Kind.OP)
    if len(rows) == 0:
        return None
    events = timeline.events
    rows = _one_process(timeline, rows)
    rows = rows[np.argsort(events.start[rows], kind="stable")]
    edges = np.append(events.start[rows], events.end[rows[-1]])
    labels = tuple(timeline.name_of(row) for row in rows.tolist())
    return _Markers("ProfilerStep", edges, labels)


def step_numbers(timeline: Timeline) -> I64:
    """The number that each marked step bears; nothing where steps bear none."""
    found = _profiler_steps(timeline)
    numbers = [PROFILER_STEP.match(label) for label in found.labels] if found is not None else []
    return np.array([int(one[1]) if one and one[1] else -1 for one in numbers], np.int64)


def _one_process(timeline: Timeline, rows: I64) -> I64:
    """In a merged file, the markers of the process that has most of them."""
    process = timeline.events.process[rows]
    found, counts = np.unique(process, return_counts=True)
    mine: I64 = rows[process == found[int(np.argmax(counts))]]
    return mine


def _optimizer_steps(timeline: Timeline) -> _Markers | None:
    """A step ends where its optimizer call ends. Several optimizers: the last of the round counts."""
    rows = _outside_backward(timeline, timeline.rows_named(OPTIMIZER_STEP, Kind.ANNOTATION, Kind.OP))
    if len(rows) < 2:
        return None
    events = timeline.events
    rows = _one_process(timeline, rows)
    rows = rows[np.argsort(events.start[rows], kind="stable")]
    names, counts = np.unique(events.name[rows], return_counts=True)
    rarest = names[counts == counts.min()]
    last = rows[np.isin(events.name[rows], rarest)]
    last = last[events.name[last] == events.name[last[-1]]]
    last = last[_ends_round(timeline, last)]
    if len(last) < 2:
        return None
    every = _calls_a_step(timeline, last)
    edges = events.end[last[(len(last) - 1) % every :: every]]
    labels = tuple(f"step {index}" for index in range(len(edges) - 1))
    several = f", {every} per step because what they train alternates" if every > 1 else ""
    note = f"No ProfilerStep ranges: the optimizer's calls tell the steps apart{several}."
    return _Markers("optimizer", edges, labels, (note,))


def _ends_round(timeline: Timeline, calls: I64) -> Bool:
    """Of optimizer calls in order, those that end a step: gradients are worked out before the next one.

    Where the trace has no backward pass any op counts.
    """
    events = timeline.events
    backward = timeline.rows_named(BACKWARD, Kind.OP)
    ops = np.sort(events.start[backward if len(backward) else timeline.rows(Kind.OP)])
    done = np.searchsorted(ops, events.end[calls[:-1]], side="left")
    return np.append(np.searchsorted(ops, events.start[calls[1:]], side="left") > done, True)


def _outside_backward(timeline: Timeline, calls: I64) -> I64:
    """Calls that no gradient's hook makes: an optimizer of one parameter, called inside the backward pass,
    ends no step."""
    events = timeline.events
    rows, inside = timeline.rows_named(BACKWARD, Kind.OP), np.zeros(len(calls), bool)
    for thread in np.unique(events.thread[calls]).tolist():
        mine = rows[events.thread[rows] == thread]
        open_then = union(events.start[mine], events.end[mine])
        within = open_then.covered_within(events.start[calls], events.end[calls]) >= events.duration[calls]
        inside |= (events.thread[calls] == thread) & within
    return calls[~inside]


def _calls_a_step(timeline: Timeline, calls: I64) -> int:
    """Several optimizers of one class, each with a backward pass of its own (a GAN's two): their period.

    One optimizer is called after the same gradients every time; what is logged or evaluated in some steps
    makes none. Only an alternation seen twice over, without an exception, is believed.
    """
    events = timeline.events
    rows = timeline.rows_named(GRADIENT, Kind.ANNOTATION, Kind.OP)
    rows = rows[events.process[rows] == events.process[calls[0]]]
    before = np.searchsorted(events.end[calls], events.start[rows], side="right")  # which call they precede
    order = np.lexsort((events.inputs[rows], before))
    # Of what precedes the first call only a part may be in the trace.
    ends = np.searchsorted(before[order], np.arange(1, len(calls) + 1), side="left")
    trained = [part.tolist() for part in np.split(events.inputs[rows[order]], ends)[1:-1]]
    for period in range(1, min(MOST_ALTERNATING_OPTIMIZERS, len(trained) // 2) + 1):
        if all(trained) and trained[period:] == trained[:-period]:
            return period
    return 1


def _recurring(timeline: Timeline, links: Links, device: int) -> _Markers | None:
    """Ranges that the job puts around its steps itself."""
    events = timeline.events
    rows = recurring_ranges(timeline, links, device)
    if len(rows) == 0:
        return None
    start, end = events.start[rows], events.end[rows]
    edges = np.append(start, end[-1] + int(np.median(start[1:] - end[:-1])))  # where the next would begin
    labels = tuple(timeline.name_of(row) for row in rows.tolist())
    note = f"Steps are the {len(rows)} ranges from {labels[0]} to {labels[-1]}, which the job marks itself."
    return _Markers("range", edges, labels, (note,))


def _period(timeline: Timeline, links: Links, device: int) -> _Markers | None:
    """Steps from the repeat of the kernel sequence in launch order."""
    found = find_period(timeline, links, device)
    if found is None:
        return None
    edges = np.append(found.begins, found.ends[-1] + int(np.median(found.begins[1:] - found.ends[:-1])))
    repeats = len(found.begins)
    labels = tuple(f"repeat {index}" for index in range(repeats))
    note = f"No step markers: steps are the {repeats} repeats of a sequence of {found.kernels} kernels."
    return _Markers("period", edges, labels, (note,))


def _span(timeline: Timeline, why: str = "No steps could be told apart") -> _Markers:
    events = timeline.events
    start = int(events.start.min()) if len(events) else 0
    end = int(events.end.max()) if len(events) else 0
    note = f"{why}: the whole span counts as one step."
    return _Markers("span", np.array([start, end]), ("span",), (note,))


def _device_steps(timeline: Timeline, links: Links, markers: _Markers, device: int) -> Steps:
    events = timeline.events
    of_row = _step_of_rows(timeline, links, markers)
    rows = np.flatnonzero(of_row >= 0)
    rows = rows[events.device[rows] == device]
    if len(rows) == 0 and markers.found_by != "span":
        # Markers are of no use where nothing on the device can be traced back to one.
        markers = _span(timeline, "No device work can be linked to the host's steps")
        of_row = _step_of_rows(timeline, links, markers)
    if markers.found_by == "span":
        # What the host does after the last kernel delays nothing on the device.
        last = timeline.rows(*DEVICE_KINDS)
        last = last[events.device[last] == device]
        return _steps(markers, device, of_row, np.array([events.start.min(), events.end[last].max()]))
    stream = compute_stream(timeline, rows)
    firsts, empty = _first_kernels(timeline, rows, of_row, stream, len(markers.labels))
    missing = tuple(markers.labels[step] for step in empty)
    notes = list(markers.notes)
    if missing:
        notes.append(f"{len(missing)} steps launched no device work: {', '.join(missing[:_STEPS_NAMED])}.")
    if len(firsts) > WHOLE_STEPS_NEEDED and _cut_into(timeline, links, markers, of_row[rows]):
        firsts = firsts[1:]
        notes.append("The file begins inside a step, without its first kernels; that step is left out.")
    closed = False
    if len(firsts) < 2:
        step = int(of_row[rows].max())
        mine = rows[of_row[rows] == step]
        begin = min(int(markers.edges[step]), int(events.start[mine].min()))
        notes.append(
            "Only one step has device work; it is taken from its start on the host to the end of its last "
            "kernel."
        )
        firsts = np.array([begin, events.end[mine].max()])
    elif markers.found_by != "ProfilerStep":
        firsts, closed = _with_the_last(timeline, links, markers, of_row, rows, firsts)
    return _steps(markers, device, of_row, firsts, missing, notes, closed)


def _steps(
    markers: _Markers,
    device: int,
    of_row: I64,
    boundaries: I64,
    missing: tuple[str, ...] = (),
    notes: Sequence[str] | None = None,
    closed: bool = False,
) -> Steps:
    return Steps(
        found_by=markers.found_by,
        device=device,
        boundaries=boundaries,
        host=markers.edges,
        of_row=of_row,
        without_device_work=missing,
        notes=tuple(markers.notes if notes is None else notes),
        closed=closed,
    )


def _with_the_last(
    timeline: Timeline, links: Links, markers: _Markers, of_row: I64, rows: I64, firsts: I64
) -> tuple[I64, bool]:
    """The boundaries with one that closes the last step, where all of it is in the file: where the next one
    would have launched, or with its own last row. (A profiler's last step is stretched while that stops.)"""
    events = timeline.events
    last, before = np.unique(of_row[rows])[[-1, -2]].tolist()
    lost = np.searchsorted(markers.edges, events.start[unanswered(timeline, links.launch)], side="right") - 1
    if (lost == last).sum() > (lost == before).sum():
        return firsts, False
    mine = rows[of_row[rows] == last]
    launched = int(events.start[links.launch[mine]].min()) - int(markers.edges[last])
    closes = max(int(events.end[mine].max()), int(markers.edges[last + 1]) + launched)
    return np.append(firsts, closes), True


def _cut_into(timeline: Timeline, links: Links, markers: _Markers, of_rows: I64) -> bool:
    """Whether the first step that has rows launched others before them, which are not in the file."""
    lost = timeline.events.start[launches_before(timeline, links)]
    step = int(of_rows.min())
    return bool(((lost >= markers.edges[step]) & (lost < markers.edges[step + 1])).any())


def _step_of_rows(timeline: Timeline, links: Links, markers: _Markers) -> I64:
    """The step in whose host range each device row was launched."""
    events = timeline.events
    of_row = np.full(len(events), -1, np.int64)
    rows = timeline.rows(*DEVICE_KINDS)
    if markers.found_by == "span":
        of_row[rows] = 0
        return of_row
    rows = rows[links.launch[rows] >= 0]
    step = np.searchsorted(markers.edges, events.start[links.launch[rows]], side="right") - 1
    inside = (step >= 0) & (step < len(markers.labels))
    of_row[rows[inside]] = step[inside]
    return of_row


def begun(timeline: Timeline, steps: Steps) -> I64:
    """The numbers, among all that are marked, of the steps that a boundary begins."""
    rows = timeline.rows(*DEVICE_KINDS)
    rows = rows[(timeline.events.device[rows] == steps.device) & (steps.of_row[rows] >= 0)]
    # A step that only copies, on another stream, has device rows but no boundary.
    return np.unique(steps.of_row[rows[np.isin(timeline.events.start[rows], steps.boundaries)]])


def compute_stream(timeline: Timeline, rows: I64) -> int:
    """The stream with the most kernel time; copies alone do not make a compute stream."""
    events = timeline.events
    kernels = rows[events.kind[rows] == Kind.KERNEL]
    kernels = kernels if len(kernels) else rows
    streams, index = np.unique(events.stream[kernels], return_inverse=True)
    return int(streams[int(np.argmax(np.bincount(index, events.duration[kernels])))])


def _first_kernels(
    timeline: Timeline, rows: I64, of_row: I64, stream: int, count: int
) -> tuple[I64, list[int]]:
    """Device time at which each step's first kernel on the compute stream starts."""
    events = timeline.events
    mine = rows[(events.stream[rows] == stream) & (events.kind[rows] == Kind.KERNEL)]
    mine = mine if len(mine) else rows
    firsts = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(firsts, of_row[mine], events.start[mine])
    has_any = np.isin(np.arange(count), of_row[rows])
    return np.sort(firsts[firsts < np.iinfo(np.int64).max]), np.flatnonzero(~has_any).tolist()
