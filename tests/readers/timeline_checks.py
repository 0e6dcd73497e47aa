"""What must hold of any timeline, whatever it was read from."""

from __future__ import annotations

from typing import Any

import numpy as np

from findwall.model.events import COLUMN_TYPES, Timeline


def check_consistent(timeline: Timeline) -> None:
    events, quality = timeline.events, timeline.quality
    count = len(events)
    assert count > 0
    for column in events.__struct_fields__:
        values = getattr(events, column)
        assert len(values) == count, column
        assert values.dtype == COLUMN_TYPES[column], column
    assert (events.end >= events.start).all()
    assert (np.diff(events.start) >= 0).all()
    assert events.start[0] == 0
    assert events.end.max() <= 3 * 24 * 3600 * 10**9
    _check_ids(timeline)
    samples = 0 if timeline.memory is None else len(timeline.memory.time)
    assert quality.kept == count + samples
    assert quality.events == quality.kept + sum(quality.ignored.values()) + quality.damaged
    assert quality.damaged >= 0
    assert all(number > 0 for number in quality.ignored.values())


def _check_ids(timeline: Timeline) -> None:
    events, details = timeline.events, timeline.details
    for column, size in (
        (events.name, len(timeline.names)),
        (events.thread, len(timeline.threads)),
        (events.process, len(timeline.processes)),
    ):
        assert column.min() >= 0
        assert column.max() < size
    for column, table in (
        (events.inputs, details.inputs),
        (events.launch, details.launch),
        (events.extra, details.extra),
    ):
        assert column.min() >= -1
        assert column.max() < len(table)
    for row in range(0, len(events), max(1, len(events) // 20)):
        timeline.inputs_of(row), timeline.launch_of(row), timeline.extra_of(row)
    for name in timeline.names:
        name.encode()  # no lone surrogates: it must be possible to print it


def as_rows(timeline: Timeline, leave_out: tuple[str, ...] = ()) -> list[tuple[Any, ...]]:
    """The rows with their text in place of ids, to compare timelines of differently numbered files."""
    events, details = timeline.events, timeline.details
    tables: dict[str, Any] = {
        "name": timeline.names,
        "inputs": details.inputs,
        "launch": details.launch,
        "extra": details.extra,
    }
    columns = []
    for name in COLUMN_TYPES:
        if name in leave_out:
            continue
        values = getattr(events, name).tolist()
        if name in tables:
            values = [tables[name][value] if value >= 0 else None for value in values]
        columns.append(values)
    return list(zip(*columns, strict=True))


def same_timeline(one: Timeline, other: Timeline) -> bool:
    """Every column and every table, number for number."""
    equal = all(np.array_equal(getattr(one.events, c), getattr(other.events, c)) for c in COLUMN_TYPES)
    tables = ("names", "processes", "threads", "thread_names")
    return (
        equal
        and all(getattr(one, table) == getattr(other, table) for table in tables)
        and one.details.inputs == other.details.inputs
        and one.details.launch == other.details.launch
        and one.details.extra == other.details.extra
    )
