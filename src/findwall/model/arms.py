"""What one process of a trial tells: its step, its losses, and what the fixes made in it did."""

from __future__ import annotations

import msgspec

from findwall.model.applied import Applied

REPORT = "FINDWALL_REPORT"  # the variable that names the file a process tells it in
SEED = "FINDWALL_SEED"  # the seed a process starts from, where the job sets none
SINCE = "FINDWALL_SINCE"  # when the trial began that a process is part of, as the seconds of time.time()
# In a process that is looked at, the folder of whoever looks; it then tells what it writes outside of it.
LOOK = "FINDWALL_LOOK"
# In rank0 of the run folder, each a list of paths.
WRITES_FILE = "writes.json"
DELETES_FILE = "deletes.json"
READ_BACK_FILE = "read-back.json"


class Around(msgspec.Struct, frozen=True):
    """What else could have changed the step while it was timed. None: nobody could tell."""

    clock_mhz: float | None = None  # of the device's cores
    neighbours: int | None = None  # other processes on the device
    others_busy: float | None = None  # cores that other processes kept busy


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
