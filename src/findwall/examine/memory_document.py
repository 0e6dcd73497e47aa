"""What peaks, what it consists of, and what would make it less: of a snapshot the whole document, of a trace
a part of it.

A snapshot has no step time, so there is no wall, no budget and no prescription: the answer is `memory`.
"""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from findwall.examine.document_rows import curve, device_total, totals, without_step
from findwall.examine.memory_rows import fits, line_rows, of_snapshot, place, rung_row
from findwall.fixes import memory_edits
from findwall.memory.batch_growth import largest_batch, with_batch
from findwall.memory.device_memory import DeviceMemoryFacts, device_memory
from findwall.memory.fragments import driver_calls, fragments, largest_request, needless_calls, private_free
from findwall.memory.memory_growth import growth
from findwall.memory.memory_kinds import PARAMETERS, TEMPORARIES
from findwall.memory.memory_ladder import Rung, ladder, rung
from findwall.memory.memory_phases import PHASES
from findwall.memory.traced_history import traced_history
from findwall.model.answers.memory_answer import (
    DeviceMemory,
    DriverCalls,
    FailureCause,
    Fragmentation,
    Memory,
    MemoryBatch,
    MemoryCurve,
    MemoryGrowth,
    MemoryKindRow,
    NotPredicted,
    OutOfMemory,
)
from findwall.model.catalogue import NEARLY_ALL, WORTH_IT
from findwall.model.claims import Claim, Figure, Range, known, lines
from findwall.model.diagnosis import Diagnosis, Quality, Question, Source, Step, Wall
from findwall.model.machine import Ceilings
from findwall.model.measured_run import Rank, Run
from findwall.model.memory_history import ACTIONS, HOST, KINDS, MOST_BYTES, OOM, MemoryHistory, RecordedRank
from findwall.units import GIB

NOT_PREDICTED = ("torch-compile",)
LARGER = (2, 4)  # times the batch


def diagnose_memory(run: Run, history: MemoryHistory, ceilings: Ceilings) -> Diagnosis:
    devices = device_memory(history)
    memory, remarks = _found(history, devices, run.first.total_memory if run.ranks else None)
    events = sum(len(one.history.events) for one in devices)
    claim = _said(memory)
    return replace(
        without_step(run, ceilings, "a memory snapshot has no times"),
        source=Source(run.kind, list(run.paths), 0),
        step=Step(None, None, None, "trace", None, None, None, None, 0, 0, None),
        questions=[
            Question(asked, "unknown", None, claim=Claim("memory/no-times"))
            for asked in ("stable", "busy", "matmul", "peak")
        ],
        wall=Wall(None, None, between=[], claim=claim, why_not="memory"),
        quality=Quality(events, 0, 0, 0, False, None, damaged=sum(one.walk.unpaired for one in devices)),
        memory=memory,
        remarks=remarks,
    )


def run_memory(run: Run, rank: Rank) -> tuple[Memory, list[Claim]]:
    """Of a run: what its snapshot tells, which says more than a trace; else what its trace tells, else the
    totals that the job itself asked for. `rank`: the one whose trace counts."""
    traced = of_trace(rank)
    snapshot = next((one for one in map(of_snapshot, run.ranks) if one is not None), None)
    for recorded, beside in ((snapshot, traced), (traced, None)):
        devices = [] if recorded is None else device_memory(recorded)
        if recorded is not None and devices:
            memory, remarks = _found(recorded, devices, device_total(run), beside)
            return memory, [*remarks, *_peaked_elsewhere(memory, run.peak_memory)]
    return totals(run), []


def of_trace(rank: Rank) -> MemoryHistory | None:
    known = rank.known_at_trace if isinstance(rank, RecordedRank) else None
    return None if rank.timeline is None else traced_history(rank.timeline, known)


def _peaked_elsewhere(memory: Memory, highest: int | None) -> list[Claim]:
    """Recorded steps say what a peak is made of; the `highest` of the run, in bytes, may lie elsewhere."""
    held = memory.allocated_gib if memory.of == "requested" else memory.peak_gib
    if not highest or highest / GIB * NEARLY_ALL <= (held or 0.0):
        return []
    return [Claim("memory/peaked-elsewhere", {"peak_gib": highest / GIB})]


