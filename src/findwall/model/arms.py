"""What one process of a trial tells: its step, its losses, and what the fixes made in it did."""

from __future__ import annotations

from typing import Literal

import msgspec

from findwall.model.applied import Applied

REPORT = "FINDWALL_REPORT"  # the variable that names the file a process tells it in
SEED = "FINDWALL_SEED"  # the seed a process starts from, where the job sets none
SINCE = "FINDWALL_SINCE"  # when the trial began that a process is part of, as the seconds of time.time()
# In a process that is looked at, the folder of whoever looks; it then tells what it writes outside of it.
LOOK = "FINDWALL_LOOK"
# In a process of a sweep, what is varied in it, as JSON: `Varied`.
SWEEP = "FINDWALL_SWEEP"
# In rank0 of the run folder, each a list of paths.
WRITES_FILE = "writes.json"
DELETES_FILE = "deletes.json"
READ_BACK_FILE = "read-back.json"


class Around(msgspec.Struct, frozen=True):
    """What else could have changed the step while it was timed. None: nobody could tell."""

    clock_mhz: float | None = None  # of the device's cores
    neighbours: int | None = None  # other processes on the device
    others_busy: float | None = None  # cores that other processes kept busy


class Varied(msgspec.Struct, frozen=True):
    """What a process of a sweep changes in its job: nothing where no size is given."""

    size: int | None = None  # of the training loader's batches
    loader: str = ""  # by which that loader is known, as the first process told it


class FedLoader(msgspec.Struct, frozen=True):
    """A loader whose batches led to steps."""

    loader: str  # the same in every process of this job
    size: int | None  # samples that it gives at a time; None: it does not say
    samples: int | None  # that one pass has; None: a stream
    batches: int  # that it gave
    steps: int  # that had a batch of it
    why_fixed: str = ""  # what keeps its size from being changed, if anything
    made_by: str = ""  # the class that makes its batches, where it is the job's own


MemoryOf = Literal["allocated", "resident", "unknown"]


class Peaks(msgspec.Struct, frozen=True):
    """Bytes at the peaks of one process, phase by phase. None: not told apart."""

    of: MemoryOf = "unknown"
    set_up: int | None = None  # until the first batch
    working: int | None = None  # forward and backward
    optimizer: int | None = None
    held: int | None = None  # between two steps
    reserved: int | None = None  # with what lies free in torch's cache, or is kept by the C library
    limit: int | None = None  # of the device, as far as this process could have it
    workers: int | None = None  # what processes below this one have for themselves, of the host's memory
    waiting: int | None = None  # batches that they made and nobody has taken

    @property
    def whole(self) -> int | None:
        known = [one for one in (self.set_up, self.working, self.optimizer) if one is not None]
        return max(known) + self.beside if known else None

    @property
    def beside(self) -> int:
        """In other processes."""
        return (self.workers or 0) + (self.waiting or 0)


class BatchLines(msgspec.Struct, frozen=True):
    """What the allocator recorded of steps, for batches of every size: the peak is the largest of these lines
    at the batch's size, as a multiple of the recorded one's."""

    lines: tuple[tuple[int, int], ...] = ()  # bytes that stay, and those that grow with the batch
    # The same at the least and at the most, where it hangs on what libraries work in; else none.
    least: tuple[tuple[int, int], ...] = ()
    most: tuple[tuple[int, int], ...] = ()
    between: int | None = None  # bytes that were alive between two steps


class Swept(msgspec.Struct, frozen=True):
    """What a process of a sweep tells besides, of steps without an evaluation."""

    mean_ms: float
    low_ms: float  # p10
    high_ms: float  # p90
    steps: int
    is_enough: bool  # so many as were to be timed
    batches: float | None  # a step; None: no loader gave any
    peaks: Peaks = Peaks()
    fed: list[FedLoader] = []  # loaders whose batches led to steps


class ScreenedFix(msgspec.Struct, frozen=True):
    """One fix that was switched on and off while the job ran, in blocks of steps."""

    name: str
    pairs: list[tuple[float, float]] = []  # the mean step in ms of two blocks without it and of two with it
    seen: str = ""  # what shows that it took effect; empty: nothing did
    trouble: str = ""  # why it could not be made, or was ended
    seconds: float = 0.0  # that it took, with what is compiled for it


class Screening(msgspec.Struct, frozen=True):
    """What a process tells that `try` screens fixes in."""

    fixes: list[ScreenedFix] = []
    why_not: str = ""  # why no more fixes were screened, where that is not because all were


class ArmReport(msgspec.Struct, frozen=True):
    """The file, as JSON."""

    step_ms: float | None = None  # the mean of the timed steps
    steps: int = 0  # that were timed
    losses: list[float] = []  # of the first steps, in their order
    peak_memory: int | None = None  # bytes on the device
    applied: Applied = Applied()
    around: Around = Around()
    draws: bool = False  # its dataset was seen to draw random numbers, in the training process or in a worker
    unseen: bool = False  # its dataset is read by workers that were not forked: nobody saw whether it draws
    # Files it read that an earlier process of the trial wrote; relative where they are in its folder.
    read_back: list[str] = []
    order: list[list[int]] = []  # numbers for the first batches that each loader asked for
    outputs: list[float] = []  # the size of what the models gave in their first calls without gradients
    swept: Swept | None = None
    fed: list[FedLoader] = []  # of a process of a sweep: what feeds its steps, also where none was timed
    screening: Screening | None = None
