"""The Diagnosis: one JSON document, the contract (`findwall/1`). Everything a person sees is drawn from it.

Unknown values are None (`null`), never 0. Fields may be added; these keep their meaning.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from findwall.model.claims import Claim, Figure

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
EVIDENCE_ROWS = 3  # of a cause at the most: what a person reads before going on


class Evidence(msgspec.Struct):
    text: str = ""
    kernel: str | None = None
    op: str | None = None
    line: str | None = None
    ms: float | None = None
    claim: Claim | None = None  # what `text` says, as data


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


class Range(msgspec.Struct):
    low: float | None = None
    mid: float | None = None
    high: float | None = None


MemoryPhase = Literal["unknown", "set-up", "forward", "backward", "optimizer"]
MemoryKind = Literal[
    "unknown",
    "parameters",
    "gradients",
    "optimizer-state",
    "activations",
    "inputs",
    "temporaries",
    "workspace",
    "kept",
    "before-recording",
]


MemoryOf = Literal["requested", "allocated", "reserved", "resident", "unknown"]


class MemoryKindRow(msgspec.Struct):
    """What of the peak is of one kind; of temporaries, those of one phase."""

    kind: MemoryKind
    gib: float
    count: int  # of allocations
    phase: MemoryPhase = "unknown"  # in which they were made, if in one


class MemoryLineRow(msgspec.Struct):
    """What of the peak one line of the job's code made; line null: autograd, or nobody recorded it."""

    line: str | None
    function: str
    gib: float
    count: int
    kind: MemoryKind  # most of it


class Fragmentation(msgspec.Struct):
    """What is reserved and not of use, at the peak."""

    free_gib: float  # in the cache
    largest_free_gib: float  # in one piece
    largest_request_gib: float  # of the recording
    rounding_gib: float  # by which blocks are larger than what was asked for
    private_gib: float  # free in pools that nobody else may use, as CUDA graphs have them; at the end
    needless_calls: int  # times the driver was asked although as much was free, in pieces


class DriverCalls(msgspec.Struct):
    """How often the allocator took memory from the driver and gave it back, in the recording."""

    taken: int
    given_back: int


class MemoryGrowth(msgspec.Struct):
    """Memory that grows with every step: a line's, or, where nobody knows one, all that the job holds."""

    line: str | None
    gib_per_step: float
    steps: int  # that it was seen in
    kind: MemoryKind
    full_at_step: int | None = None  # where memory ends at this pace, by the job's own count
    full_in_s: float | None = None  # from when it was last looked at


FailureCause = Literal["size", "fragmentation", "limit", "others", "unknown"]


class OutOfMemory(msgspec.Struct):
    """A request that failed, the last one. Figures of a moment: right before, or when the job had ended."""

    asked_gib: float | None  # null: nobody said
    device_free_gib: float | None  # that the driver still had
    free_gib: float | None  # in the cache
    largest_free_gib: float | None  # in one piece
    # More than there is; as much was free, but in pieces; this process may not have more; others have it.
    cause: FailureCause
    phase: MemoryPhase
    line: str | None
    device: int | None = None  # null: the host's memory, or nobody said
    on_host: bool = False
    total_gib: float | None = None
    limit_gib: float | None = None  # that this process may take, if that is less
    others_gib: float | None = None  # that other processes hold
    held_gib: float | None = None  # by the job's tensors
    kinds: list[MemoryKindRow] = []  # of what was held, as far as the job knows it; they add up to it
    is_expandable: bool = False  # the allocator could already grow its segments


class CaughtFailures(msgspec.Struct):
    """Requests that failed, and the job went on."""

    count: int
    largest_gib: float | None = None
    line: str | None = None  # of the largest


