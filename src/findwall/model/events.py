"""One rank's events as columns: a row an event, a numpy array a field, text interned.

`-1` in an id column means "the trace did not say". Times are integer nanoseconds since the
timeline's origin (its earliest event), never floats.
"""

from __future__ import annotations

import enum
import re
from functools import cached_property
from typing import TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from findwall.model.intervals import I64

I32 = NDArray[np.int32]
TORCH, NSYS = "torch", "nsys"  # recorders of timelines
U64 = NDArray[np.uint64]
U8 = NDArray[np.uint8]
Bool = NDArray[np.bool_]


class Kind(enum.IntEnum):
    """What a row is, whatever its generation of torch called the category."""

    OP = 0  # an operator on the host (cpu_op, Operator)
    ANNOTATION = 1  # record_function on the host: ProfilerStep, Optimizer.step, DataLoader
    RUNTIME = 2  # a CUDA/HIP runtime or driver call
    PYTHON = 3  # a Python frame (with_stack)
    OVERHEAD = 4  # the profiler's own rows, and "Command Buffer Full"
    KERNEL = 5
    MEMCPY = 6
    MEMSET = 7
    DEVICE_ANNOTATION = 8  # the shadow of an annotation on a stream: not device work
    SYNC = 9  # cuda_sync rows: waits between streams, events and the host
    OTHER = 10
    CAPTURED = 11  # an op of a graph's capture: what a replayed kernel does, at no time of this trace


DEVICE_KINDS = (Kind.KERNEL, Kind.MEMCPY, Kind.MEMSET)


class Inputs(msgspec.Struct, frozen=True):
    """What the profiler recorded of an op's arguments, position by position.

    A tensor has dims `[2, 3]`; a tensor list has a list of those; a scalar has `[]`.
    """

    dims: list[list[int | list[int]]] = []
    types: list[str | list[str]] = []
    strides: list[list[int | list[int]]] = []
    concrete: list[str] = []

    def shape(self, index: int) -> tuple[int, ...]:
        """Dims of the tensor at a position; nothing where it is a list or a number, or was not recorded."""
        dims = self.dims[index] if index < len(self.dims) else []
        return tuple(extent for extent in dims if isinstance(extent, int))


class Launch(msgspec.Struct, frozen=True):
    """How a kernel was launched."""

    grid: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None
    # These two tell launches of one grid apart.
    shared_memory: int | None = None
    registers: int | None = None


class Extra(msgspec.Struct, frozen=True, omit_defaults=True):
    """Rare arguments, kept for the few rows that carry them."""

    collective: str | None = None  # NCCL metadata: "allreduce", "_allgather_base", ...
    in_elements: int | None = None
    out_elements: int | None = None
    group_size: int | None = None
    group_name: str | None = None
    dtype: str | None = None
    call_stack: str | None = None  # torch 1.x: frames joined by ';'
    module: str | None = None  # module hierarchy
    kernel: str | None = None  # HIP: the kernel that a runtime call launches


S = TypeVar("S", bound=msgspec.Struct)


def _decode_or_default(raw: bytes, kind: type[S]) -> S:
    try:
        return msgspec.json.decode(raw, type=kind, strict=False)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):  # stray bytes, absurd nesting
        return kind()


class Details(msgspec.Struct):
    """The interned arguments behind the id columns `inputs`, `launch` and `extra`.

    Each list holds distinct raw JSON objects in the field names of `Inputs`, `Launch`, `Extra`.
    A value that does not fit its type decodes to "nothing recorded", never to an error.
    """

    inputs: list[bytes] = msgspec.field(default_factory=list)
    launch: list[bytes] = msgspec.field(default_factory=list)
    extra: list[bytes] = msgspec.field(default_factory=list)
    _inputs: dict[int, Inputs] = msgspec.field(default_factory=dict)
    _launch: dict[int, Launch] = msgspec.field(default_factory=dict)
    _extra: dict[int, Extra] = msgspec.field(default_factory=dict)

    def inputs_of(self, index: int) -> Inputs | None:
        return self._lookup(index, self.inputs, self._inputs, Inputs)

    def launch_of(self, index: int) -> Launch | None:
        return self._lookup(index, self.launch, self._launch, Launch)

    def extra_of(self, index: int) -> Extra | None:
        return self._lookup(index, self.extra, self._extra, Extra)

    @staticmethod
    def _lookup(index: int, raw: list[bytes], cache: dict[int, S], kind: type[S]) -> S | None:
        if index < 0:
            return None
        found = cache.get(index)
        if found is None:
            found = cache[index] = _decode_or_default(raw[index], kind)
        return found


class Events(msgspec.Struct, frozen=True):
    """The columns. All arrays have the same length."""

    start: I64
    end: I64
    kind: U8
    name: I32  # -> Timeline.names
    process: I32  # -> Timeline.processes
    thread: I32  # -> Timeline.threads; host rows: the thread; device rows: its track
    device: I32
    stream: I64
    correlation: I64
    external: I64
    sequence: I64  # autograd sequence number: the same on a forward op and its backward node
    nbytes: I64  # memcpy and memset: bytes moved
    graph_node: I64
    inputs: I32  # -> Details
    launch: I32
    extra: I32

    def __len__(self) -> int:
        return len(self.start)

    @property
    def duration(self) -> I64:
        length: I64 = self.end - self.start
        return length

    def is_kind(self, *kinds: Kind) -> Bool:
        mask: Bool = np.zeros(len(self.kind), bool)
        for kind in kinds:  # many times faster than np.isin
            mask |= self.kind == int(kind)
        return mask

    def take(self, rows: NDArray[np.int64] | Bool) -> Events:
        return Events(**{column: getattr(self, column)[rows] for column in self.__struct_fields__})


