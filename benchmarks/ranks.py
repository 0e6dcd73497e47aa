"""How well many ranks are told apart: planted faults, recorded jobs.

    python benchmarks/ranks.py planted --ranks 32 --seeds 1 2 3
    python benchmarks/ranks.py nothing --ranks 32 --count 20
    python benchmarks/ranks.py recorded

A planted fault counts where who and why are told, and the gain is within 10 % of what the same job took
without it. A fault that costs nothing (a slow GPU that waits for its host) is to be blamed on nobody.
"""

from __future__ import annotations

import argparse
import gzip
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from msgspec.structs import replace

from findwall.model.answers.ranks_answer import RanksTogether
from findwall.model.catalogue import WORTH_IT
from findwall.model.events import Kind, Timeline
from findwall.model.summaries.rank_summary import RankSummary
from findwall.ranks.compared_ranks import compare
from findwall.ranks.reduced.summarising import summarise
from findwall.readers.torch_trace import read_trace
from planted_ranks import BASES, FAULTS, Planted, damaged, plant
from recorded_ranks import summaries_of

SHARED = Path(__file__).resolve().parents[2] / "shared"
GAIN_WITHIN = 0.1


@dataclass(frozen=True)
class Score:
    """One planted job: the truth, and what was said."""

    name: str
    seed: int
    step_ms: float
    true_ms: float
    told_ms: float
    who: bool
    why: bool
    said: str

    @property
    def gain(self) -> bool:
        if self.true_ms < WORTH_IT * self.step_ms:  # nobody is to be named: there is nothing to be off by
            return True
        return abs(self.told_ms / self.true_ms - 1) <= GAIN_WITHIN

    def line(self) -> str:
        marks = " ".join(f"{word}{'+' if good else '-'}" for word, good in self.marks().items())
        return f"{self.name:<28}{self.seed:>5}{self.true_ms:>9.3f}{self.told_ms:>9.3f}  {marks}  {self.said}"

    def marks(self) -> dict[str, bool]:
        return {"who": self.who, "why": self.why, "gain": self.gain}


def scored(planted: Planted, timelines: list[Timeline], name: str, seed: int) -> Score:
    made = [one for one in map(summarise, timelines) if one is not None]
    answer = compare(made).answer
    named = next((one for one in answer.suspects if one.named), None)
    fault = planted.fault
    costs = planted.gain_ms >= WORTH_IT * planted.step_ms
    said = f"{answer.pattern} {named.what + ' ' + named.name if named else ''} {answer.why_not}".strip()
    if not costs:
        return Score(name, seed, planted.step_ms, planted.gain_ms, _told(answer), named is None, True, said)
    if fault.who is None:
        who, why = named is None and answer.pattern == "uneven", answer.uneven_why == fault.why
    else:
        who = named is not None and (named.what, named.name) == (fault.who[0], str(fault.who[1]))
        why = named is not None and named.why == fault.why
    said += f" {named.why if named else answer.uneven_why}"
    return Score(name, seed, planted.step_ms, planted.gain_ms, _told(answer), who, why, said)


def _told(answer: RanksTogether) -> float:
    named = next((one for one in answer.suspects if one.named), None)
    return named.saves_ms if named is not None else answer.all_level_ms or 0.0


def planted_faults(ranks: int, seeds: list[int], with_damage: bool) -> list[Score]:
    found = []
    for base in BASES:
        for fault in FAULTS:
            for seed in seeds:
                job = plant(fault, ranks, seed, base)
                timelines = damaged(job.timelines, seed) if with_damage else job.timelines
                found.append(scored(job, timelines, f"{base} {fault}", seed))
                print(found[-1].line(), flush=True)
    for base in BASES:
        mine = [one for one in found if one.name.startswith(base)]
        each = {word: sum(one.marks()[word] for one in mine) for word in ("who", "why", "gain")}
        print(f"{base}: {each} of {len(mine)}")
    return found


def nothing(ranks: int, count: int, first: int, with_damage: bool) -> int:
    """How often somebody is named where nobody is late."""
    named = 0
    for at in range(count):
        job = plant("nothing", ranks, first + at, list(BASES)[at % len(BASES)])
        timelines = damaged(job.timelines, first + at) if with_damage else job.timelines
        named += not scored(job, timelines, "nothing", first + at).who
    print(f"nothing: somebody was named in {named} of {count}")
    return named


