"""A step as a Chrome trace, for Perfetto and chrome://tracing: what was recorded, and findwall's own tracks.

Two processes are drawn. One is the traced step as it was recorded, under the profiler. The other is the steps
as they are without it. Their clocks both begin at 0 and are not the same.
"""

from __future__ import annotations

import gzip
import sys
from array import array
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

import msgspec

from findwall.model.diagnosis import Diagnosis
from findwall.model.series import StepTimeline
from findwall.model.tracks import EXPORT_MEMBER, EXPORT_SCHEMA, OwnTrack, OwnTracks
from findwall.report.printable_names import clean
from findwall.units import NS_PER_US

RECORDED, OWN = 1, 2  # the processes
CATEGORY = "findwall"  # of every event: none of them is a kernel or an op that a reader could take for one
PACKING = 6  # gzip's level


def to_trace(diagnosis: Diagnosis, step: StepTimeline | None, own: OwnTracks) -> bytes:
    """The file. The same step gives the same bytes."""
    named = f"{diagnosis.wall.wall} / {diagnosis.wall.cause}" if diagnosis.wall.wall else "no verdict"
    events = list(_own(own))
    if step is not None:
        events += _recorded(step)
    return msgspec.json.encode(
        {
            EXPORT_MEMBER: EXPORT_SCHEMA,  # first: whoever reads the file knows at once
            "source": [clean(path) for path in diagnosis.source.paths],
            "verdict": {
                "wall": named,
                "sentence": clean(diagnosis.wall.sentence),
                "step_ms": diagnosis.step.ms,
            },
            "displayTimeUnit": "ms",
            "traceEvents": events,
        }
    )


def packed(trace: bytes, name: str) -> bytes:
    """Compressed where the file's name asks for it."""
    return gzip.compress(trace, PACKING, mtime=0) if name.endswith(".gz") else trace


def _own(own: OwnTracks) -> Iterator[dict[str, Any]]:
    several = f"the {own.steps} steps" if own.steps > 1 else "the step"
    yield _meta("process_name", OWN, 0, f"findwall: {several} without the profiler")
    yield _meta("process_sort_index", OWN, 0, 0)
    for number, track in enumerate(own.tracks, 1):
        yield _meta("thread_name", OWN, number, track.label)
        yield _meta("thread_sort_index", OWN, number, number)
        yield from _slices(track, number)


def _slices(track: OwnTrack, number: int) -> Iterator[dict[str, Any]]:
    fields = list(track.told)
    for start, length, name, *told in zip(
        track.start, track.length, track.name, *track.told.values(), strict=True
    ):
        about = {field: one for field, one in zip(fields, told, strict=True) if one is not None}
        yield _event(
            clean(name), f"{CATEGORY}.{track.kind.replace(' ', '-')}", OWN, number, start, length
        ) | {"args": about}


def _recorded(step: StepTimeline) -> Iterator[dict[str, Any]]:
    """The traced step: threads of the host, streams, gaps. Rows inside another one lie on its track."""
    yield _meta("process_name", RECORDED, 0, "the traced step, under the profiler")
    yield _meta("process_sort_index", RECORDED, 0, 1)
    for number, track in enumerate(step.tracks):
        yield _meta("thread_name", RECORDED, number + 1, clean(track.label))
        yield _meta("thread_sort_index", RECORDED, number + 1, number)
    starts, lengths, names = (_column(one) for one in (step.start, step.length, step.name))
    shown = [clean(name) for name in step.names]
    at = 0
    for lane in step.lanes:
        rows = range(at, at + lane.count)
        for row, start in zip(rows, accumulate(starts[at : at + lane.count]), strict=True):
            cause = step.causes[step.cause[row]]
            where = RECORDED, lane.track + 1, start * step.unit_ns, lengths[row] * step.unit_ns
            yield _event(shown[names[row]], f"{CATEGORY}.recorded", *where) | {"args": {"cause": cause}}
        at += lane.count


def _column(packed_: bytes) -> array[int]:
    found = array("I", packed_)
    if sys.byteorder == "big":
        found.byteswap()
    return found


def _event(name: str, category: str, process: int, thread: int, start_ns: float, ns: float) -> dict[str, Any]:
    return {
        "ph": "X",
        "name": name,
        "cat": category,
        "pid": process,
        "tid": thread,
        "ts": round(start_ns / NS_PER_US, 3),
        "dur": round(ns / NS_PER_US, 3),
    }


def _meta(what: str, process: int, thread: int, value: str | int) -> dict[str, Any]:
    field = "sort_index" if what.endswith("sort_index") else "name"
    return {"ph": "M", "name": what, "pid": process, "tid": thread, "args": {field: value}}
