"""What is drawn beside the Diagnosis: the steps in order, and one step event by event.

All of it is small: it is written into the page that a person opens.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from findwall.model.machine import NO_TELEMETRY, Telemetry


class Lane(msgspec.Struct, frozen=True):
    """One line of a track: events that do not overlap, in the order they start."""

    track: int
    depth: int  # 0: the outermost; an op inside another one is a line below it
    count: int  # events, taken from the columns in the order of the lanes


class Track(msgspec.Struct, frozen=True):
    """A thread of the host, a stream of the device, or the device's idle time."""

    label: str
    side: Literal["host", "device", "idle"]


class StepTimeline(msgspec.Struct, frozen=True):
    """One step of one rank. Columns are little-endian unsigned integers, lane after lane.

    A start counts from the event before it in its lane, the first from the beginning of the window.
    """

    unit_ns: int  # of `start` and `length`
    span: int  # of the window, in units
    step_from: int  # where the step begins and ends on the device
    step_to: int
    tracks: list[Track]
    lanes: list[Lane]
    names: list[str]
    causes: list[str]
    start: bytes  # 4 bytes an event
    length: bytes  # 4
    name: bytes  # 4, -> names
    cause: bytes  # 1, -> causes
    kind: str = ""  # of the step, where steps come in kinds
    left_out: int = 0  # events of the window that are too many to be drawn

    @property
    def events(self) -> int:
        return len(self.cause)


class Stretch(msgspec.Struct, frozen=True):
    """Steps of the job's own count, from `first` on."""

    first: int
    ms: list[float]
    kinds: list[str] = []  # of each; empty: all are usual


class Samples(msgspec.Struct, frozen=True):
    """What the machine said while steps were timed. None in a column: it did not answer."""

    step: list[float]  # the step that ran at that moment
    columns: dict[str, list[float | None]]  # by name: sm_clock_mhz, power_w and the like


class StepSeries(msgspec.Struct, frozen=True):
    """The steps of a run in order."""

    warm_up: int  # steps before the first one that was timed
    why_warm_up: str
    timed: Stretch
    traced_from: int | None = None
    traced: int = 0
    slow_later: dict[int, float] = {}  # steps that stood out after all was measured, in ms
    samples: Samples | None = None
    telemetry: Telemetry = NO_TELEMETRY  # what all samples come to


class Series(msgspec.Struct, frozen=True):
    """All of it; what is missing says why."""

    timeline: StepTimeline | None = None
    why_no_timeline: str = "This view was drawn from the document alone, without the trace."
    steps: StepSeries | None = None
    why_no_steps: str = "This view was drawn from the document alone, without the timed steps."
    command: list[str] = []  # what was measured, as it was called
    started: str = ""
    versions: dict[str, str] = {}
    rank: int = 0  # whose they are
