"""What torch's allocator did and held, as columns: from a snapshot of `torch.cuda.memory`, or from a trace.

Sizes are bytes, times microseconds in a snapshot and nanoseconds in a trace. -1 is unknown, for stacks none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import msgspec
import numpy as np
import numpy.typing as npt

from findwall.model.answers.memory_answer import MemoryKind
from findwall.model.measured_run import Rank, Run

SNAPSHOT = "memory-snapshot"  # the kind of a run that is nothing but one

HOST = -1  # the device of the host's own memory
# What is beyond is damage.
MOST_DEVICES = 1024
MOST_BYTES = 1 << 50  # of anything: a petabyte
HIGHEST_ADDRESS = (1 << 64) - 1
U8 = npt.NDArray[np.uint8]
I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]

KINDS: tuple[MemoryKind, ...] = get_args(MemoryKind)  # of memory, by number

# The actions of an event, by number. Older versions of torch know fewer.
ACTIONS = (
    "unknown",
    "alloc",
    "free_requested",
    "free_completed",
    "segment_alloc",
    "segment_free",
    "segment_map",
    "segment_unmap",
    "oom",
    "snapshot",
)
ALLOC, FREE_REQUESTED, FREE_COMPLETED = (ACTIONS.index(name) for name in ACTIONS[1:4])
SEGMENT_ALLOC, SEGMENT_FREE, SEGMENT_MAP, SEGMENT_UNMAP = (ACTIONS.index(name) for name in ACTIONS[4:8])
OOM = ACTIONS.index("oom")

# What the job is doing, as far as the ops that run say it.
PASSES = ("unknown", "forward", "backward", "update")
SILENT_PASS, FORWARD_PASS, BACKWARD_PASS, UPDATE_PASS = range(len(PASSES))

# The states of a block: it is free in the cache, a tensor holds it, or one did and a stream still reads it.
STATES = ("inactive", "active_allocated", "active_awaiting_free")
INACTIVE, ALLOCATED, AWAITING_FREE = range(3)


class CodeFrame(msgspec.Struct, frozen=True, array_like=True):
    """One line of a stack; of Python or of C++."""

    name: str
    file: str
    line: int

    @property
    def is_python(self) -> bool:
        return self.file.endswith(".py") or self.file.startswith("<")

    @property
    def is_op(self) -> bool:
        """An op of torch as a trace names it: of no file."""
        return not self.file and ("::" in self.name or "#" in self.name)


class MemoryEvents(msgspec.Struct, frozen=True):
    """What the allocator did on one device, in its order."""

    action: U8
    address: U64  # of an `oom`: what the driver still had, in bytes
    size: I64  # as it was asked for
    time: I64
    stack: I32

    def __len__(self) -> int:
        return len(self.action)

    def at(self, *actions: int) -> npt.NDArray[np.bool_]:
        """Rows of these actions."""
        return np.isin(self.action, actions)


class Segments(msgspec.Struct, frozen=True):
    """What was taken from the driver of one device, when the snapshot was made."""

    address: U64
    total: I64
    active: I64  # of its blocks that hold something, as the segment itself says
    requested: I64  # the same, as it was asked for
    is_private: npt.NDArray[np.bool_]  # of a pool of its own, as CUDA graphs have one


class Blocks(msgspec.Struct, frozen=True):
    """The pieces of the segments, when the snapshot was made."""

    segment: I32
    address: U64
    size: I64
    requested: I64
    state: U8
    stack: I32


class ModuleCalls(msgspec.Struct, frozen=True):
    """Calls of a model's modules in which something was allocated or freed, and those inside them."""

    way: I64  # what is called through what, as a number: the same for blocks of a loop
    first: I64  # event
    last: I64
    names: Sequence[str]  # of each way: the class of the module


class DeviceHistory(msgspec.Struct, frozen=True):
    """One device; -1 is the host."""

    device: int
    events: MemoryEvents
    segments: Segments
    blocks: Blocks
    passes: U8 | None = None  # of each event, into PASSES, where the recording says it
    reserved: I64 | None = None  # after each event, where that is told and no segment is
    calls: ModuleCalls | None = None


class Marked(msgspec.Struct, frozen=True, array_like=True):
    """A stretch that torch itself noted beside the events: `Optimizer.step#AdamW.step`."""

    name: str
    device: int
    start: int
    end: int


class KnownMemory(msgspec.Struct, frozen=True):
    """What the job itself says of addresses, at one moment: the end of the recording that it goes with.

    A row a storage that holds parameters, gradients or optimizer state; views of one storage are one row.
    """

    address: U64
    size: I64
    kind: U8  # by number, of KINDS
    device: I32  # -1 is the host's memory
    tells_all_state: bool = False  # what is not at an address of the optimizer's state is none

    def __len__(self) -> int:
        return len(self.address)

    def on(self, device: int) -> KnownMemory:
        """Of one device, in the order of its addresses."""
        mine = np.flatnonzero(self.device == device)
        mine = mine[np.argsort(self.address[mine], kind="stable")]
        columns = self.address[mine], self.size[mine], self.kind[mine], self.device[mine]
        return KnownMemory(*columns, self.tells_all_state)


class MemoryHistory(msgspec.Struct, frozen=True):
    """A snapshot, or what a trace says of the allocator."""

    path: str
    devices: tuple[DeviceHistory, ...]
    frames: Sequence[CodeFrame]
    stacks: Sequence[Sequence[int]]  # frames by number, the innermost first
    marked: tuple[Marked, ...] = ()
    settings: str = ""  # PYTORCH_CUDA_ALLOC_CONF
    known: KnownMemory | None = None  # of its end, where the job was asked
    of: Literal["requested", "allocated"] = "requested"  # what sizes are of: as asked for, or whole blocks
    is_narrow: bool | None = None  # most products are of 16-bit numbers; None: the recording does not say


class SnapshotRun(Run, frozen=True, kw_only=True):
    """A run of which nothing is known but what its allocator did. Apart from `Run`: few need this."""

    memory: MemoryHistory


class RecordedRank(Rank, frozen=True, kw_only=True):
    """A rank whose allocator was recorded beside its trace. Apart from `Rank`: few need this."""

    memory: MemoryHistory | None = None
    known_at_trace: KnownMemory | None = None  # what lay where when its trace ended