def recorded() -> None:
    """Real jobs: the replay against the measured step, and what it costs that one is late."""
    for name in ("AR", "ST"):
        answer = compare(summaries_of(SHARED / "ranks_jobs" / f"{name}.npz")).answer
        assert answer.step_ms is not None
        named = next((one for one in answer.suspects if one.named), None)
        told = f"{named.what} {named.name}, {named.why}" if named else "nobody"
        saves = named.saves_ms if named else 0.0
        slowdown = answer.step_ms / (answer.step_ms - saves)
        print(f"{name}: {told}; slowdown {slowdown:.3f}; replay {100 * (answer.replay_error or 0):+.3f} %")
    paths = sorted((SHARED / "traces" / "v100_dlrm_8_ranks").glob("*"))
    ranks = [one for one in (summarise(read_trace(path)) for path in paths) if one is not None]
    for label, moved in (("as recorded", ranks), ("clocks off", [_clock_off(one) for one in ranks])):
        answer = compare(moved).answer
        first = next((one for one in answer.suspects if one.name == "7"), answer.suspects[0])
        entered = f"entry {answer.entry_skew_ms:.3f} ms, residual {answer.clock_residual_us:.2f} us"
        alone = f"{first.what} {first.name} alone {first.saves_ms:.3f} ms ({first.why})"
        print(f"DLRM {label}: {entered}, all level {answer.all_level_ms:.3f} ms, {alone}, {answer.pattern}")
    gaps = np.stack([one.messages.start[1:] - one.messages.end[:-1] for one in map(_by_start, ranks)]) / 1e6
    usual = np.median(gaps, axis=0)
    alone = gaps.max(axis=0) - np.maximum(np.delete(gaps, 7, axis=0).max(axis=0), usual)
    level = (gaps.max(axis=0) - usual).sum()
    print(f"DLRM, gaps from end to start alone: all level {level:.3f} ms, rank 7 {alone.sum():.3f} ms")
    print("  which takes for the ranks' own what a host that was not held by the first had done beside it:")
    hosts = [_from_first_to_second(one) for one in map(_by_start, ranks)]
    print(f"  its own time from launch to launch of the first two is {np.round(hosts, 2).tolist()} ms")


def _from_first_to_second(summary: RankSummary) -> float:
    """Host time, without what calls held it beyond its own way: ms."""
    one = summary.messages
    own = np.maximum(one.held[1], 0) + one.hosted[1] - one.hosted[0]
    return float(own - (one.since[0] if one.held[1] < 0 else 0)) / 1e6


def _by_start(summary: RankSummary) -> RankSummary:
    order = np.argsort(summary.messages.start, kind="stable")
    return replace(summary, messages=summary.messages.take(order))


def _clock_off(summary: RankSummary) -> RankSummary:
    """50 ms and 20 ppm at the most, another for each file."""
    chance = np.random.default_rng(summary.rank)
    drift, messages = 1 + chance.uniform(-20e-6, 20e-6), summary.messages
    moved = {
        name: np.round(getattr(messages, name) * drift).astype(np.int64)
        for name in ("launched", "start", "end")
    }
    offset = int(chance.uniform(-50e6, 50e6))
    base = summary.base_time_ns + offset
    return replace(summary, base_time_ns=base, messages=replace(messages, **moved))


# -- size --------------------------------------------------------------------------------------------------

_CATEGORY = {
    int(Kind.OP): "cpu_op",
    int(Kind.ANNOTATION): "user_annotation",
    int(Kind.RUNTIME): "cuda_runtime",
    int(Kind.KERNEL): "kernel",
}
_ARGUMENTS = {
    "collective": "Collective name",
    "in_elements": "In msg nelems",
    "dtype": "dtype",
    "group_size": "Group size",
    "group_name": "Process Group Name",
}


def write_trace(timeline: Timeline, path: Path) -> None:
    """As torch.profiler would have."""
    events, rows = timeline.events, []
    for row in range(len(events)):
        on_device = int(events.kind[row]) == int(Kind.KERNEL)
        arguments: dict[str, object] = {}
        if events.correlation[row] >= 0:
            arguments["correlation"] = int(events.correlation[row])
        if on_device:
            arguments |= {"device": 0, "stream": int(events.stream[row])}
        if events.extra[row] >= 0:
            told = json.loads(timeline.details.extra[int(events.extra[row])])
            arguments |= {_ARGUMENTS[key]: value for key, value in told.items()}
        rows.append(
            {
                "ph": "X",
                "cat": _CATEGORY[int(events.kind[row])],
                "name": timeline.names[int(events.name[row])],
                "pid": 0 if on_device else 100,
                "tid": int(events.stream[row]) if on_device else 100,
                "ts": int(events.start[row]) / 1000,
                "dur": int(events.end[row] - events.start[row]) / 1000,
                "args": arguments,
            }
        )
    header = timeline.header
    document = {
        "deviceProperties": [{"id": 0, "name": "NVIDIA H200"}],
        "distributedInfo": {"backend": "nccl", "rank": header.rank, "world_size": header.world_size},
        "baseTimeNanoseconds": header.base_time_ns,
        "traceEvents": rows,
    }
    path.write_bytes(gzip.compress(json.dumps(document).encode(), 1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=("planted", "nothing", "recorded"))
    parser.add_argument("--ranks", type=int, default=32)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--first", type=int, default=100, help="the first seed of nothing")
    parser.add_argument("--damaged", action="store_true", help="rows lost, ranks cut off, a file broken")
    asked = parser.parse_args()
    if asked.what == "planted":
        planted_faults(asked.ranks, asked.seeds, asked.damaged)
    elif asked.what == "nothing":
        nothing(asked.ranks, asked.count, asked.first, asked.damaged)
    else:
        recorded()


if __name__ == "__main__":
    main()
