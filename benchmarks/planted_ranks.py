"""Jobs of many ranks made of one real step, with a fault planted: what is late, why and its worth are known.

A small machine plays the ranks: each has a host that launches, a stream of kernels and streams of
communication. A collective begins when its last member comes and ends for all. The same job is played once
more without its fault, with the same noise: the difference is what the fault costs. Nothing here knows how
findwall tells ranks apart.
"""

from __future__ import annotations

import random
from collections.abc import Generator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from findwall.model.events import (
    COLUMN_TYPES,
    DEVICE_KINDS,
    Details,
    DeviceProperties,
    Events,
    Header,
    Kind,
    ReadQuality,
    Timeline,
)
from findwall.readers.torch_trace import read_trace
from findwall.step.links import link
from findwall.step.step_bounds import find_steps

FIXTURES = Path(__file__).resolve().parents[1] / "tests" / "fixtures"
BASES = {
    "device-bound": FIXTURES / "jobs/plain_adamw.json.gz",
    "host-bound": FIXTURES / "eager_training.json.gz",
}
FAULTS = (
    "slow-gpu",
    "host-sleep",
    "starved-loader",
    "bad-node",
    "slow-link",
    "uneven-batches",
    "long-stage",
    "random-gc",
    "nothing",
)
NODE, STAGES, MICRO_BATCHES, BUCKETS, STEPS = 8, 4, 8, 4, 8
LAUNCH_NS, CALL_NS, NOISE = 8_000, 4_000, 0.01
BUCKET_BYTES, SHARD_BYTES, MESSAGE_BYTES = 25 << 20, 8 << 20, 4 << 20
EPOCH_NS = 1_700_000_000 * 10**9


@dataclass(frozen=True)
class Kernel:
    name: str
    op: str
    length: float
    gap: float  # of the host, from the launch before


def kernels_of(path: Path, count: int) -> list[Kernel]:
    """A real step, its neighbours joined until there are `count` kernels."""
    timeline = read_trace(path)
    links = link(timeline)
    events, steps = timeline.events, find_steps(timeline, links)
    rows = timeline.rows(*DEVICE_KINDS)
    rows = rows[(steps.of_row[rows] == steps.of_row[rows].max() - 1) & (links.launch[rows] >= 0)]
    rows = rows[np.argsort(events.start[links.launch[rows]], kind="stable")]
    gaps = np.diff(events.start[links.launch[rows]], prepend=events.start[links.launch[rows[0]]])
    gaps = np.minimum(gaps, 10 * np.median(gaps))  # longer ones are waits
    found = []
    for part in np.array_split(np.arange(len(rows)), min(count, len(rows))):
        first = int(rows[part[0]])
        op = int(links.op[first])
        name = timeline.name_of(op) if op >= 0 else "aten::mul"
        length = float(events.duration[rows[part]].sum())
        found.append(Kernel(timeline.name_of(first), name, length, float(gaps[part].sum())))
    return found


@dataclass
class Meeting:
    """A communication: all its members come, then it transfers."""

    group: str
    kind: str
    nbytes: int
    size: int
    transfer: float
    begins: list[float] = field(default_factory=list)

    @property
    def end(self) -> float | None:
        return max(self.begins) + self.transfer if len(self.begins) == self.size else None


@dataclass(frozen=True)
class Fault:
    """What is planted, and where. `who` is None where nobody is late more often than others."""

    name: str
    who: tuple[str, int | str] | None
    why: str


@dataclass(eq=False)
class Job:
    """A job to be played: what its ranks do, slowed or not."""

    ranks: int
    kernels: list[Kernel]
    seed: int
    fault: Fault
    is_planted: bool = True
    meetings: dict[tuple[Any, ...], Meeting] = field(default_factory=dict)

    @property
    def step_ns(self) -> float:
        return max(sum(one.length for one in self.kernels), sum(one.gap for one in self.kernels))

    @property
    def is_pipeline(self) -> bool:
        return self.fault.name == "long-stage"

    def batch(self, step: int, rank: int) -> float:
        """By what share this rank's batch is larger than it should be."""
        return random.Random(f"{self.seed} batch {step} {rank}").uniform(-0.2, 0.2)

    @cache  # noqa: B019 - a job lives as long as its benchmark
    def mean_batch(self, step: int) -> float:
        return float(np.mean([self.batch(step, rank) for rank in range(self.ranks)]))

    def meeting(self, key: tuple[Any, ...], group: str, kind: str, nbytes: int, size: int) -> Meeting:
        if key not in self.meetings:
            noise = random.Random(f"{self.seed} {key}").gauss(1.0, NOISE)
            rate = 100.0 if kind in ("send", "recv") else 60.0  # bytes a ns
            slow = 8.0 if self.is_planted and self.fault.who == ("link", group) else 1.0
            transfer = max(noise, 0.5) * (20_000 + nbytes / rate) * slow
            self.meetings[key] = Meeting(group, kind, nbytes, size, transfer)
        return self.meetings[key]