def _found(
    history: MemoryHistory,
    devices: list[DeviceMemoryFacts],
    total: int | None,
    traced: MemoryHistory | None = None,
) -> tuple[Memory, list[Claim]]:
    """`total`: bytes of the device, if known; `traced`: what a trace tells of the same steps."""
    if not devices:
        return Memory(None, None), []
    facts = devices[0]
    also = [] if traced is None else device_memory(traced)
    beside = next((one for one in also if one.history.device == facts.history.device), None)
    memory = _memory(facts, devices, total, beside)
    memory.of = history.of
    if facts.history.device == HOST:
        memory.reserved_gib = None
    return memory, _remarks(facts, memory)


def _memory(
    facts: DeviceMemoryFacts,
    devices: list[DeviceMemoryFacts],
    total: int | None,
    beside: DeviceMemoryFacts | None,
) -> Memory:
    walk, at = facts.walk, facts.peak
    held = int(walk.lives.held[facts.at_peak].sum())
    return Memory(
        peak_gib=facts.peak_bytes / GIB,
        total_gib=total / GIB if total else None,
        phase=facts.phases.of(at),  # type: ignore[arg-type]
        allocated_gib=held / GIB,
        reserved_gib=facts.most_reserved / GIB,
        steps=len(facts.backward_starts),
        kinds=_kinds(facts),
        lines=line_rows(facts),
        fragmentation=_fragmentation(facts) if facts.history.segments.address.any() else None,
        driver_calls=DriverCalls(*driver_calls(facts.history)) if len(facts.history.events) else None,
        growth=[
            MemoryGrowth(place(facts, one.line), one.bytes_per_step / GIB, one.steps, KINDS[one.kind])
            for one in growth(facts)
        ],
        oom=_oom(facts),
        ladder=[rung_row(facts, one, total) for one in _worth_it_first(facts, beside)],
        not_predicted=[NotPredicted(fix, claim=Claim(f"memory-no-rung/{fix}")) for fix in NOT_PREDICTED],
        batches=_batches(facts, total),
        largest_batch=_largest(facts, total),
        curve=_curve(facts),
        devices=[
            DeviceMemory(one.history.device, one.peak_bytes / GIB, one.most_reserved / GIB)
            for one in devices
            if len(devices) > 1
        ],
    )


def _worth_it_first(facts: DeviceMemoryFacts, beside: DeviceMemoryFacts | None) -> list[Rung]:
    """What costs nothing comes first where it changes what a person can do, and last where it does not."""
    little = (1.0 - WORTH_IT) * facts.peak_bytes
    return sorted(ladder(facts, memory_edits(), beside), key=lambda one: one.mid > little)


