"""What the document says of memory: its peak, what that consists of, what failed, what would make it less."""

from __future__ import annotations

from typing import Literal

import msgspec

from findwall.model.claims import Claim, Range

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


MemoryPrice = Literal["none", "time", "numerics", "training", "ranks", "host"]


class MemoryRung(msgspec.Struct):
    """A change that makes the peak smaller, and what it would be."""

    fixes: list[str]
    peak_gib: Range
    how: str = ""
    fits: bool | None = None  # null: nobody knows how much there is, or the interval does not say
    price: MemoryPrice = "none"  # what it costs
    longer_share: float | None = None  # by how much of the step it makes the step longer, where that is known
    patch: str = ""  # the line or setting that makes it
    tries: bool = False  # `findwall try --fixes FIX --write-patch FILE` makes it a diff of the job
    claim: Claim | None = None  # what `how` says, as data


class NotPredicted(msgspec.Struct):
    """A change that people try for memory, and whose peak no recording tells."""

    fix: str
    why: str = ""
    claim: Claim | None = None  # what `why` says, as data


FailureCause = Literal["size", "fragmentation", "limit", "others", "growth", "unknown"]


class FailureGrowth(msgspec.Struct):
    """What a job that ran out of memory kept of every step, seen at ends of steps."""

    gib_per_step: float
    first_step: int  # from which on it grew, by the job's own count
    last_step: int  # at which it was last seen
    holder: str | None = None  # what keeps it, as the job calls it
    function: str | None = None  # in which it is called so; null: in a module
    tensors: int = 0  # that it holds
    graphs: int = 0  # how many of them keep what backward waits for


class OutOfMemory(msgspec.Struct):
    """A request that failed, the last one. Figures of a moment: right before, or when the job had ended."""

    asked_gib: float | None  # null: nobody said
    device_free_gib: float | None  # that the driver still had
    free_gib: float | None  # in the cache
    largest_free_gib: float | None  # in one piece
    # More than there is; as much was free in torch's cache, but in pieces; this process may not have more;
    # others have it; the job keeps something of every step.
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
    state_gib: float | None = None  # of the optimizer, once complete: it was being made
    growth: FailureGrowth | None = None
    of_training: bool | None = None  # it was part of a step that trains; null: nobody looked
    room_gib: float | None = None  # that the job could have had in all
    lines: list[MemoryLineRow] = []  # that held most, then or in steps recorded before
    needs_gib: Range | None = None  # what the step as it is would have peaked at
    largest_batch: float | None = None  # of this one that surely fits
    rung: MemoryRung | None = None  # the first of what would make it smaller that fits, else that may fit


class FailedModel(msgspec.Struct):
    """What a job that ran out of memory trains on the device, and how far its forward pass had come."""

    weights: list[tuple[int, int]] = []  # bytes of a parameter that is updated, and how many are of that size
    state_times: float = 0.0  # bytes of the optimizer's state for each byte of them, once it is complete
    passing: int = 0  # bytes that an update makes and gives back
    forward: tuple[float, float] | None = None  # the least and the most that was done; null: nobody knows
    before: int = 0  # bytes that the process held before the job's own: on the host, Python and torch


class CaughtFailures(msgspec.Struct):
    """Requests that failed, and the job went on."""

    count: int
    largest_gib: float | None = None
    line: str | None = None  # of the largest


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
    not_predicted: list[NotPredicted] = []
    batches: list[MemoryBatch] = []  # larger ones
    largest_batch: float | None = (
        None  # of the recorded one that surely fits; null: nobody knows how much there is
    )
    curve: MemoryCurve | None = None
    devices: list[DeviceMemory] = []  # all, where there are several
