"""What the document adds to how ranks compare: what sharding would send, NCCL's transports, the scaling
against a run of fewer ranks."""

from __future__ import annotations

import numpy as np

from findwall.facts.facts import Facts
from findwall.facts.message_traffic import buckets, sent_by_stage
from findwall.machine.link_table import link_of
from findwall.model.answers.ranks_answer import RanksTogether, Scaling, ShardingRow, Transport
from findwall.model.claims import Claim, Figures
from findwall.model.diagnosis import Diagnosis, Throughput
from findwall.model.measured_run import NcclLog, Run
from findwall.ranks.link_rates import LARGE_MESSAGE_BYTES
from findwall.report.words import spoken
from findwall.units import GIGA, MS_PER_S, NS_PER_S


def told_of_ranks(facts: Facts) -> RanksTogether | None:
    """None of one rank that sends nothing which could be told of."""
    answer = facts.ranks.answer if facts.ranks is not None else RanksTogether(1, 0, 0, "one")
    answer.sharding = _sharding(facts, answer)
    answer.transports = _transports(facts.run.nccl)
    if facts.ranks is not None and facts.run.samples_per_step is not None and facts.step > 0:
        answer.throughput = facts.run.samples_per_step / (facts.step / NS_PER_S)
    return answer if facts.ranks is not None or answer.sharding or answer.transports else None


def _sharding(facts: Facts, answer: RanksTogether) -> list[ShardingRow]:
    found = buckets(facts)
    told = sent_by_stage(found) if found is not None else {}
    rates = [
        row.busbw_gbps
        for row in answer.links
        if row.kind == "all_reduce" and row.bytes >= LARGE_MESSAGE_BYTES and row.busbw_gbps is not None
    ]
    rate = float(np.median(rates)) * GIGA if rates else None
    link = _link(facts, answer)
    return [ShardingRow(stage, sent, _ms(sent, rate), _ms(sent, link)) for stage, sent in told.items()]


def _ms(sent: float, rate: float | None) -> float | None:
    return sent / rate * MS_PER_S if rate else None


def _link(facts: Facts, answer: RanksTogether) -> float | None:
    """Bytes/s, where the whole job is in one machine."""
    header = facts.whole.timeline.header
    fits = header.world_size is not None and header.world_size <= len(header.devices)
    if answer.nodes != 1 and not fits:
        return None
    spec = link_of(facts.ceilings.device)
    return facts.ceilings.link_bandwidth or (spec.rate if spec is not None else None)


def _transports(log: NcclLog | None) -> list[Transport]:
    found = log.connections if log is not None else ()
    return [Transport(one.via, one.count, one.across_nodes, one.gpu_direct) for one in found]


def scaled(found: Diagnosis, run: Run, baseline: Diagnosis, before: Run) -> None:
    """Put beside a run what its ranks do each second, against a run of fewer."""
    ranks, fewer = _ranks_of(run), _ranks_of(before)
    reason = ""
    if found.step.ms is None or baseline.step.ms is None:
        reason = "no-step"
    elif ranks <= fewer:
        reason = "no-fewer"
    elif found.machine.device != baseline.machine.device:
        reason = "other-device"
    if reason:
        figures: Figures = {"why": reason, "ranks": ranks, "baseline_ranks": fewer}
        found.remarks.append(Claim("scaling/none", figures))
        found.notes.append(spoken(found.remarks[-1]))
        return
    if found.ranks is None:
        found.ranks = RanksTogether(1, 0, 0, "one")
    found.ranks.scaling = _scaling(found, ranks, baseline, fewer)


def _scaling(found: Diagnosis, ranks: int, baseline: Diagnosis, fewer: int) -> Scaling:
    """A rank's samples each second against the baseline's; its steps, where samples were not counted."""
    here, there = found.throughput, baseline.throughput
    work = 1.0  # of a rank and step, against the baseline's
    counted = here is not None and there is not None and here.unit == there.unit
    if here is not None and there is not None and counted:
        work = _a_step(found, here) / _a_step(baseline, there)
    now, then = found.step, baseline.step
    assert now.ms is not None and then.ms is not None
    return Scaling(
        baseline_ranks=fewer,
        ranks=ranks,
        baseline_step_ms=then.ms,
        step_ms=now.ms,
        efficiency=work * then.ms / now.ms,
        low=work * then.low_ms / now.high_ms if then.low_ms and now.high_ms else None,
        high=work * then.high_ms / now.low_ms if then.high_ms and now.low_ms else None,
        basis="throughput" if counted else "step",
    )


def _a_step(one: Diagnosis, speed: Throughput) -> float:
    """What a rank does in a step."""
    assert one.step.ms is not None
    return speed.value * one.step.ms / max(one.source.ranks, 1)


def _ranks_of(run: Run) -> int:
    """Of the job, not only those that are here."""
    said = [timeline.header.world_size for timeline in run.timelines]
    said += [rank.summary.world_size for rank in run.ranks if rank.summary is not None]
    return max([len(run.ranks), *(size for size in said if size is not None)])