def _kinds(facts: DeviceMemoryFacts) -> list[MemoryKindRow]:
    """What the peak consists of, the most first; temporaries by the phase they are of."""
    alive = np.flatnonzero(facts.at_peak)
    kind = facts.kinds[alive].astype(np.int64)
    code = kind * len(PHASES) + np.where(kind == TEMPORARIES, facts.born_in[alive], 0)
    rows = []
    for one in np.unique(code).tolist():
        mine = alive[code == one]
        named, phase = KINDS[one // len(PHASES)], PHASES[one % len(PHASES)]
        size = int(facts.walk.lives.asked[mine].sum())
        rows.append(MemoryKindRow(named, size / GIB, len(mine), phase))  # type: ignore[arg-type]
    return sorted(rows, key=lambda row: -row.gib)


def _fragmentation(facts: DeviceMemoryFacts) -> Fragmentation:
    found = fragments(facts.history, facts.walk, facts.peak)
    return Fragmentation(
        found.free / GIB,
        found.largest_free / GIB,
        largest_request(facts.history) / GIB,
        found.rounding / GIB,
        private_free(facts.history) / GIB,
        needless_calls(facts.history, facts.walk),
    )


def _oom(facts: DeviceMemoryFacts) -> OutOfMemory | None:
    """The last request that failed."""
    events = facts.history.events
    failed = np.flatnonzero(events.action == OOM)
    if len(failed) == 0:
        return None
    at = int(failed[-1])
    asked, left = int(events.size[at]), _left(int(events.address[at]))
    found = fragments(facts.history, facts.walk, at)
    line = int(facts.stacks.lines[0][events.stack[at]])
    return OutOfMemory(
        asked / GIB,
        None if left is None else left / GIB,
        found.free / GIB,
        found.largest_free / GIB,
        _cause(asked, found.free, left),
        facts.phases.of(at),  # type: ignore[arg-type]
        place(facts, line),
    )


def _left(said: int) -> int | None:
    """No device has more."""
    return said if said <= MOST_BYTES else None


def _cause(asked: int, cached: int, left: int | None) -> FailureCause:
    """Pieces of the cache serve no request together with what is free elsewhere."""
    if asked <= cached:
        return "fragmentation"
    return "size" if left is not None and asked > left else "unknown"


def _curve(facts: DeviceMemoryFacts) -> MemoryCurve | None:
    time = facts.history.events.time
    is_timed = len(time) > 0 and time[0] >= 0 and bool((time[1:] >= time[:-1]).all())
    return curve((time - time[0]) / 1000 if is_timed else None, facts.walk.asked, facts.walk.reserved)


# -- what is said ------------------------------------------------------------------------------------------


def _batches(facts: DeviceMemoryFacts, total: int | None) -> list[MemoryBatch]:
    """Twice and four times the batch, of a job that trains."""
    if not facts.trains:
        return []
    found = [(factor, rung("", *(one.peak for one in with_batch(facts, factor)))) for factor in LARGER]
    return [
        MemoryBatch(factor, Range(one.low / GIB, one.mid / GIB, one.high / GIB), fits(facts, one, total))
        for factor, one in found
    ]


def _largest(facts: DeviceMemoryFacts, total: int | None) -> float | None:
    if not total or not facts.trains:
        return None
    return largest_batch(facts, round(total / facts.reserved_times))


def _said(memory: Memory) -> Claim:
    """The peak, what it mostly consists of, the line that holds most, and the first thing to do."""
    if not memory.peak_gib:
        return Claim("memory/empty")
    first = memory.kinds[0]
    placed = next((row for row in memory.lines if row.line is not None), None)
    figures: dict[str, Figure] = {
        "peak_gib": memory.peak_gib,
        "of": memory.of,
        "phase": memory.phase if memory.phase != "unknown" else None,
        "kind": first.kind,
        "kind_gib": first.gib,
        "kind_share": first.gib / memory.peak_gib if memory.peak_gib else 0.0,
        "line_gib": placed.gib if placed is not None else None,
        "line_kind": placed.kind if placed is not None else None,
        "asked_gib": memory.oom.asked_gib if memory.oom is not None else None,
        "cause": memory.oom.cause if memory.oom is not None else None,
    }
    advice = [rung.claim for rung in memory.ladder[:1] if rung.claim is not None]
    return Claim("memory/peak", figures, places=lines(placed.line if placed else None), parts=advice)


def _remarks(facts: DeviceMemoryFacts, memory: Memory) -> list[Claim]:
    walk, found = facts.walk, []
    if len(facts.history.events) == 0:
        found.append(Claim("memory/no-recording"))
    elif not facts.phases.is_known:
        found.append(Claim("memory/no-stacks"))
    elif not len(facts.phases.whole_backwards) and facts.history.passes is None:
        found.append(Claim("memory/no-backward"))
    if memory.phase == "optimizer":
        found.append(Claim("memory/optimizer-peaks"))
    if walk.off_by:
        found.append(Claim("memory/ends-elsewhere", {"off_gib": abs(walk.off_by) / GIB}))
    if walk.unpaired:
        found.append(Claim("memory/unpaired", {"count": walk.unpaired, "events": len(facts.history.events)}))
    if (unknown := int((facts.history.events.action == ACTIONS.index("unknown")).sum())) > 0:
        found.append(Claim("memory/unknown-events", {"count": unknown}))
    if facts.history.device == HOST and not (facts.kinds == PARAMETERS).any():
        found.append(Claim("memory/host-since-recording"))
    for one in memory.growth[:1]:
        figures: dict[str, Figure] = {"grown_gib": one.gib_per_step, "steps": one.steps}
        found.append(Claim("memory/grows", figures, known(), lines(one.line)))
    return found
