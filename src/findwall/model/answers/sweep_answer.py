"""What the document says of batch sizes that were tried."""

from __future__ import annotations

from typing import Literal

import msgspec

from findwall.model.claims import Claim, Range

Outcome = Literal[
    "measured",
    "out-of-memory",
    "would-not-fit",
    "too-few-samples",
    "too-few-steps",
    "failed",
    "no-time",
    "not-started",
]


class SweepPoint(msgspec.Struct):
    """The job with batches of one size. Figures are of one rank, of steps without an evaluation."""

    batch_size: int
    outcome: Outcome
    samples_per_s: float | None = None
    step_ms: Range = msgspec.field(default_factory=Range)  # the mean between p10 and p90
    steps: int = 0  # that were timed
    samples_per_step: float | None = None
    peak_gib: float | None = None  # of what `Sweep.memory_of` says
    reserved_gib: float | None = None  # the most that torch took from the driver
    predicted_gib: float | None = None  # the peak, before the size was tried
    predicted_low_gib: float | None = None  # apart where it hangs on what libraries work in
    predicted_high_gib: float | None = None
    predicted_reserved_gib: float | None = None
    is_doubtful: bool = False  # what is allocated fits, what torch reserves for it does not
    wall: str | None = None
    cause: str | None = None
    seconds: float = 0.0  # that its process took, and the look at its wall
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
