"""A rank's trace in a few kilobytes: its communications, and its own work between them.

Own progress is the time in which a rank does anything but wait for a communication. It needs no clock that
others share, and it is what a rank takes with it into a step that goes otherwise. All times are in
nanoseconds, rounded to a tenth of a microsecond: nothing that ranks are told apart by is shorter.
"""

from __future__ import annotations

import zlib

import msgspec
import numpy as np

from findwall.errors import InputError
from findwall.model.events import Bool, ProcessGroup
from findwall.model.intervals import F64, I64

VERSION = 2
MAGIC = b"findwall-rank-summary\n"  # a file of this kind begins with it
GRAIN_NS = 100  # times are kept in this unit
DEVICE, COPY, LOADER, GC, HOST = "device", "copy", "loader", "gc", "host"
# What own time goes to, by who is looked at first. The host is what is left.
DOINGS = (DEVICE, COPY, LOADER, GC, HOST)


class Label(msgspec.Struct, frozen=True):
    """What tells a communication from another one: the same on all its members, but for the peer."""

    kind: str  # "all_reduce", "send"
    group: str = ""  # "" where the trace does not say
    nbytes: int = -1  # of the message; -1 unknown
    peer: int = -1  # the rank at the other end of a send or receive; -1 unknown
    stream: int = 0  # of the rank's own: what runs on one runs in order
    members: int = -1  # ranks of the group; -1 unknown

    @property
    def is_pair(self) -> bool:
        """A send or a receive."""
        return self.kind in ("send", "recv")


class Messages(msgspec.Struct, frozen=True):
    """A rank's communications in the order in which they were ready. All columns have one length."""

    label: I64  # -> RankSummary.labels
    step: I64  # the number of the step they were launched in; -1 none
    launched: I64  # on the rank's own clock
    start: I64
    end: I64
    ready: I64  # own progress at which its input was there
    left: I64  # own progress when it ended
    since: I64  # own progress when a call last held the host
    hosted: I64  # what the host needs from there until its input is there, whatever the device waits for
    held: (
        I64  # and from where it was held before the communication before; below nought where that is the same
    )
    joins: I64  # 1 where the rank's own work waited for its end
    idle: I64  # own time beside it in which the device did nothing and nothing shows that it was waited for
    device: I64  # of own progress until it was ready, what went to each of DOINGS but the host
    copy: I64
    loader: I64
    gc: I64

    def __len__(self) -> int:
        return len(self.label)

    @property
    def is_joined(self) -> Bool:
        return self.joins > 0

    def spent(self) -> F64:
        """Own progress until each was ready, by DOINGS: shape (rows, doings)."""
        known = np.stack([self.device, self.copy, self.loader, self.gc], axis=1).astype(np.float64)
        left = self.ready - known.sum(axis=1)
        return np.concatenate([known, left[:, None]], axis=1)

    def take(self, rows: I64 | Bool) -> Messages:
        return Messages(**{name: getattr(self, name)[rows] for name in COLUMNS})


COLUMNS = Messages.__struct_fields__
_TIMES = frozenset(COLUMNS) - {"label", "step", "joins"}


class DeviceUse(msgspec.Struct, frozen=True):
    """One device of a rank over the whole trace, ns."""

    device: int
    busy: int
    span: int
    streams: tuple[tuple[int, int, int], ...] = ()  # (stream, rows, busy)


class LineSeen(msgspec.Struct, frozen=True):
    """A line that the rank's host was seen on."""

    place: str
    function: str
    share: float


