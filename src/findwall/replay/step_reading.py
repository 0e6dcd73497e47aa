"""What the replay says of a step: how long it is, and whom its idle time is to be blamed on."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np

from findwall.model.catalogue import WORTH_IT
from findwall.model.causes import UNKNOWN, ByCause
from findwall.model.intervals import F64, I64
from findwall.replay.calibrate import Calibration
from findwall.replay.change import Change, Measured
from findwall.replay.graph import Graph
from findwall.replay.simulate import Replay


class Blame(msgspec.Struct, frozen=True):
    """Idle time of the replayed step by cause, ns a step, and where it lies."""

    replay: Replay
    idle: ByCause  # the device's own turn-around counts for launching
    turnaround: float  # of that: no host can give it back
    row: I64  # the timeline's rows before which the device stood still, as in the columns below
    before: dict[str, F64]  # cause -> idle ns a step before each row; turn-around is not in it
    turning: F64  # turn-around before each row, ns a step

    @property
    def lacks_rows(self) -> bool:
        """Whether the device waits so long for what is queued that rows must be missing."""
        return self.idle[UNKNOWN] > WORTH_IT * self.replay.step


class Scenario(msgspec.Struct, frozen=True):
    """One consistent reading of the step: its length and the idle time of every cause, in ns a step."""

    step: float
    busy: float
    idle: ByCause
    turnaround: float  # of the launch-bound idle time: the device's own, no host can give it back
    calibration: Calibration
    gaps: Blame  # the same row by row, as replayed
    shrink: float = 1.0  # what device time had to be scaled by to fit the true step
    rare: Mapping[str, float] = {}  # of the idle time: of steps not like the traced
    left_over: float = 0.0  # of the unknown idle time: what the true step has beyond the replay

    @property
    def pace(self) -> float:
        """Of what the host's work took while it was traced: what it takes in the true step."""
        return self.calibration.pace * self.shrink

    def lengths(self, graph: Graph) -> tuple[I64, F64]:
        """The graph's device rows, and what each one's length in the trace is to be scaled by."""
        rows = graph.rows
        traced, replayed = graph.own[rows], self.gaps.replay.lags.own[rows]
        scale = np.divide(replayed, traced, out=np.ones(len(rows)), where=traced > 0)
        return graph.row[rows], scale * self.shrink


class Conditions(msgspec.Struct, frozen=True):
    """What the run itself measured of its steps while they were timed, in ns a step. None: not measured."""

    rare: Mapping[str, float] = {}  # steps that no traced one is like, by cause
    collections: float = 0.0
    loader: float | None = None
    by_workers: bool = False  # whether workers make the batches that it waits for

    def change(self) -> Change:
        """The host time that is known, in place of what a few traced steps show of it; batches of workers are
        no host time."""
        edits: tuple[Measured, ...] = ()
        if self.loader is not None and not self.by_workers:
            edits += (Measured("loader-starved", self.loader),)
        if self.collections > 0:
            edits += (Measured("gc-pause", self.collections, hidden=True),)
        return Change(edits)


class StepReading(msgspec.Struct, frozen=True):
    """The likely reading, and the two ends of what the trace allows."""

    likely: Scenario
    short: Scenario
    long: Scenario
    source: str  # "given", "measured", "trace" or "estimated"
    notes: tuple[str, ...]

    @property
    def replay_error(self) -> float:
        """By how much of the step the calibrated replay misses it; rare slow steps are not replayed."""
        replayed = self.likely.gaps.replay.step + sum(self.likely.rare.values())
        return replayed / self.likely.step - 1.0 if self.likely.step > 0 else 0.0

    @property
    def scenarios(self) -> tuple[Scenario, Scenario, Scenario]:
        return self.short, self.likely, self.long
