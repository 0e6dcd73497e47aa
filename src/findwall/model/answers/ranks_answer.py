"""What the document says of a job's ranks together."""

from __future__ import annotations

from typing import Literal

import msgspec

Unit = Literal["rank", "node", "stage", "link"]
Why = Literal["device", "copy", "loader", "gc", "host", "link"]
Pattern = Literal["one", "uneven", "even", "unknown"]
WhyNot = Literal["", "one", "no-messages", "none-shared", "unlike-clocks"]


class Spread(msgspec.Struct):
    """Over the ranks, ms a step."""

    min: float
    median: float
    max: float


class Suspect(msgspec.Struct):
    """Who the others wait for, or what is worth asking about."""

    what: Unit
    name: str  # "3" of a rank, node or stage; the group of a link
    ranks: list[int]  # the numbers of those that belong to it
    saves_ms: float  # a step, if it were as its peers are: by replay of all ranks
    excess_ms: float  # how much longer its own work takes than its peers', or its transfers, a step
    chance: float | None  # of such a difference where there is none; null: too few steps to tell
    named: bool = False  # no chance, and worth it
    why: Why | None = None
    why_ms: float | None = None  # what of the excess that is
    line: str | None = None  # where its host was seen most
    # "timing": it was not traced, and its steps without the profiler are longer. Nobody knows why.
    by: Literal["replay", "timing"] = "replay"


Role = Literal["data", "tensor", "pipeline", "expert", "context"]
ToldBy = Literal["name", "traffic", "strides"]
LinkSource = Literal["measured", "table", "peers"]


class LinkRow(msgspec.Struct):
    """Transfers of one kind in one group, without waiting. Rates are null unless all ranks of the group are
    here: what is not known to be transfer may be waiting for the others."""

    kind: str
    group: str
    ranks: int
    calls: float  # a step
    bytes: int
    ms: float  # of one, in the median
    algbw_gbps: float | None
    busbw_gbps: float | None
    link_gbps: float | None = None  # what the bus may carry: see `link_source`
    link_source: LinkSource | None = None  # the table's is of GPUs in one machine; "peers": groups like it
    link_share: float | None = None  # of large messages: bus bandwidth / link; null where it passes the link


class GroupRow(msgspec.Struct):
    """Groups of ranks that do the same for the job."""

    role: Role | None  # null: neither its name nor what it sends says
    told_by: ToldBy | None
    groups: int  # that are seen here
    ranks: int | None  # of each group
    stride: int | None  # from one of its ranks to the next
    across_nodes: bool | None
    calls: float  # of a rank, a step
    sent_bytes: float | None  # by a rank, a step; null where the size of any message is unknown


class ShardingRow(msgspec.Struct):
    """What a rank would send each step with state, gradients or weights spread over the data ranks."""

    stage: int  # of ZeRO; 0: as DistributedDataParallel has it
    sent_bytes: float  # as rings send it
    ms: float | None  # at the rate that this job's own reductions reach; null where that is unknown
    least_ms: float | None = None  # at what the link carries, where all ranks are in one machine


class Scaling(msgspec.Struct):
    """A run against one of fewer ranks."""

    baseline_ranks: int
    ranks: int
    baseline_step_ms: float
    step_ms: float
    # Of the work done a rank and second, this run's by the baseline's.
    efficiency: float
    low: float | None
    high: float | None
    # throughput: samples were counted in both; step: taken as the same work a rank and step in both
    basis: Literal["throughput", "step"]


class Transport(msgspec.Struct):
    """How NCCL connects ranks, as its log says."""

    via: str  # "P2P/CUMEM", "SHM", "NET/IB", "NET/Socket"
    connections: int  # pairs of ranks
    across_nodes: bool | None
    gpu_direct: bool | None = None  # of a network: whether the adapter reads the GPU's memory


class RanksTogether(msgspec.Struct):
    """The ranks of a job, matched and replayed as one. Times are ms a step; null is unknown."""

    compared: int
    messages: int  # communications of all ranks
    matched: int  # that others have as well
    # "": they were compared; "one": of a single rank; "unlike-clocks": played together they give another step
    why_not: WhyNot = ""
    clock_residual_us: float | None = None
    entry_skew_ms: float | None = None  # how the profilers were started: nobody's fault, and not recoverable
    step_ms: float | None = None  # under the profiler
    replay_error: float | None = None
    own: Spread | None = None  # what the ranks do besides waiting for each other
    waits: Spread | None = None
    nodes: int | None = None  # null: they cannot be told apart
    stages: int | None = None
    bubble_share: float | None = None  # of the stages' time: waiting for each other
    micro_batches: int | None = None  # of a step; null: not told, as where a schedule interleaves its stages
    bubble_expected: float | None = None  # (stages - 1) / (micro_batches + stages - 1)
    groups: list[GroupRow] = []
    throughput: float | None = None  # of a rank, in the document's unit
    efficiency: float | None = None  # the median rank's step without waiting and exposed communication / step
    scaling: Scaling | None = None
    sharding: list[ShardingRow] = []
    transports: list[Transport] = []
    # one: the suspect that is named; uneven: others each step; even: nobody costs anything; unknown
    pattern: Pattern = "unknown"
    all_level_ms: float | None = None  # saved, if no rank took longer than its peers usually do
    uneven_why: Why | None = None  # what the latest of each step takes longer for, where it is uneven
    suspects: list[Suspect] = []
    links: list[LinkRow] = []
    missing: list[int] = []  # ranks of the job that are not here, at most 16 of them
    missing_count: int = 0
    timed: int = 0  # ranks of which only the steps were timed: others were traced in their place
