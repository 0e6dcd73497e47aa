"""The step as a graph: what each launch, kernel and wait had to wait for.

A node is a moment. On the host: a launch, the return from a blocking call, a thread that takes over from
another, a batch that arrives. On the device: the end of a row. Every node has at most two predecessors, so
the whole step is one recursion,

    time = max(time[chain] + chain lag, time[cause] + cause lag) + own,

where the chain is the node's own thread or stream and the other predecessor is what it waits for besides: a
kernel its launch, a blocking call the row it waits for, a stream the event it waits on. Steps repeat, so the
first nodes follow the last ones of the repeat before: a host that runs ahead of its device, or a device that
still works on an earlier step, comes out by itself.

The durations are the recording's. What the profiler added to them, and how fast the host ran when nobody
watched, is taken off in `calibrate.py`.
"""

from __future__ import annotations

import enum

import msgspec
import numpy as np
from numpy.typing import NDArray

from findwall.model.events import Bool
from findwall.model.intervals import F64, I64

NOTHING = -np.inf  # the lag of a predecessor that is not there
LAUNCHING = "launch-bound"  # the cause that host time without another name counts for


class Node(enum.IntEnum):
    """What kind of moment a node is. In this order where two fall on the same nanosecond."""

    OPEN = 0  # a thread at the start of the first step
    RESUME = 1  # a thread takes over from another
    ARRIVAL = 2  # a batch that other processes made is there
    RETURN = 3  # a blocking call returns
    ISSUE = 4  # a launch call begins
    WAIT = 5  # a stream has waited for an event of another
    ROW = 6  # a device row ends
    CLOSE = 7  # a thread at the end of the last step


class HostTime(msgspec.Struct, frozen=True):
    """Host time before each node, as recorded: its length and the events that the profiler paid for in it."""

    length: F64  # ns
    events: F64  # weighted: a Python frame costs the profiler less than an op
    after: F64  # ns: of a part of a node's host time, how much of that time comes after it

    def scaled(self, factor: F64 | float) -> HostTime:
        return HostTime(self.length * factor, self.events * factor, self.after)

    @classmethod
    def none(cls, count: int) -> HostTime:
        return cls(np.zeros(count), np.zeros(count), np.zeros(count))


class Graph(msgspec.Struct, frozen=True):
    """Nodes in an order in which no node comes before what it waits for. All columns have one length."""

    kind: NDArray[np.uint8]  # -> Node
    chain: (
        I64  # predecessor on the same thread or stream; negative: counted from the end of the repeat before
    )
    cause: I64  # the other predecessor, likewise
    turn: F64  # ns: device nodes: from the end of the row before on the stream to this one's start
    lag: F64  # ns after `cause`; -inf where there is none
    own: F64  # ns: how long a device row runs
    host: HostTime  # on the chain, for host nodes
    parts: dict[str, HostTime]  # of that host time: what the host did, by the cause it counts for
    owner: I64  # RETURN: the cause (`cause_index`) its wait counts for; -1 elsewhere
    row: I64  # the timeline's row: device rows, launch and blocking calls; -1 elsewhere
    track: I64  # thread or stream, as an index of its own
    step: I64  # 0 … steps - 1
    paced: Bool  # a copy from or to pageable memory: its length is the host's, not the device's
    elsewhere: F64  # device rows: share of the wait before it in which another device of the job works
    inside: F64  # device rows of a CPU job: recorded events inside the op, which stretched it
    freeing: F64  # the same, ns: host work right behind the op that may be its memory given back
    steps: int
    on_cores: bool  # a CPU job: the host runs the work itself
    repeats: bool  # whether the step comes again: else it is played once, from its start
    measured: frozenset[str]  # parts whose length was timed without the profiler: they stay as they are
    latency: float  # ns from a launch to its kernel on a device that waits
    turnaround: float  # ns between two queued kernels
    share: F64 | None = None  # of the steps: how much each counts for in the mean; None: all the same
    # Rows of the timeline that are launched, or launched late, because of checkpointing.
    checkpointing: I64 | None = None

    def __len__(self) -> int:
        return len(self.kind)

    def is_kind(self, kind: Node) -> Bool:
        mask: Bool = self.kind == kind
        return mask

    @property
    def weight(self) -> F64:
        """What each node counts for in the mean step: 1 where all steps are of one kind."""
        if self.share is None:
            return np.ones(len(self))
        return self.share[self.step] * self.steps

    @property
    def rows(self) -> I64:
        """Positions of the device rows."""
        return np.flatnonzero(self.kind == Node.ROW)


CHECKPOINTING = "recompute"  # takes the waits for launches that are only made because of it


# A queued row that starts later waits for something that is not turn-around; one that starts this soon after
# a row of another stream ended waited for that one.
LONGEST_TURNAROUND_NS = 20_000.0