COLUMN_TYPES: dict[str, type[np.generic]] = {
    "start": np.int64,
    "end": np.int64,
    "kind": np.uint8,
    "name": np.int32,
    "process": np.int32,
    "thread": np.int32,
    "device": np.int32,
    "stream": np.int64,
    "correlation": np.int64,
    "external": np.int64,
    "sequence": np.int64,
    "nbytes": np.int64,
    "graph_node": np.int64,
    "inputs": np.int32,
    "launch": np.int32,
    "extra": np.int32,
}


class MemorySamples(msgspec.Struct, frozen=True):
    """What the allocator did, and its totals after it (profile_memory=True); of the host if no device is."""

    time: I64
    device: I32  # -1: the host
    allocated: I64  # bytes; -1 unknown
    reserved: I64
    address: U64
    size: I64  # bytes; negative where they are freed, 0 unknown
    thread: I32  # -> Timeline.threads; -1 unknown


class DeviceProperties(msgspec.Struct, frozen=True):
    """A row of the trace's own device list."""

    id: int
    name: str
    total_memory: int | None = None
    sm_count: int | None = None


class ProcessGroup(msgspec.Struct, frozen=True):
    """Ranks that communicate with each other, as the job made them."""

    name: str
    description: str = ""  # what the job calls it: "mesh_tp", "DATA_PARALLEL_GROUP"
    size: int = 0
    first: int = -1  # its lowest rank; -1 unknown
    stride: int = 0  # from each of its ranks to the next; 0: uneven, or unknown


class Header(msgspec.Struct, frozen=True):
    """What the file says of itself. None means it does not say."""

    devices: tuple[DeviceProperties, ...] = ()
    rank: int | None = None
    world_size: int | None = None
    backend: str | None = None
    shapes: bool | None = None
    stacks: bool | None = None
    memory: bool | None = None
    base_time_ns: int = 0
    recorder: str = TORCH  # who recorded it
    groups: tuple[ProcessGroup, ...] = ()  # of two ranks and more

    @property
    def shapes_option(self) -> str:
        """What adds shapes to such a recording."""
        return (
            "record_shapes=True" if self.recorder == TORCH else "nsys profile --pytorch=autograd-shapes-nvtx"
        )


class ReadQuality(msgspec.Struct):
    """What reading lost or left out. Nothing is dropped in silence."""

    events: int = 0  # every entry of traceEvents seen
    kept: int = 0
    ignored: dict[str, int] = msgspec.field(default_factory=dict)  # phase or reason -> count
    damaged: int = 0  # entries that could not be read at all
    repaired: int = 0  # entries kept after a field had to be dropped
    cut_off: bool = False
    notes: list[str] = msgspec.field(default_factory=list)


class Timeline(msgspec.Struct, frozen=True, dict=True):
    """One rank: its events and everything needed to read them."""

    path: str
    events: Events
    names: list[str]
    processes: list[str]
    threads: list[tuple[int, str]]  # (process index, tid as text)
    details: Details
    header: Header
    quality: ReadQuality
    memory: MemorySamples | None = None
    thread_names: dict[int, str] = msgspec.field(default_factory=dict)

    @cached_property
    def _named(self) -> dict[re.Pattern[str], NDArray[np.int8]]:
        """Which names a pattern is found in; -1: nobody asked. Not passed on: another timeline has others."""
        return {}

    def name_of(self, row: int) -> str:
        return self.names[int(self.events.name[row])]

    def named(self, pattern: re.Pattern[str], rows: I64 | None = None) -> Bool:
        """For each interned name, whether the pattern is found in it.

        Where `rows` are given, only of the names that they bear: kernels' names are long and many, and most
        patterns are of calls and ops.
        """
        found = self._named.setdefault(pattern, np.full(len(self.names), -1, np.int8))
        asked = found < 0
        if rows is not None:
            borne = np.zeros(len(self.names), bool)
            borne[self.events.name[rows]] = True
            asked &= borne
        for name in np.flatnonzero(asked).tolist():
            found[name] = pattern.search(self.names[name]) is not None
        matches: Bool = found == 1
        return matches

    def bears(self, pattern: re.Pattern[str], rows: I64) -> Bool:
        """For each of these rows, whether the pattern is found in its name."""
        return self.named(pattern, rows)[self.events.name[rows]]

    def rows_named(self, pattern: re.Pattern[str], *kinds: Kind) -> I64:
        """The rows of these kinds in whose name the pattern is found."""
        rows = self.rows(*kinds)
        return rows[self.bears(pattern, rows)]

    def inputs_of(self, row: int) -> Inputs | None:
        """None where nothing was recorded; no row (-1) has none."""
        return self.details.inputs_of(int(self.events.inputs[row])) if row >= 0 else None

    def launch_of(self, row: int) -> Launch | None:
        return self.details.launch_of(int(self.events.launch[row]))

    def extra_of(self, row: int) -> Extra | None:
        return self.details.extra_of(int(self.events.extra[row]))

    def rows(self, *kinds: Kind) -> I64:
        found: I64 = np.flatnonzero(self.events.is_kind(*kinds))
        return found
