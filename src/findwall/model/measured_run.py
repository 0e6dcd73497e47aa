"""A run: what was measured of one job, on one or more ranks, whoever measured it."""

from __future__ import annotations

from typing import Any

import msgspec

from findwall.model.answers.memory_answer import CaughtFailures, FailedModel, OutOfMemory
from findwall.model.answers.sweep_answer import Sweep
from findwall.model.applied import Trial
from findwall.model.dataflow import Observed
from findwall.model.events import Timeline
from findwall.model.kinds import MUCH_FASTER, USUAL, StepKind, even_distance
from findwall.model.machine import (
    NO_TELEMETRY,
    UNKNOWN_CEILINGS,
    UNKNOWN_ENVIRONMENT,
    Ceilings,
    Environment,
    MemoryTotals,
    Telemetry,
)
from findwall.model.ncu_kernel import NcuReport
from findwall.model.probes import Probes
from findwall.model.summaries.rank_summary import RankSummary
from findwall.model.watched import WatchedJob, WatchedRank


class StepTimes(msgspec.Struct, frozen=True):
    """Steps timed without the profiler, in seconds each."""

    seconds: tuple[float, ...]
    source: str  # "measured" by findwall, or "given" by a person
    discarded: int = 0  # warm-up steps thrown away
    loader_s: float | None = None  # mean wait in the data loader, a step
    gc_s: float | None = None
    saving_s: float | None = None  # mean time in which a checkpoint was written, a step
    kind: tuple[str, ...] = ()  # of each step; empty: all are usual
    doing: tuple[tuple[str, str], ...] = ()  # a kind and what its steps do, where a hook saw it
    seldom: StepKind | None = None  # steps that came after all was timed, and too seldom to be among these
    later_s: float | None = None  # mean of all that came after these

    @property
    def mean(self) -> float:
        """Over steps of all kinds: rare work counts."""
        timed = sum(self.seconds) / len(self.seconds)
        return timed if self.seldom is None else timed + self.seldom.share * (self.seldom.mean - timed)

    @property
    def were_start_up(self) -> bool:
        """The steps that came later are so much shorter that these say little about them."""
        return self.later_s is not None and self.later_s < MUCH_FASTER * self.mean

    def kinds(self) -> tuple[StepKind, ...]:
        """The kinds of steps there are, the most frequent first."""
        rows: dict[str, list[int]] = {}
        timed = 1.0 - (self.seldom.share if self.seldom is not None else 0.0)
        for row, name in enumerate(self.kind or (USUAL,) * len(self.seconds)):
            rows.setdefault(name, []).append(row)
        found = [
            StepKind(
                name,
                timed * len(own) / len(self.seconds),
                sum(self.seconds[row] for row in own) / len(own),
                even_distance(own) if name != USUAL else None,
                dict(self.doing).get(name, ""),
            )
            for name, own in rows.items()
        ]
        found += [self.seldom] if self.seldom is not None else []
        return tuple(sorted(found, key=lambda one: -one.share))


class HostLine(msgspec.Struct, frozen=True):
    """A line of Python that a sampler saw the launching thread stand on."""

    place: str  # "train.py:88"
    function: str
    share: float  # of the samples
    inside: str = ""  # "linear.py:forward": what of a library it stood in, if anything
    routine: str = ""  # "numpy.random.choice": what of a library its source calls on arrays, or to draw
    looped: bool | None = None  # whether a loop within the step holds it; None: its source is unknown
    once: bool | None = None  # whether a step comes to it once; None: its source does not tell


class Elapsed(msgspec.Struct, frozen=True):
    """What the job's time went to, from its start until it ended or was last looked at, in seconds."""

    total: float
    start_up: float  # until the end of its first step
    evaluation: float
    saving: float
    loader_start: float
    other: float  # after its last step; and what findwall held it up

    @property
    def steps(self) -> float:
        beside = self.start_up + self.evaluation + self.saving + self.loader_start + self.other
        return max(self.total - beside, 0.0)