class RankSummary(msgspec.Struct, frozen=True):
    """One rank, as far as others wait for it or it for them."""

    messages: Messages
    labels: tuple[Label, ...]
    rank: int | None = None
    world_size: int | None = None
    path: str = ""
    node: str = ""  # its host's name, where that is known
    device_name: str | None = None
    devices: tuple[DeviceUse, ...] = ()
    base_time_ns: int = 0  # what is added to its clock
    steps: int = 0
    step_ns: float = 0.0  # of its mean step
    own_ns: int = 0  # own progress in all
    events: int = 0  # of its trace
    lines: tuple[LineSeen, ...] = ()
    by_host: bool = False  # the collectives are the host's (gloo): its device has none
    notes: tuple[str, ...] = ()
    in_line_ns: float | None = None  # a step: its host could have run and had no core; None: nobody knows
    made_s: float = 0.0  # seconds of CPU that making it took, where it was made beside the job
    groups: tuple[ProcessGroup, ...] = ()  # those that it communicates in
    gpus: int = 0  # of its machine, whoever uses them; 0 unknown
    data_parallel: bool = False  # DistributedDataParallel or FSDP wraps a model in it


class _Written(msgspec.Struct, frozen=True):
    """The same as it lies in a file."""

    version: int
    head: RankSummary  # without its messages
    rows: int
    columns: dict[str, bytes]


NO_MESSAGES = Messages(**dict.fromkeys(COLUMNS, np.zeros(0, np.int64)))


def grained(times: I64) -> I64:
    """Times rounded as a summary keeps them."""
    rounded: I64 = times // GRAIN_NS * GRAIN_NS
    return rounded


def encode(summary: RankSummary) -> bytes:
    columns = {}
    for name in COLUMNS:
        values = getattr(summary.messages, name)
        columns[name] = _packed(values // GRAIN_NS if name in _TIMES else values)
    head = msgspec.structs.replace(summary, messages=NO_MESSAGES)
    written = _Written(VERSION, head, len(summary.messages), columns)
    return MAGIC + msgspec.msgpack.encode(written, enc_hook=_no_columns)


def decode(raw: bytes, path: str) -> RankSummary:
    """InputError where the bytes are none, or of another version."""
    hint = "Write it again: findwall read TRACE --summaries DIR."
    if not raw.startswith(MAGIC):
        raise InputError(f"{path} is no rank summary.", hint)
    try:
        written = msgspec.msgpack.decode(raw[len(MAGIC) :], type=_Written, dec_hook=_empty)
        if written.version != VERSION:
            raise InputError(f"{path} is a rank summary of version {written.version}, not {VERSION}.", hint)
        columns = {name: _unpacked(written.columns[name], written.rows) for name in COLUMNS}
    except (msgspec.MsgspecError, KeyError, ValueError, zlib.error) as error:
        raise InputError(f"{path} is a rank summary that is damaged.", hint) from error
    for name in _TIMES:
        columns[name] = columns[name] * GRAIN_NS
    if written.rows and not 0 <= columns["label"].min() <= columns["label"].max() < len(written.head.labels):
        raise InputError(f"{path} is a rank summary that is damaged.", hint)
    return msgspec.structs.replace(written.head, messages=Messages(**columns))


def _no_columns(value: object) -> None:
    """The columns go beside the header."""
    return


def _empty(kind: type, value: object) -> object:
    return np.zeros(0, np.int64)


_MOST_ROWS = 50_000_000  # more is no honest file. Chosen by hand.


def _packed(values: I64) -> bytes:
    """Differences from row to row, their low bytes together and their high bytes together: these are nearly
    all zero, and pack to nothing."""
    steps = np.diff(values, prepend=np.zeros(1, np.int64))
    zigzag = (steps << 1) ^ (steps >> 63)
    return zlib.compress(np.ascontiguousarray(zigzag.view(np.uint8).reshape(-1, 8).T).tobytes(), 6)


def _unpacked(raw: bytes, rows: int) -> I64:
    if not 0 <= rows <= _MOST_ROWS:
        raise ValueError("rows")
    unpacker = zlib.decompressobj()
    planes = np.frombuffer(unpacker.decompress(raw, 8 * rows + 1), np.uint8)
    if len(planes) != 8 * rows:
        raise ValueError("length")
    zigzag = np.ascontiguousarray(planes.reshape(8, rows).T).view(np.uint64).reshape(rows)
    steps = (zigzag >> np.uint64(1)).astype(np.int64) ^ -(zigzag & np.uint64(1)).astype(np.int64)
    return np.cumsum(steps, dtype=np.int64)
