"""The Diagnosis: one JSON document, the contract (`findwall/1`). Everything a person sees is drawn from it.

Unknown values are None (`null`), never 0. Fields may be added; these keep their meaning.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from findwall.model.answers.memory_answer import Memory
from findwall.model.answers.ranks_answer import RanksTogether
from findwall.model.answers.sweep_answer import Sweep
from findwall.model.answers.watch_answer import Watch
from findwall.model.applied import ScreenedTrial, Trial
from findwall.model.claims import Claim, Evidence, Figure, Range

SCHEMA = "findwall/1"


class Source(msgspec.Struct):
    kind: str
    paths: list[str]
    ranks: int
    crash: str = ""  # the exception or exit code that the job ended with, where it did not end well


class Machine(msgspec.Struct):
    device: str | None
    count: int | None  # None: ranks may share devices
    ceilings: dict[str, Any]


class Step(msgspec.Struct):
    ms: float | None
    low_ms: float | None
    high_ms: float | None
    source: Literal["measured", "given", "trace", "estimated"]
    median_ms: float | None
    p10_ms: float | None
    p90_ms: float | None
    profiled_ms: float | None
    count: int
    discarded: int
    stable: bool | None
    # What told the steps apart: ProfilerStep, optimizer, range, period, span; kernels: there is no step, and
    # `ms` is the time of all kernels one after the other.
    found_by: str = ""
    busy_ms: float | None = (
        None  # device time in a step: kernels, collectives and copies, overlap counted once
    )


class Question(msgspec.Struct):
    id: Literal["stable", "busy", "matmul", "peak"]
    answer: Literal["yes", "no", "unknown"]
    value: float | None
    sentence: str = ""
    claim: Claim | None = None  # what `sentence` says, as data


class Next(msgspec.Struct):
    wall: str
    cause: str
    at_ms: float | None = None


class Wall(msgspec.Struct):
    wall: str | None
    cause: str | None
    sentence: str = ""
    next: Next | None = None
    between: list[list[str]] | None = None
    too_early: bool = False  # no verdict because the job still set itself up: measured later, it may have one
    claim: Claim | None = None  # what `sentence` says, as data
    saves_ms: float | None = None  # what it promises at the most; null where it promises nothing
    advises: list[str] = []  # the fixes that it speaks of
    why_not: str = ""  # id of the reason, where there is no verdict


class DeviceTimeline(msgspec.Struct):
    device: int
    rank: int
    busy_ms: float
    idle_share: float | None
    streams: list[dict[str, Any]]


class TimelineSummary(msgspec.Struct):
    span_ms: float | None
    busy_ms: float | None
    idle_share: float | None
    comm_ms: float | None
    comm_hidden_share: float | None
    per_device: list[DeviceTimeline]


class Dilation(msgspec.Struct):
    factor: float | None
    source: Literal["measured", "estimated", "none"]
    us_per_event: float | None = None
    host_pace: float | None = None  # how long the host's own work took, against what the trace shows
    replay_error: float | None = None  # (replayed - true step) / true step; None where no true step is known


class Quality(msgspec.Struct):
    events: int
    kernels_without_launch: int
    launches_without_kernel: int
    steps_without_device_work: int
    cut_off: bool
    dilation: Dilation | None
    damaged: int = 0
    repaired: int = 0
    ignored: dict[str, int] = {}
    above_spec_share: float | None = None
    modelled_share: float | None = None
    start_up_ms: float | None = None  # left out of the steps: loading code, contexts, capture, compiling
    cut_away_ms: float | None = None  # left out as well: waiting for device work that the file does not hold
    checks_failed: dict[str, int] = {}  # what contradicted a figure and is not shown: check -> how often


KERNELS_ALONE = "kernels"  # `Step.found_by` where there are kernels and no step


class BudgetRow(msgspec.Struct):
    wall: str | None
    cause: str
    ms: float
    low_ms: float | None
    high_ms: float | None
    recoverable_ms: float | None
    evidence: list[Evidence] = []


class Phase(msgspec.Struct):
    phase: Literal["loader", "copy", "forward", "backward", "comms", "optimizer", "other"]
    ms: float


class ModuleRow(msgspec.Struct):
    module: str
    ms: float


# What a predicted step rests on: ops that were run on this device as the fix would run them, measured curves
# of such ops, or the replay of the trace alone.
Basis = Literal["probed", "curves", "replay"]


class Prescription(msgspec.Struct):
    fixes: list[str]
    moves: list[str]
    step_ms: Range
    speedup: Range
    safety: Literal["safe", "changes-numerics", "needs-review"]
    how: str
    basis: Basis | None = None  # None: nothing is predicted, the bound alone is known
    parameters: dict[str, Figure] = {}  # numbers of the action: {"workers": 10, "threads": 1}
    places: list[str] = []  # lines of the job's own code that it concerns
    condition: str = ""  # id of what must hold for it to be right, where the trace does not show that
    claim: Claim | None = None  # what `how` says, as data


NO_GAIN = 1.0  # speed-up of a fix that is of no use


class NotWorthIt(msgspec.Struct):
    fixes: list[str]
    at_most_speedup: float | None
    why: str
    obvious: bool = False  # the device is not of the kind it is made for: nobody would have tried it
    claim: Claim | None = None  # what `why` says, as data


class Stage(msgspec.Struct):
    """One stop on the road: the step after some fixes, and what stands in the way then."""

    fixes: list[str]  # made so far; empty: today, or the roofline
    what: Literal["today", "predicted", "roofline"]
    step_ms: Range
    wall: str | None = None
    cause: str | None = None


class WhatIf(msgspec.Struct):
    """What a person asked about."""

    asked: str
    fixes: list[str]
    step_ms: Range
    speedup: Range
    notes: list[str] = []  # what of it does not apply here, and why
    claims: list[Claim] = []  # what `notes` say, as data


class Mfu(msgspec.Struct):
    mfu: float | None
    hfu: float | None
    peak_tflops: float | None
    flops_per_step: float | None
    source: str


class Throughput(msgspec.Struct):
    value: float
    unit: str


class KernelRow(msgspec.Struct):
    name: str
    op: str | None
    class_: str = msgspec.field(name="class")
    calls: float = 0  # a step
    ms: float = 0.0  # a step
    flops: float | None = None
    bytes: float | None = None
    floor_ms: float | None = None
    bound: Literal["compute", "bandwidth", "latency", "unknown"] = "unknown"


class CountedKernel(msgspec.Struct):
    """Launches of one kernel with one grid, as Nsight Compute counted them. Shares are of a unit's peak."""

    name: str
    grid: list[int] | None
    block: list[int] | None
    class_: str = msgspec.field(name="class")
    calls: int
    ms: float  # of all calls
    bound: Literal["compute", "bandwidth", "latency", "unknown"]
    cause: str
    sentence: str = ""
    helps: str = ""
    floor_ms: float | None = None
    bytes: float | None = None  # read from and written to DRAM, of all calls
    dram_share: float | None = None
    memory_share: float | None = None  # of the busiest of DRAM, L2 and L1
    sm_share: float | None = None
    tensor_share: float | None = None
    occupancy: float | None = None  # achieved
    occupancy_limit: float | None = None  # the most that the launch allows
    limited_by: list[str] = []  # what allows no more
    waves: float | None = None
    spills: float | None = None  # requests a call
    wasted_sectors: float | None = None  # share of the sectors moved
    bank_conflicts: float | None = None  # of the worse of shared loads and stores: share of its wavefronts
    stall: str | None = None
    stall_share: float | None = None
    claim: Claim | None = None  # what `sentence` says, as data
    action: Claim | None = None  # what `helps` says, as data


