"""A rank's summary, made of its trace."""

from __future__ import annotations

import re

import numpy as np

from findwall.model.events import DEVICE_KINDS, NSYS, Kind, Timeline
from findwall.model.intervals import EMPTY, I64, Intervals, union
from findwall.model.summaries.rank_summary import (
    COPY,
    DEVICE,
    GC,
    LOADER,
    DeviceUse,
    Label,
    LineSeen,
    Messages,
    RankSummary,
    grained,
)
from findwall.ranks.reduced.host_paths import NEVER, HostPaths, host_paths
from findwall.ranks.reduced.issue_times import issue_times, lost_work
from findwall.ranks.reduced.own_progress import (
    OwnClock,
    asked_at,
    before_on_stream,
    done_before,
    idle_beside,
    in_turn,
    joined,
    ready_times,
    waits_of,
)
from findwall.step.call_names import SYNCHRONIZE, collective_name, kind_of
from findwall.step.comms import HOST_COLLECTIVE, inside_collective, is_communication
from findwall.step.host_activity import watch_host
from findwall.step.links import link
from findwall.step.step_bounds import find_steps, step_numbers
from findwall.step.step_facts import Host, Links, Steps
from findwall.units import NS_PER_MS
from findwall.work.op_families.movement import message_bytes

LINES_KEPT = 3  # of those that the host was seen on most. Chosen by hand.
_WRAPPER = re.compile(r"^(?:DistributedDataParallel|FullyShardedDataParallel|FSDP)[.:]")


def summarise(
    timeline: Timeline, number: int | None = None, lines: tuple[LineSeen, ...] = ()
) -> RankSummary | None:
    """None where nothing ran on a device. A CPU job's device is its cores: `timeline` is told so already."""
    if not timeline.events.is_kind(*DEVICE_KINDS).any():
        return None
    return summarise_rows(timeline, number, lines)[0]


def summarise_rows(
    timeline: Timeline, number: int | None = None, lines: tuple[LineSeen, ...] = ()
) -> tuple[RankSummary, I64]:
    """The same, with the row of the timeline that each communication is."""
    links = link(timeline)
    steps = find_steps(timeline, links)
    host = watch_host(timeline, links)
    found = _host_rows(timeline, links)
    by_host = len(found) > 0
    work = _work_rows(timeline, links)
    if not by_host:
        rows = timeline.rows(*DEVICE_KINDS)
        found = rows[is_communication(timeline, links, rows)]
    labels, messages, own, order = _messages(timeline, links, steps, host, found, work, by_host)
    events, header = timeline.events, timeline.header
    summary = RankSummary(
        messages=messages,
        labels=labels,
        rank=header.rank if number is None else number,
        world_size=header.world_size,
        path=timeline.path,
        node="recorder" if header.recorder == NSYS else "",
        device_name=header.devices[0].name if header.devices else None,
        devices=_devices(timeline),
        base_time_ns=header.base_time_ns,
        steps=steps.count,
        step_ns=float(steps.lengths.mean()) if steps.count else 0.0,
        own_ns=int(own.at(np.array([events.end.max()]))[0]),
        events=len(events),
        lines=lines[:LINES_KEPT],
        by_host=by_host,
        groups=tuple(one for one in header.groups if one.name in {label.group for label in labels}),
        gpus=len(header.devices),
        data_parallel=any(_WRAPPER.search(name) for name in timeline.names),
    )
    return summary, found[order]


def _host_rows(timeline: Timeline, links: Links) -> I64:
    """Collectives that the host does itself (gloo), the outermost where several are open on a thread."""
    rows = timeline.rows_named(HOST_COLLECTIVE, Kind.ANNOTATION, Kind.OP)
    return rows[~inside_collective(timeline, links, rows)]


def _work_rows(timeline: Timeline, links: Links) -> I64:
    """What the device does besides communication, and besides what carries it."""
    rows = timeline.rows(*DEVICE_KINDS)
    rows = rows[~is_communication(timeline, links, rows)]
    launch = links.launch[rows]
    within = np.zeros(len(rows), bool)
    within[launch >= 0] = inside_collective(timeline, links, launch[launch >= 0])
    return rows[~within]