class MemoryRung(msgspec.Struct):
    """A change that makes the peak smaller, and what it would be."""

    fixes: list[str]
    peak_gib: Range
    how: str = ""
    fits: bool | None = None  # null: nobody knows how much there is, or the interval does not say
    price: Literal["none", "time", "numerics", "training", "ranks", "host"] = "none"  # what it costs
    longer_share: float | None = None  # by how much of the step it makes the step longer, where that is known
    claim: Claim | None = None  # what `how` says, as data


class MemoryBatch(msgspec.Struct):
    """The peak with another batch, so many times as large."""

    factor: float
    peak_gib: Range
    fits: bool | None = None


class MemoryCurve(msgspec.Struct):
    """Memory over time: the most of each of so many stretches of the recording."""

    ms: list[float]  # from the first event; empty where no times were recorded
    used_gib: list[float]  # of what `of` says
    reserved_gib: list[float]


class DeviceMemory(msgspec.Struct):
    device: int
    peak_gib: float
    reserved_gib: float


class Memory(msgspec.Struct):
    """The peak, of the device that has most; `of` says of what: what was requested, the blocks allocated for
    it, what was reserved from the driver; or, on a CPU, what was resident of the process's own."""

    peak_gib: float | None
    total_gib: float | None
    of: MemoryOf = "unknown"
    phase: MemoryPhase = "unknown"  # in which the peak lies
    allocated_gib: float | None = None  # at the peak
    reserved_gib: float | None = None  # the most
    steps: int = 0  # that were recorded with their backward
    kinds: list[MemoryKindRow] = []  # of the peak: they add up to it
    lines: list[MemoryLineRow] = []  # likewise, the largest
    fragmentation: Fragmentation | None = None
    driver_calls: DriverCalls | None = None
    growth: list[MemoryGrowth] = []
    oom: OutOfMemory | None = None
    caught: CaughtFailures | None = None
    ladder: list[MemoryRung] = []  # what would make it smaller, the most promising first
    batches: list[MemoryBatch] = []  # larger ones
    largest_batch: float | None = (
        None  # of the recorded one that surely fits; null: nobody knows how much there is
    )
    curve: MemoryCurve | None = None
    devices: list[DeviceMemory] = []  # all, where there are several


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


class Trial(msgspec.Struct):
    """Fixes that were really made, in processes of their own beside the plain job."""

    fix: str  # several made together are joined by " + "
    predicted: Range  # the step in ms
    measured: Range  # likewise; the ends are those of the speed-up's interval
    verdict: Literal["faster", "slower", "no-difference", "incorrect", "failed"]
    speedup: Range = msgspec.field(default_factory=Range)  # over the plain job
    base: str = ""  # the fixes that the verdict compares it with; none: the plain job
    speedup_over_base: Range = msgspec.field(default_factory=Range)
    losses: Literal["same", "differs", "not-checked"] = "not-checked"
    compared: Literal["losses", "outputs"] = (
        "losses"  # what `losses` tells of: without any, the models' outputs
    )
    apart: float | None = None  # how far the losses of the first steps lie apart, as a share of them
    allowed: float | None = None  # how far they may
    peak_memory: int | None = None  # bytes on the device
    break_even_steps: int | None = None  # after which a longer start is made up for; null: it starts as fast
    seconds: float = 0.0  # that its processes took
    why: str = ""  # what was seen to have taken effect, or why it failed
    kept: bool = False


class KindRow(msgspec.Struct):
    """Steps of one kind: the usual ones, or those that also log, save, evaluate."""

    kind: str
    share_of_steps: float
    ms: float | None
    every: int | None  # one step in so many; null where they come at uneven distances
    what: str = ""  # what such a step does besides
    claim: Claim | None = None  # what `what` says, as data


class WatchedLine(msgspec.Struct):
    """A line of Python on which a thread was seen."""

    who: Literal["host", "worker"]
    doing: str  # loader, python, reads, ops, stalls, waits, compiles, collective or starts
    line: str  # "train.py:88"
    function: str
    share: float  # of the looks
    inside: str = ""  # what of a library it was in