@dataclass
class RankPlayer:
    """One rank: what its host and device have done so far, and the rows a profiler would write of it."""

    job: Job
    number: int
    host: float = 0.0
    device: float = 0.0
    comms: dict[str, Meeting] = field(default_factory=dict)
    rows: list[tuple[Kind, str, float, Any, int, int, str]] = field(default_factory=list)
    launched: int = 0

    def __post_init__(self) -> None:
        self.noise = random.Random(f"{self.job.seed} {self.number}")
        self.ill = random.Random(
            f"{self.job.seed} {self.number} fault"
        )  # else the noise would change with it
        self.host = self.device = self.noise.uniform(0, 5e6)  # profilers start staggered

    def about(self, length: float) -> float:
        return length * max(self.noise.gauss(1.0, NOISE), 0.5)

    def busy(self, kind: Kind, name: str, length: float) -> None:
        """The host does something of that name."""
        self.rows.append((kind, name, self.host, self.host + length, -1, -1, ""))
        self.host += length

    def launch(self, call: str, op: str, op_kind: Kind) -> int:
        self.launched += 1
        self.rows.append((op_kind, op, self.host, self.host + 2 * CALL_NS, -1, -1, ""))
        self.rows.append((Kind.RUNTIME, call, self.host + 500, self.host + CALL_NS, self.launched, -1, ""))
        return self.launched

    def kernel(self, one: Kernel, slow: float) -> None:
        self.host += self.about(one.gap)
        correlation = self.launch("cudaLaunchKernel", one.op, Kind.OP)
        start = max(self.host + LAUNCH_NS, self.device + 1_000)
        self.device = start + self.about(one.length) * slow
        self.rows.append((Kind.KERNEL, one.name, start, self.device, correlation, 7, ""))

    def talk(self, stream: str, meeting: Meeting) -> Generator[Meeting, None, None]:
        before = self.comms.get(stream)
        if before is not None:
            yield before
        self.host += 2 * CALL_NS
        correlation = self.launch("cudaLaunchKernelExC", f"nccl:{meeting.kind}", Kind.ANNOTATION)
        start = max(self.host + LAUNCH_NS, self.device, (before.end or 0.0) if before else 0.0)
        meeting.begins.append(start)
        self.comms[stream] = meeting
        extra = {
            "collective": meeting.kind,
            "in_elements": meeting.nbytes // 4,
            "dtype": "Float",
            "group_size": meeting.size,
            "group_name": meeting.group,
        }
        name = (
            "ncclDevKernel_SendRecv"
            if meeting.kind in ("send", "recv")
            else "ncclDevKernel_AllReduce_Sum_f32"
        )
        column = 20 + sorted(("shard", "world", "send", "recv")).index(stream)
        encoded = msgspec.json.encode(extra).decode()
        self.rows.append((Kind.KERNEL, f"{name}_RING_LL", start, meeting, correlation, column, encoded))

    def join(self, stream: str) -> Generator[Meeting, None, None]:
        """What is launched from here on waits for that stream."""
        meeting = self.comms.get(stream)
        if meeting is not None:
            yield meeting
            self.busy(Kind.RUNTIME, "cudaStreamWaitEvent", 1_000)
            self.device = max(self.device, meeting.end or 0.0)

    def finish(self) -> None:
        """loss.item(): the host waits for the device."""
        end = max(self.device, self.host) + CALL_NS
        self.rows.append((Kind.OP, "aten::item", self.host, end + 1_000, -1, -1, ""))
        self.busy(Kind.RUNTIME, "cudaStreamSynchronize", end - self.host)
        self.host += 2_000

    # -- what it is slowed by ------------------------------------------------------------------

    def slowness(self, step: int) -> float:
        job, fault = self.job, self.job.fault
        if fault.name == "uneven-batches":  # shared out evenly it is as much work as before
            return 1.0 + (job.batch(step, self.number) if job.is_planted else job.mean_batch(step))
        if fault.name == "long-stage":  # what is too long here would be shared out among all
            mine = fault.who == ("stage", self.number % STAGES)
            return 1.0 + (0.3 * mine if job.is_planted else 0.3 / STAGES)
        if not job.is_planted:
            return 1.0
        hit = {"slow-gpu": ("rank", self.number), "bad-node": ("node", self.number // NODE)}
        return 1.25 if hit.get(fault.name) == fault.who and fault.who is not None else 1.0

    def lost(self, step: int) -> None:
        """What the host loses in this step."""
        job, fault = self.job, self.job.fault
        if not job.is_planted:
            return
        length = self.ill.gauss(0.25, NOISE / 4) * job.step_ns
        if fault.name == "host-sleep" and fault.who == ("rank", self.number):
            self.host += length
        unlucky = random.Random(f"{job.seed} gc {step}").randrange(job.ranks)
        if fault.name == "random-gc" and unlucky == self.number:
            self.busy(Kind.ANNOTATION, "findwall.gc", length)

    def load(self) -> None:
        length = self.about(0.01 * self.job.step_ns)
        hit = self.job.fault.name == "starved-loader" and self.job.fault.who == ("rank", self.number)
        if hit and self.job.is_planted:
            length += self.ill.gauss(0.25, NOISE / 4) * self.job.step_ns
        self.busy(Kind.ANNOTATION, "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", length)

    # -- its step ------------------------------------------------------------------------------

    def program(self) -> Generator[Meeting, None, None]:
        for step in range(STEPS):
            begun = self.host
            self.load()
            yield from self.pipeline_step(step) if self.job.is_pipeline else self.data_step(step)
            self.finish()
            self.rows.append((Kind.ANNOTATION, f"ProfilerStep#{step}", begun, self.host, -1, -1, ""))

    def data_step(self, step: int) -> Generator[Meeting, None, None]:
        """Sharded within a node, reduced over all: gathers before the work, buckets beside it."""
        job, kernels, slow = self.job, self.job.kernels, self.slowness(step)
        forward, updates = len(kernels) // 3, len(kernels) - max(len(kernels) // 12, 1)
        buckets = set(np.linspace(forward + 1, updates - 1, BUCKETS).astype(int).tolist())
        node = self.number // NODE
        size = min(NODE, job.ranks - node * NODE)
        for at, one in enumerate(kernels):
            if at in (0, forward // 2):
                key = ("shard", node, step, at)
                shard = job.meeting(key, f"shard{node}", "all_gather", SHARD_BYTES, size)
                yield from self.talk("shard", shard)
                yield from self.join("shard")
            if at == forward // 3:
                self.lost(step)
            if at == updates:
                yield from self.join("world")
            self.kernel(one, slow)
            if at in buckets:
                bucket = job.meeting(("world", step, at), "world", "all_reduce", BUCKET_BYTES, job.ranks)
                yield from self.talk("world", bucket)

    def pipeline_step(self, step: int) -> Generator[Meeting, None, None]:
        """One forward, one backward in turn; stages are neighbours in rank, and reduce with their like."""
        job, kernels, slow = self.job, self.job.kernels, self.slowness(step)
        stage, forward = self.number % STAGES, len(kernels) // 3
        warm = min(STAGES - stage - 1, MICRO_BATCHES)
        order = [(False, at) for at in range(warm)]
        for at in range(MICRO_BATCHES - warm):
            order += [(False, at + warm), (True, at)]
        order += [(True, at) for at in range(MICRO_BATCHES - warm, MICRO_BATCHES)]
        for is_back, batch in order:
            source, target = (stage + 1, stage - 1) if is_back else (stage - 1, stage + 1)
            if 0 <= source < STAGES:
                yield from self.pass_on("recv", step, batch, is_back, self.number - stage + source)
                yield from self.join("recv")
            for one in kernels[forward:] if is_back else kernels[:forward]:
                self.kernel(one, slow)
            if 0 <= target < STAGES:
                yield from self.pass_on("send", step, batch, is_back, self.number - stage + target)
        size = job.ranks // STAGES
        reduced = job.meeting(("stage", stage, step), f"stage{stage}", "all_reduce", BUCKET_BYTES, size)
        yield from self.talk("world", reduced)
        norm = job.meeting(("norm", step), "world", "all_reduce", 4, job.ranks)
        yield from self.talk("world", norm)
        yield from self.join("world")
        self.kernel(kernels[-1], slow)

    def pass_on(
        self, way: str, step: int, batch: int, is_back: bool, peer: int
    ) -> Generator[Meeting, None, None]:
        pair = tuple(sorted((self.number, peer)))
        message = self.job.meeting(
            ("pass", *pair, step, batch, is_back), f"pair{pair}", way, MESSAGE_BYTES, 2
        )
        both = Meeting(message.group, way, message.nbytes, 2, message.transfer, message.begins)
        yield from self.talk(way, both)


def play(job: Job) -> list[RankPlayer]:
    """All ranks, each until it needs a communication whose members are not all there."""
    players = [RankPlayer(job, number) for number in range(job.ranks)]
    running = {player.number: (player.program(), None) for player in players}
    waits: dict[int, tuple[Generator[Meeting, None, None], Meeting | None]] = dict(running)
    while waits:
        for number, (program, needed) in list(waits.items()):
            try:
                while needed is None or needed.end is not None:
                    needed = next(program)
                waits[number] = (program, needed)
            except StopIteration:
                del waits[number]
    return players


def length_of(players: list[RankPlayer]) -> float:
    """Of a mean step: from where the first step of all has ended, as they do not begin together."""
    ends = [[row[3] for row in player.rows if row[1].startswith("ProfilerStep#")] for player in players]
    last, first = max(one[-1] for one in ends), max(one[0] for one in ends)
    return float(last - first) / (STEPS - 1)


def timeline_of(player: RankPlayer, clock: float) -> Timeline:
    """The rows as a trace has them, on the clock of its node."""
    origin = min(row[2] for row in player.rows)
    names: dict[str, int] = {}
    extras: dict[str, int] = {}
    columns: dict[str, list[int]] = {name: [] for name in COLUMN_TYPES}
    for kind, name, start, end, correlation, stream, extra in sorted(player.rows, key=lambda row: row[2]):
        done = end.end if isinstance(end, Meeting) else end
        assert done is not None
        on_device = kind == Kind.KERNEL
        row = dict.fromkeys(COLUMN_TYPES, -1) | {
            "start": round(start - origin),
            "end": round(done - origin),
            "kind": int(kind),
            "name": names.setdefault(name, len(names)),
            "process": 0,
            "thread": max(stream, 0),
            "device": 0 if on_device else -1,
            "stream": stream,
            "correlation": correlation,
            "extra": extras.setdefault(extra, len(extras)) if extra else -1,
        }
        for column, value in row.items():
            columns[column].append(value)
    events = Events(**{name: np.array(values, COLUMN_TYPES[name]) for name, values in columns.items()})
    header = Header(
        devices=(DeviceProperties(0, "NVIDIA H200"),),
        rank=player.number,
        world_size=player.job.ranks,
        base_time_ns=EPOCH_NS + round(origin + clock),
    )
    threads = [(0, str(number)) for number in range(32)]
    details = Details(extra=[one.encode() for one in extras])
    path = f"rank{player.number}"
    return Timeline(path, events, list(names), ["python"], threads, details, header, ReadQuality())


@dataclass(frozen=True)
class Planted:
    """A job as its ranks' profilers saw it, and the truth of it. Times are ms a step."""

    fault: Fault
    timelines: list[Timeline]
    step_ms: float
    gain_ms: float


def fault_of(name: str, ranks: int, seed: int) -> Fault:
    chosen = random.Random(f"{seed} {name} {ranks}")
    rank = ("rank", chosen.randrange(ranks))
    node = chosen.randrange(max(ranks // NODE, 1))
    every: dict[str, tuple[tuple[str, int | str] | None, str]] = {
        "slow-gpu": (rank, "device"),
        "host-sleep": (rank, "host"),
        "starved-loader": (rank, "loader"),
        "bad-node": (("node", node), "device"),
        "slow-link": (("link", f"shard{node}"), "link"),
        "uneven-batches": (None, "device"),
        "long-stage": (("stage", chosen.randrange(STAGES)), "device"),
        "random-gc": (None, "gc"),
        "nothing": (None, ""),
    }
    return Fault(name, *every[name])


def plant(name: str, ranks: int, seed: int, base: str = "device-bound", kernels: int = 48) -> Planted:
    """One job with its fault."""
    fault = fault_of(name, ranks, seed)
    step = kernels_of(BASES[base], kernels // 2 if name == "long-stage" else kernels)
    with_fault = play(Job(ranks, step, seed, fault))
    without = play(Job(ranks, step, seed, fault, is_planted=False))
    now, then = length_of(with_fault), length_of(without)
    clocks = random.Random(f"{seed} clocks")
    offsets = [clocks.uniform(-20e6, 20e6) for _ in range(ranks // NODE + 1)]
    timelines = [timeline_of(player, offsets[player.number // NODE]) for player in with_fault]
    return Planted(fault, timelines, now / 1e6, (now - then) / 1e6)


def damaged(timelines: list[Timeline], seed: int) -> list[Timeline]:
    """With 1 % of all rows lost, three ranks cut off and one file broken."""
    chance = np.random.default_rng(seed)
    odd = chance.permutation(len(timelines))[:4].tolist()
    found = []
    for number, timeline in enumerate(timelines):
        if number == odd[0]:
            continue
        kept = chance.random(len(timeline.events)) >= 0.01
        if number in odd[1:]:
            kept &= timeline.events.end < chance.uniform(0.5, 0.9) * timeline.events.end.max()
        found.append(msgspec.structs.replace(timeline, events=timeline.events.take(kept)))
    return found
