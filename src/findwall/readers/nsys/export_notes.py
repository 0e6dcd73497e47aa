"""What an export does not tell, with the option that adds it, and what it tells beside the timeline."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from findwall.model.events import DEVICE_KINDS, Kind, Timeline
from findwall.model.intervals import union
from findwall.readers.nsys.database import METRIC_NAMES, METRICS, RANGES, Database, text_of
from findwall.readers.nsys.nsys_names import WHOLE_GRAPH
from findwall.units import format_ms, ms

# Percentages of the device's throughput that say how busy it is with what; by the start of their names.
_SHOWN_METRICS = ("SMs Active", "SM Active", "Tensor Active", "SM Issue", "DRAM Read", "DRAM Write")
_WORTH_TELLING_NS = 500_000  # of waiting in calls of the system; chosen by hand
_CALLS_NAMED = 3
_MOST_METRICS = 1000  # numbers of metrics that are looked up: a device has dozens


def what_is_missing(timeline: Timeline, database: Database) -> list[str]:
    """A line for each thing that this export cannot tell and another would."""
    notes = []
    graphs = sum(1 for name in timeline.names if name == WHOLE_GRAPH)
    if graphs:
        rows = timeline.rows(Kind.KERNEL)
        whole = rows[timeline.events.name[rows] == timeline.names.index(WHOLE_GRAPH)]
        notes.append(
            f"{len(whole):,} CUDA graphs are recorded as a whole, so what runs inside them is unknown. "
            "Record with --cuda-graph-trace=node."
        )
    if not (timeline.events.kind == Kind.OP).any():
        ranges = (
            "has NVTX ranges but none of torch's ops" if database.has_rows(RANGES) else "has no NVTX ranges"
        )
        notes.append(
            f"The export {ranges}, so kernels have no ops and no shapes. Record with --trace=cuda,nvtx "
            "--pytorch=autograd-shapes-nvtx."
        )
    if not (timeline.events.kind == Kind.RUNTIME).any():
        notes.append(
            "The export has no CUDA calls, so what the host did in gaps is unknown. Record with --trace=cuda."
        )
    return notes


def system_calls(timeline: Timeline) -> list[str]:
    """Where the launching threads stood in calls of the system while the device had nothing to do."""
    events = timeline.events
    rows = timeline.rows(Kind.OTHER)
    device = timeline.rows(*DEVICE_KINDS)
    if len(rows) == 0 or len(device) == 0:
        return []
    busy = union(events.start[device], events.end[device])
    idle = events.duration[rows] - busy.covered_within(events.start[rows], events.end[rows])
    within = (events.start[rows] >= events.start[device].min()) & (
        events.end[rows] <= events.end[device].max()
    )
    spent = np.bincount(events.name[rows[within]], idle[within], minlength=len(timeline.names))
    longest = [int(one) for one in np.argsort(-spent)[:_CALLS_NAMED] if spent[one] >= _WORTH_TELLING_NS]
    if not longest:
        return []
    told = ", ".join(f"{timeline.names[one]} {format_ms(ms(float(spent[one])))}" for one in longest)
    return [f"While the device waited, the threads that launch its work were in calls of the system: {told}."]


def metrics(database: Database, device: int, begin: int, end: int) -> list[str]:
    """Means of the sampled counters of one device, as the machine numbers it, over all of its rows."""
    if not database.has(METRICS, "timestamp", "typeId", "metricId", "value"):
        return []
    if not database.has(METRIC_NAMES, "typeId", "metricId", "metricName"):
        return []
    named = _metric_names(database)
    # Of each number alone: joined in the database, a million rows of one number would meet a million names.
    asked = (
        f"SELECT typeId, metricId, TOTAL(value), COUNT(value) FROM {METRICS} "
        "WHERE (typeId & 255) = ? AND timestamp BETWEEN ? AND ? GROUP BY typeId, metricId"
    )
    sums: defaultdict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for kind, number, total, count in database.rows(asked, [device, begin, end]):
        for name in named.get((kind, number), ()):
            sums[name][0] += total
            sums[name][1] += count
    found = {name: total / count for name, (total, count) in sorted(sums.items()) if count}
    told = [
        f"{name.split(' [')[0]} {value:.0f} %"
        for start in _SHOWN_METRICS
        for name, value in found.items()
        if name.startswith(start) and 0 <= value <= 100
    ]
    return [f"Sampled GPU metrics, over kernels and gaps: {', '.join(told)}."] if told else []


def _metric_names(database: Database) -> dict[tuple[object, object], set[str]]:
    """Those that are shown, by the numbers they go by."""
    found: defaultdict[tuple[object, object], set[str]] = defaultdict(set)
    shown = " OR ".join("metricName LIKE ?" for _ in _SHOWN_METRICS)
    asked = f"SELECT DISTINCT typeId, metricId, metricName FROM {METRIC_NAMES} WHERE {shown}"
    asked += f" LIMIT {_MOST_METRICS}"
    for kind, number, name in database.rows(asked, [start + "%" for start in _SHOWN_METRICS]):
        found[kind, number].add(text_of(name))
    return found