class KindRow(msgspec.Struct):
    """Steps of one kind: the usual ones, or those that also log, save, evaluate."""

    kind: str
    share_of_steps: float
    ms: float | None
    every: int | None  # one step in so many; null where they come at uneven distances
    what: str = ""  # what such a step does besides
    claim: Claim | None = None  # what `what` says, as data


class Diagnosis(msgspec.Struct):
    schema: str
    source: Source
    machine: Machine
    step: Step
    questions: list[Question]
    wall: Wall
    timeline: TimelineSummary
    quality: Quality
    budget: list[BudgetRow]
    phases: list[Phase]
    memory: Memory
    prescriptions: list[Prescription]
    not_worth_it: list[NotWorthIt]
    mfu: Mfu
    throughput: Throughput | None
    kernels: list[KernelRow]
    trials: list[Trial]
    notes: list[str]
    modules: list[ModuleRow] = []
    environment: list[str] = []
    cost: dict[str, Any] = {}
    kinds: list[KindRow] = []
    road: list[Stage] = []  # today, after the best fixes made together, at the roofline
    what_if: WhatIf | None = None
    elapsed: dict[str, float] | None = None  # shares of the job's time: steps, start-up, saving and the like
    counted: list[CountedKernel] = []  # kernels that Nsight Compute counted
    watch: Watch | None = None  # of a job that ran already
    remarks: list[Claim] = []  # what `notes` say, one by one, as data
    sweep: Sweep | None = None  # what other batch sizes would give
    ranks: RanksTogether | None = None  # what the ranks of a job say together; null of one alone
    screened: list[ScreenedTrial] = []  # fixes that `try` switched on and off while the job ran


def to_json(diagnosis: Diagnosis) -> bytes:
    """The document as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(diagnosis), indent=1) + b"\n"


def from_json(raw: bytes) -> Diagnosis:
    return msgspec.json.decode(raw, type=Diagnosis)


def json_schema() -> bytes:
    """The JSON schema of the document, generated from these types."""
    return msgspec.json.format(msgspec.json.encode(msgspec.json.schema(Diagnosis)), indent=1) + b"\n"
