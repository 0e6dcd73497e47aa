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


class LinkRow(msgspec.Struct):
    """Transfers of one kind in one group, without waiting."""

    kind: str
    group: str
    ranks: int
    calls: float  # a step
    bytes: int
    ms: float  # of one, in the median
    algbw_gbps: float
    busbw_gbps: float


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
    # one: the suspect that is named; uneven: others each step; even: nobody costs anything; unknown
    pattern: Pattern = "unknown"
    all_level_ms: float | None = None  # saved, if no rank took longer than its peers usually do
    uneven_why: Why | None = None  # what the latest of each step takes longer for, where it is uneven
    suspects: list[Suspect] = []
    links: list[LinkRow] = []
    missing: list[int] = []  # ranks of the job that are not here, at most 16 of them
    missing_count: int = 0
    timed: int = 0  # ranks of which only the steps were timed: others were traced in their place