def _messages(
    timeline: Timeline,
    links: Links,
    steps: Steps,
    host: Host,
    rows: I64,
    work_rows: I64,
    by_host: bool,
) -> tuple[tuple[Label, ...], Messages, OwnClock, I64]:
    events = timeline.events
    start, end = grained(events.start[rows]), grained(events.end[rows])
    launched = grained(issue_times(timeline, links, rows))
    work = union(grained(events.start[work_rows]), grained(events.end[work_rows]))
    issued, begin = issue_times(timeline, links, work_rows), grained(events.start[work_rows])
    lost, at_latest = lost_work(timeline, links, issued, begin)
    every = np.concatenate([lost, issued]), np.concatenate([at_latest, begin])
    asked = asked_at(end, every[1], every[0], _blocked(timeline, links))
    waits = _host_waits(host, work, start, end) if by_host else waits_of(start, end, work, asked)
    own = OwnClock(int(events.start.min()), waits)
    since, until = idle_beside(start, end, work, asked)
    labels, which = _labels(timeline, links, rows, by_host)
    stream = np.array([label.stream for label in labels], np.int64)[which]
    sends = np.array([label.kind == "send" for label in labels], bool)[which]
    done = done_before(launched, issued, grained(events.end[work_rows]))
    inputs = ready_times(start, launched, before_on_stream(start, end, stream), done)
    inputs = in_turn(inputs, start, stream)
    ready = own.at(inputs)
    spent = _spent(host, work, waits, inputs)
    order = np.lexsort((start, ready))
    nothing = np.zeros(len(rows), np.int64)
    paths = HostPaths(nothing, nothing, nothing + NEVER)  # a host's own collectives hold it
    if not by_host:
        calls = _blocked(timeline, links)
        paths = _paths(own, calls, work, np.append(issued, launched), np.append(begin, inputs), order)
    messages = Messages(
        label=which,
        step=_steps_of(timeline, steps, launched),
        launched=launched,
        start=start,
        end=end,
        ready=ready,
        left=own.at(end),
        since=paths.since,
        hosted=paths.hosted,
        held=paths.held,
        joins=joined(start, end, sends, waits),
        idle=nothing if by_host else own.at(until) - own.at(since),
        **spent,
    )
    return labels, messages.take(order), own, order


def _blocked(timeline: Timeline, links: Links) -> Intervals:
    """While a call holds the host until the device has come so far: one that says so, or that returned when
    what it asked for was done."""
    events, asked = timeline.events, timeline.rows(*DEVICE_KINDS)
    asked = asked[links.launch[asked] >= 0]
    done = links.launch[asked[events.end[asked] <= events.end[links.launch[asked]]]]
    rows = np.union1d(timeline.rows_named(SYNCHRONIZE, Kind.RUNTIME), done)
    return union(events.start[rows], events.end[rows])


def _paths(own: OwnClock, calls: Intervals, work: Intervals, issued: I64, begin: I64, kept: I64) -> HostPaths:
    """`issued` and `begin`: of the work, then of the communications; `kept`: the order of these."""
    order = np.argsort(issued, kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    message = place[len(order) - len(kept) :][kept]
    found = host_paths(own, calls, work, issued[order], begin[order], message)
    back = np.argsort(kept, kind="stable")
    return HostPaths(found.since[back], found.hosted[back], found.held[back])


def _host_waits(host: Host, work: Intervals, start: I64, end: I64) -> Intervals:
    """While the launching threads do nothing but wait for the host's collectives, and the device does
    nothing."""
    waiting = host.activities["exposed-collective"] - work
    return waiting & union(start, end)


def _spent(host: Host, work: Intervals, waits: Intervals, until: I64) -> dict[str, I64]:
    """What own time until each of these times went to; while the device works, to that."""
    found: dict[str, I64] = {}
    taken = waits
    activities = host.activities
    wanted = {
        DEVICE: work,
        COPY: activities.get("copy-exposed", EMPTY),
        LOADER: activities.get("loader-starved", EMPTY),
        GC: activities.get("gc-pause", EMPTY),
    }
    for name, when in wanted.items():
        found[name] = grained((when - taken).covered_before(until))
        taken = taken | when
    return found


def _steps_of(timeline: Timeline, steps: Steps, launched: I64) -> I64:
    """The number that the step bears in which each was launched; its place where steps bear none."""
    at = np.searchsorted(steps.host, launched, side="right") - 1
    inside = (at >= 0) & (at < len(steps.host) - 1)
    numbers = step_numbers(timeline) if steps.found_by == "ProfilerStep" else np.zeros(0, np.int64)
    if len(numbers) == len(steps.host) - 1 and len(numbers):
        at = np.where(inside, numbers[np.clip(at, 0, len(numbers) - 1)], -1)
    return np.where(inside, at, -1)


def _labels(timeline: Timeline, links: Links, rows: I64, by_host: bool) -> tuple[tuple[Label, ...], I64]:
    known: dict[Label, int] = {}
    sizes = message_bytes(timeline, links, rows)
    events, found = timeline.events, []
    for row, size in zip(rows.tolist(), sizes.tolist(), strict=True):
        extra = timeline.extra_of(row)
        name = timeline.name_of(row) if by_host else collective_name(timeline, links, row)
        label = Label(
            kind_of(name),
            (extra.group_name if extra is not None else None) or "",
            -1 if np.isnan(size) else int(size),
            -1,
            int(events.thread[row] if by_host else events.stream[row]),
            (extra.group_size if extra is not None else None) or -1,
        )
        found.append(known.setdefault(label, len(known)))
    return tuple(known), np.array(found, np.int64)


def _devices(timeline: Timeline) -> tuple[DeviceUse, ...]:
    events, found = timeline.events, []
    rows = timeline.rows(*DEVICE_KINDS)
    for device in np.unique(events.device[rows]).tolist():
        mine = rows[events.device[rows] == device]
        busy = union(events.start[mine], events.end[mine]).length
        span = int(events.end[mine].max() - events.start[mine].min())
        found.append(DeviceUse(device, busy, span))
    return tuple(found)


def step_ms(summary: RankSummary) -> float:
    """Of its mean step under the profiler."""
    return summary.step_ns / NS_PER_MS