class Rank(msgspec.Struct, frozen=True):
    """One process of a run, and all that was measured of it alone."""

    number: int = 0  # in the job; where traces do not say it, their place among the traces
    timeline: Timeline | None = None  # None where no trace could be made or read
    captures: tuple[Timeline, ...] = ()  # what was launched when graphs were captured that the trace replays
    replays: tuple[int, ...] = ()  # of each graph launch in the trace: which capture; empty: nobody noted it
    observed: Observed | None = None  # iterations whose ops were seen with all their tensors
    traced_kinds: tuple[str, ...] = ()  # of each traced step; empty: all are usual
    first_traced: int = 0  # the number that the first of them bears in the trace
    evaluated: frozenset[int] = frozenset()  # steps by number with an evaluation, which no timed step has
    evaluates: bool = False  # most timed steps have one: it is part of the step
    step_times: StepTimes | None = None
    telemetry: Telemetry = NO_TELEMETRY
    host_lines: tuple[HostLine, ...] = ()
    collected_at: str = ""  # the job's line that calls gc.collect(), where that is what collects
    why_no_trace: str = ""  # no trace was made, for this reason
    device_kind: str = "gpu"  # "gpu" or "cpu": which side the budget is of
    device_name: str | None = None
    peak_memory: int | None = None  # bytes, from the allocator
    total_memory: int | None = None  # bytes, of the device
    totals: MemoryTotals | None = None  # of its memory at ends of steps
    oom: OutOfMemory | None = None  # that the job ended with
    failed_model: FailedModel | None = None  # what it trained then
    caught: CaughtFailures | None = None
    first_timed: int = 0  # the number of the first step that was timed, as totals count them
    loader_workers: int | None = None
    compiles: int = 0  # graphs compiled while steps were timed
    elapsed: Elapsed | None = None
    notes: tuple[str, ...] = ()
    watched: WatchedRank | None = None  # where nobody measured it from inside
    summary: RankSummary | None = None  # in place of a timeline, where that was reduced where it lies
    node: str = ""  # its machine's name, where that is known
    in_line_ns: float | None = None  # a traced step: its host could have run and had no core


class Connection(msgspec.Struct, frozen=True):
    """Two ranks of a communicator, as it numbers them."""

    via: str  # "P2P/CUMEM", "SHM", "NET/IB", "NET/Socket"
    across_nodes: bool | None  # null: the log does not say where both run
    gpu_direct: bool | None  # of a network; null: of none
    count: int = 1  # such pairs


class NcclLog(msgspec.Struct, frozen=True):
    """What a log of NCCL_DEBUG=INFO says."""

    path: str
    version: str = ""
    connections: tuple[Connection, ...] = ()  # the most frequent first
    switched_off: tuple[str, ...] = ()  # NCCL_..._DISABLE that the environment sets
    is_cut: bool = False  # only its beginning was read


class Run(msgspec.Struct, frozen=True):
    """Everything the analysis may look at: the job as a whole, and its ranks in order."""

    kind: str  # "torch-trace", "nsys", "run-folder", "ncu", "memory-snapshot" or "watch"
    paths: tuple[str, ...]
    ranks: tuple[Rank, ...]
    ceilings: Ceilings = UNKNOWN_CEILINGS
    environment: Environment = UNKNOWN_ENVIRONMENT
    cost: dict[str, Any] = msgspec.field(default_factory=dict)  # what findwall itself cost
    samples_per_step: float | None = None  # of one rank
    sample_unit: str | None = None
    notes: tuple[str, ...] = ()
    crash: str = ""  # how the job ended, where it did not end well
    probes: Probes | None = None  # ops of its step that were run as fixes would run them
    trials: tuple[Trial, ...] = ()  # fixes that were really made in it
    sweep: Sweep | None = None  # batches of other sizes that were tried with it
    ncu: NcuReport | None = None  # kernels that Nsight Compute counted, of this job or alone
    watched: WatchedJob | None = None  # where the job ran already
    nccl: NcclLog | None = None  # how its ranks are connected, where a log says so

    @property
    def first(self) -> Rank:
        """The rank that speaks where nothing tells the ranks apart."""
        return self.ranks[0] if self.ranks else Rank()

    @property
    def traced(self) -> tuple[Rank, ...]:
        return tuple(rank for rank in self.ranks if rank.timeline is not None)

    @property
    def timelines(self) -> tuple[Timeline, ...]:
        return tuple(rank.timeline for rank in self.ranks if rank.timeline is not None)

    @property
    def seen(self) -> tuple[Rank, ...]:
        """Ranks of whom the trace is here, or what it was reduced to."""
        return tuple(rank for rank in self.ranks if rank.timeline is not None or rank.summary is not None)

    @property
    def device_name(self) -> str | None:
        """As the first trace that names its device does, else as the first rank was told."""
        traced = (timeline.header.devices[0].name for timeline in self.timelines if timeline.header.devices)
        return next(traced, self.first.device_name) or None

    @property
    def peak_memory(self) -> int | None:
        """Bytes, of the rank that needed most: it is the one that runs out first."""
        return max((rank.peak_memory for rank in self.ranks if rank.peak_memory is not None), default=None)
