"""A run: what was measured of one job, on one or more ranks, whoever measured it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from findwall.model.events import Timeline
from findwall.model.machine import UNKNOWN_CEILINGS, Ceilings


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Steps timed without the profiler, in seconds each."""

    seconds: tuple[float, ...]
    source: str  # "measured" by findwall, or "given" by a person
    discarded: int = 0  # warm-up steps thrown away
    loader_s: float | None = None  # mean wait in the data loader, a step
    optimizer_s: float | None = None
    gc_s: float | None = None

    @property
    def mean(self) -> float:
        return sum(self.seconds) / len(self.seconds)


@dataclass(frozen=True, slots=True)
class HostLine:
    """A line of Python that a sampler saw the launching thread stand on."""

    place: str  # "train.py:88"
    function: str
    share: float  # of the samples
    inside: str = ""  # "linear.py:forward": what of a library it stood in, if anything


@dataclass(frozen=True, slots=True)
class Run:
    """Everything the analysis may look at. Timelines may be empty when no trace could be made."""

    kind: str  # "torch-trace" or "run-folder"
    paths: tuple[str, ...]
    ranks: tuple[Timeline, ...]
    step_times: StepTimes | None = None
    ceilings: Ceilings = UNKNOWN_CEILINGS
    host_lines: tuple[HostLine, ...] = ()
    rank_lines: tuple[tuple[HostLine, ...], ...] = ()  # the same of each of `ranks`, where all were sampled
    environment: dict[str, Any] = field(default_factory=dict)  # audit findings, versions, flags
    telemetry: dict[str, Any] = field(default_factory=dict)  # clocks, throttle reasons, GPM counters
    cost: dict[str, Any] = field(default_factory=dict)  # what findwall itself cost
    device_kind: str = "gpu"  # "gpu" or "cpu": which side the budget is of
    samples_per_step: float | None = None
    sample_unit: str | None = None
    peak_memory: int | None = None  # bytes, from the allocator
    notes: tuple[str, ...] = ()