class WatchedRow(msgspec.Struct):
    """One rank of a job that ran already. Shares are of the time; null is unknown."""

    rank: int | None
    pid: int
    gpu: str | None = None  # UUID
    sm_share: float | None = None
    tensor_share: float | None = None
    dram_share: float | None = None
    power_w: float | None = None
    sm_clock_mhz: float | None = None
    memory_gib: float | None = None  # on the GPU, by everyone
    pcie_to_gpu_mib_s: float | None = None
    pcie_from_gpu_mib_s: float | None = None
    throttle: dict[str, float] | None = None  # share of the samples in which each reason held the clocks
    other_processes: int | None = None  # on the same GPU
    cores: float | None = None  # that it and its workers kept busy
    workers: int = 0
    in_line_share: float | None = None  # its main thread could have run and had no core
    read_mib_s: float | None = None
    write_mib_s: float | None = None
    doing: dict[str, float] = {}  # share of the looks
    line: str | None = None
    odd: str = ""  # how it differs from the other ranks
    claim: Claim | None = None  # what `odd` says, as data


class Watch(msgspec.Struct):
    """What was seen of a job that ran already, from outside."""

    seconds: float
    looks: int  # at the Python line
    missed: int
    settle: str  # the command that would measure what cannot be known from outside
    ranks: list[WatchedRow] = []
    lines: list[WatchedLine] = []
    has_ended: bool = False


class SweepPoint(msgspec.Struct):
    """The job with batches of one size. Figures are of one rank, of steps without an evaluation."""

    batch_size: int
    outcome: Literal[
        "measured",
        "out-of-memory",
        "would-not-fit",
        "too-few-samples",
        "too-few-steps",
        "failed",
        "no-time",
        "not-started",
    ]
    samples_per_s: float | None = None
    step_ms: Range = msgspec.field(default_factory=Range)  # the mean between p10 and p90
    steps: int = 0  # that were timed
    samples_per_step: float | None = None
    peak_gib: float | None = None  # of what `Sweep.memory_of` says
    reserved_gib: float | None = None  # the most that torch took from the driver
    predicted_gib: float | None = None  # the peak, before the size was tried
    predicted_reserved_gib: float | None = None
    is_doubtful: bool = False  # what is allocated fits, what torch reserves for it does not
    wall: str | None = None
    cause: str | None = None
    seconds: float = 0.0  # that its process took
    why: str = ""  # there are no figures
    claim: Claim | None = None  # what `why` says, as data


class Sweep(msgspec.Struct):
    """Throughput over the size of a batch."""

    varied: Literal["loader", "argument"]  # the training loader itself, or an argument of the job
    argument: str = ""  # its name
    own: int | None = None  # the job's own size
    memory_of: Literal["allocated", "resident", "unknown"] = "unknown"
    limit_gib: float | None = None  # that a peak may reach
    points: list[SweepPoint] = []  # by size
    knee: int | None = None  # from here on a batch k times as large gives less than the root of k times
    plateau: list[int] = []  # the first and the last size within 5 % of the best
    smallest: int | None = None  # size within 5 % of the best
    best: int | None = None  # size with the most samples a second
    wall: str | None = None  # that makes the plateau
    cause: str | None = None
    largest: int | None = None  # size that ran
    largest_predicted: int | None = None  # size of those asked for that is predicted to fit
    ended: Literal["done", "deadline", "interrupted"] = "done"
    seconds: float = 0.0
    says: list[str] = []
    claims: list[Claim] = []  # what `says` says, one by one, as data


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


def to_json(diagnosis: Diagnosis) -> bytes:
    """The document as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(diagnosis), indent=1) + b"\n"


def from_json(raw: bytes) -> Diagnosis:
    return msgspec.json.decode(raw, type=Diagnosis)


def json_schema() -> bytes:
    """The JSON schema of the document, generated from these types."""
    return msgspec.json.format(msgspec.json.encode(msgspec.json.schema(Diagnosis)), indent=1) + b"\n"
