"""What a run folder holds of one rank: raw figures, written by `agent`, read by `readers`.

Times are integer nanoseconds. None is "could not be measured", never zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import msgspec

from findwall.model.answers.memory_answer import CaughtFailures, FailedModel, OutOfMemory
from findwall.model.arms import Screening
from findwall.model.catalogue import MAJORITY_SHARE, SMALL_PART
from findwall.model.machine import (
    NO_TELEMETRY,
    UNKNOWN_ENVIRONMENT,
    Ceilings,
    Environment,
    MemoryTotals,
    Telemetry,
)

RUN_SCHEMA = "findwall-run/1"
MEASUREMENT_SCHEMA = "findwall-measurement/1"

RUN_FILE = "run.json"
ENDED = "ended"  # how a job ends that goes well
MEASUREMENT_FILE = "measurement.json"
TRACE_FILE = "trace.json"
CAPTURE_FILE = "capture-{}.json"
OBSERVED_FILE = "observed.json"
SUMMARY_FILE = "summary.fwrank"  # what the other ranks' analysis reads of this one
SNAPSHOT_FILE = "snapshot.pickle.gz"
KNOWN_MEMORY_FILE = "known-{}.json"  # what lies where at the end of a recording: "trace" or "snapshot"
DIAGNOSIS_FILE = "diagnosis.json"
SWEEP_FILE = "sweep.json"  # what `findwall sweep` found, beside the job as it is
TRIALS_FILE = "trials.json"  # what `findwall try` found, beside what it looked at
REPORT_FILE = "report.html"  # the page


class RunInfo(msgspec.Struct):
    """`run.json`: the job as a whole."""

    script: str
    argv: list[str]
    world_size: int
    started: str  # UTC, ISO 8601
    findwall: str
    python: str
    schema: str = RUN_SCHEMA
    options: dict[str, Any] = {}
    cores: str | None = None  # the CPU's name: the device of a CPU job, also of one that ends early
    job: str = ""  # the launch: the same in all folders of it, where machines share none
    spans: bool = False  # more than one machine


class StepColumns(msgspec.Struct):
    """Steps in order, a list a field, all of one length but `kind`, which may be empty.

    `device_ns` is the time between device events at step ends; `host_ns` the host clock's. Over a window they
    sum to the same; step by step the host runs ahead. Short steps share an event: each of them has their
    mean, also of what is noted beside it (waiting for data, garbage collection, findwall's own time).
    """

    host_ns: list[int] = []
    device_ns: list[int | None] = []
    loader_ns: list[int] = []
    gc_ns: list[int] = []
    hook_ns: list[int] = []  # findwall's own time
    batches: list[int] = []  # batches taken from data loaders
    compiles: list[int] = []  # graphs compiled
    evaluated: list[bool] = []  # an evaluation ran inside: not a plain step
    kind: list[str] = []  # what kind of step each was; empty: nobody told them apart

    def __len__(self) -> int:
        return len(self.host_ns)

    def times(self, rows: Sequence[int] | None = None) -> list[int]:
        """Nanoseconds of these steps (all, if none are named) by one clock.

        The device's where it knows most of them: the last may not have passed it yet. Else the host's, which
        a device-bound job lets run ahead.
        """
        timed = self.timed(range(len(self)) if rows is None else rows)
        if not timed or any(self.device_ns[row] is None for row in timed):
            return [self.host_ns[row] for row in timed]
        return self._told_apart(timed)

    def timed(self, rows: Sequence[int]) -> list[int]:
        """Those of these steps that `times` tells the time of."""
        known = [row for row in rows if self.device_ns[row] is not None]
        return known if known and len(known) >= MAJORITY_SHARE * len(rows) else list(rows)

    def _told_apart(self, rows: Sequence[int]) -> list[int]:
        """Device times; of steps that share one, a share each by the host's clock, if it keeps that pace.

        Steps that come in kinds were told apart by that clock.
        """
        host = sorted(self.host_ns[row] for row in rows)
        from statistics import median  # it loads much that reading a trace does not need

        pace = median(self.device_ns[row] or 0 for row in rows)
        # A host ahead of its device ends steps in bursts: then its clock says nothing about single ones.
        keeps_pace = bool(self.kind) or host[int(SMALL_PART * len(host))] > MAJORITY_SHARE * pace
        found: list[int] = []
        for device, group in groupby(rows, key=lambda row: self.device_ns[row] or 0):
            block = list(group)
            total = sum(self.host_ns[row] for row in block)
            if keeps_pace and total:
                found += [device * len(block) * self.host_ns[row] // total for row in block]
            else:
                found += [device] * len(block)
        return found


class Warmup(msgspec.Struct):
    steps: int = 0
    seconds: float = 0.0
    settled: bool | None = None  # None: not decided (fixed by --wait, or the job ended first)
    why: str = ""


class Line(msgspec.Struct):
    place: str
    function: str
    share: float
    inside: str = ""  # the innermost function, where it is another one
    routine: str = ""  # of a library, public, that its source calls: "numpy.random.choice"
    looped: bool | None = None  # whether a loop within the step holds it; None: nobody knows its source
    once: bool | None = None  # whether a step comes to it once; None: its source does not tell


class Trace(msgspec.Struct):
    """The trace window, or why there is none."""

    file: str | None = None
    steps: int = 0
    first_step: int | None = None
    kernels: int | None = None
    kinds: list[str] = []  # of the traced steps, in order; empty: nobody told them apart
    captures: list[str] = []  # files: what was launched when the graphs were captured that it replays
    replays: list[int] = []  # of each replay in it, in order: which of the captures; -1 none of them
    others_are: bool = False  # other ranks are traced in its place
    in_line_ns: int | None = None  # while it was recorded the job's thread could have run and had no core
    why_not: str = ""


class Observation(msgspec.Struct):
    """Iterations whose ops were seen with all their tensors, or why there are none."""

    file: str | None = None
    ops: int = 0
    held_up_ns: int = 0  # what it cost the job
    why_not: str = ""


class KnownAddresses(msgspec.Struct):
    """`rank<k>/known-*.json`: of each kind the device (-1 the host), address and bytes of every storage."""

    parameters: list[tuple[int, int, int]] = []
    gradients: list[tuple[int, int, int]] = []
    optimizer_state: list[tuple[int, int, int]] = []
    tells_all_state: bool = False  # optimizers were seen, and what they hold lies at these addresses alone


class RecordedMemory(msgspec.Struct):
    """What was recorded of the allocator where that was asked for, or why nothing was."""

    snapshot: str | None = None  # the file
    known_at_snapshot: str | None = None  # what lay where when the snapshot was made
    known_at_trace: str | None = None  # the same when the trace ended
    why_not: str = ""


class Beside(msgspec.Struct, array_like=True):
    """Something that happened in a step beside its work."""

    step: int  # the job's own count
    what: str  # "saving", "evaluation" or "loader-start"
    ns: int


class Elapsed(msgspec.Struct):
    """The job's time from its start, in ns, and what it went to."""

    total: int = 0
    start_up: int = 0  # until the end of its first step
    after_steps: int = 0  # since the end of its last
    held_up: int = 0  # by findwall
    beside: dict[str, int] = {}  # all that the job did beside its steps, by what it was


class Later(msgspec.Struct):
    """Steps after all was measured: counted to the job's end, with those that stood out."""

    steps: int = 0
    ns: int = 0
    first_step: int = 0  # the job's own count
    slow_step: list[int] = []
    slow_ns: list[int] = []


class Measurement(msgspec.Struct):
    """`rank<k>/measurement.json`."""

    rank: int = 0
    world_size: int = 1
    schema: str = MEASUREMENT_SCHEMA
    phase: str = "starting"  # how far the measurement came: warm-up, timing, trace, control, done
    final: bool = False  # nothing more will be written
    job_ended: str = ""  # "" while it runs; ENDED; else the exception or exit code it ended with
    device_kind: str = "cpu"
    device_name: str | None = None
    step_source: str | None = None  # explicit, optimizer, forward, graph-replay, loader, no-grad-region, loop
    steps_seen: int = 0
    warmup: Warmup = msgspec.field(default_factory=Warmup)
    steps: StepColumns = msgspec.field(default_factory=StepColumns)
    first_timed: int = 0  # the job's own count of the first of them
    node: str = ""  # the machine's name, in a job of several ranks
    beside: list[Beside] = []
    elapsed: Elapsed | None = None
    later: Later | None = None
    loader_seen: bool = False
    loader_workers: int | None = None
    samples_per_step: float | None = None
    sample_unit: str | None = None
    peak_memory: int | None = None
    peak_reserved: int | None = None  # of the driver, for its cache
    peak_resident: int | None = None  # of the process, where the system counts it
    total_memory: int | None = None
    memory: RecordedMemory = msgspec.field(default_factory=RecordedMemory)
    oom: OutOfMemory | None = None  # that the job ended with
    failed_model: FailedModel | None = None
    caught: CaughtFailures | None = None
    totals: MemoryTotals = msgspec.field(default_factory=MemoryTotals)
    host_lines: list[Line] = []
    collected_at: str = ""  # the line of the job that asks for most of the garbage collector's time
    telemetry: Telemetry = NO_TELEMETRY
    environment: Environment = UNKNOWN_ENVIRONMENT
    ceilings: Ceilings | None = None  # measured on this machine before, with this driver and torch
    trace: Trace = msgspec.field(default_factory=Trace)
    observed: Observation = msgspec.field(default_factory=Observation)
    cost: dict[str, Any] = {}
    screening: Screening | None = None  # of a process that `try` screens fixes in
    notes: list[str] = []
