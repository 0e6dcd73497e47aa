"""What several ranks tell together: who arrives late at the collectives, and how fast the link is.

Collectives are matched across ranks in the order they were issued. A collective lasts shortest on the
rank that joined last; what it lasts longer elsewhere is waiting. Clocks of different machines are never
compared, only durations; processes that one recorder has timed share a clock, which tells who came when.
"""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from findwall.causes.budget import split_off
from findwall.facts.facts import Facts, RankFindings
from findwall.model.causes import cause_index
from findwall.model.events import NSYS, Kind
from findwall.model.intervals import I64
from findwall.replay.step_reading import Scenario, StepReading
from findwall.step.call_names import collective_name
from findwall.step.comms import HOST_COLLECTIVE
from findwall.step.step_facts import StepFacts, rows_matching
from findwall.units import NS_PER_S, ms
from findwall.work.op_families.movement import message_bytes
from findwall.work.work_facts import DeviceAtoms, WorkFacts

# Chosen by hand, not calibrated.
LARGE_MESSAGE_BYTES = 4 << 20  # from here on a transfer's rate is the link's, not its latency's
SLOW_LINK_SHARE = 0.5  # of the link's measured rate: a transfer below it is slow
FURTHEST_SHIFT_COLLECTIVES = 64  # by which two ranks' windows may be cut differently


def compare_ranks(ranks: list[Facts]) -> RankFindings | None:
    """Match the ranks' collectives; None where there are not two ranks with the same sequence of them."""
    if len(ranks) < 2:
        return None
    by_host = all(len(_host_collectives(facts)) for facts in ranks)
    found = [_host_collectives(facts) if by_host else _collectives(facts) for facts in ranks]
    rows = _match(found, ranks)
    if rows is None:
        return None
    duration = np.stack(
        [facts.timeline.events.duration[rows[:, at]] for at, facts in enumerate(ranks)], axis=1
    )
    numbers = tuple(facts.rank.number for facts in ranks)
    waited = _waited(ranks, rows, duration)
    later = _later(ranks, rows) if waited is None else None
    longer = duration - duration.min(axis=1, keepdims=True)
    waits = waited if waited is not None else longer if later is None else np.minimum(longer, later)
    last = duration.argmin(axis=1) if waited is None else waited.argmin(axis=1)
    wait = waits.sum(axis=0)
    late = int(np.argmin(wait))
    steps = max(len(ranks[0].steps.host) - 1, 1)
    order = np.argsort(-wait, kind="stable").tolist()
    return RankFindings(
        ranks=numbers,
        rows=rows,
        duration=duration,
        late=numbers[late],
        late_count=int((last == late).sum()),
        by_wait=tuple((numbers[at], ms(float(wait[at])) / steps) for at in order),
        bus_rate=None if by_host else _bus_rate(ranks[0], rows[:, 0], duration.min(axis=1)),
        by_host=by_host,
        waited=waited,
        later=later,
    )


def _waited(ranks: list[Facts], rows: I64, duration: I64) -> I64 | None:
    """From each rank's start of a collective to the last one's, where one recorder timed all of them."""
    if len({facts.timeline.path for facts in ranks}) > 1 or ranks[0].timeline.header.recorder != NSYS:
        return None
    starts = [
        facts.timeline.events.start[rows[:, at]] + facts.timeline.header.base_time_ns
        for at, facts in enumerate(ranks)
    ]
    start = np.stack(starts, axis=1)
    found: I64 = np.minimum(start.max(axis=1, keepdims=True) - start, duration)
    return found


def _later(ranks: list[Facts], rows: I64) -> I64:
    """How much later than each rank the last one can have come: all leave a collective together, so that the
    last to come to the next is the one that was longest on its way. Nothing bounds the first."""
    events = [facts.timeline.events for facts in ranks]
    start = np.stack([one.start[rows[:, at]] for at, one in enumerate(events)], axis=1)
    end = np.stack([one.end[rows[:, at]] for at, one in enumerate(events)], axis=1)
    way = np.maximum(start[1:] - end[:-1], 0)
    bound = way.max(axis=1, keepdims=True) - way
    return np.concatenate([np.full_like(start[:1], np.iinfo(np.int64).max), bound])


def _collectives(facts: WorkFacts) -> I64:
    """Communication kernels of the rank's device, in the order they were issued."""
    kernels, events = facts.kernels, facts.timeline.events
    mine = kernels.communication & (events.kind[kernels.row] == Kind.KERNEL)
    rows = kernels.row[mine & (events.device[kernels.row] == facts.steps.device)]
    launch = facts.links.launch[rows]
    issued = np.where(launch >= 0, events.start[np.maximum(launch, 0)], events.start[rows])
    ordered: I64 = rows[np.lexsort((events.start[rows], issued))]
    return ordered


def _host_collectives(facts: StepFacts) -> I64:
    """Collectives that the host does itself (gloo), in the order they began."""
    rows = np.flatnonzero(facts.timeline.events.is_kind(Kind.ANNOTATION, Kind.OP))
    rows = rows_matching(facts.timeline, rows, HOST_COLLECTIVE)
    return rows[np.argsort(facts.timeline.events.start[rows], kind="stable")]


def _match(found: list[I64], ranks: list[Facts]) -> I64 | None:
    """Rows of the same collective side by side: equal sequences, or equal after a shift of the windows."""
    labels = [[_label(facts, row) for row in rows.tolist()] for facts, rows in zip(ranks, found, strict=True)]
    shift = [_shift(labels[0], other) for other in labels]
    if any(one is None for one in shift):
        return None
    shifts = [one or 0 for one in shift]
    first = max(0, *(-one for one in shifts))
    past = min(len(other) - one for other, one in zip(labels, shifts, strict=True))
    if past - first < 1:
        return None
    return np.stack([rows[first + one : past + one] for rows, one in zip(found, shifts, strict=True)], axis=1)


def _shift(one: list[str], other: list[str]) -> int | None:
    """By how many collectives `other` runs ahead of `one`; the smallest shift at which all overlap agrees."""
    if not one or not other:
        return None
    least = min(len(one), len(other)) // 2
    for distance in range(FURTHEST_SHIFT_COLLECTIVES):
        for shift in {distance, -distance}:
            left, right = one[max(-shift, 0) :], other[max(shift, 0) :]
            overlap = min(len(left), len(right))
            if overlap > least and left[:overlap] == right[:overlap]:
                return shift
    return None


def _label(facts: StepFacts, row: int) -> str:
    """What tells a collective from the next one of its rank."""
    extra = facts.timeline.extra_of(row)
    group = extra.group_name if extra is not None else None
    return f"{collective_name(facts.timeline, facts.links, row)} {group or ''}"


def _bus_rate(facts: StepFacts, rows: I64, transfer: I64) -> float | None:
    """Median bytes/s on the wire of large messages, without waiting; None where sizes are unknown."""
    sizes = message_bytes(facts.timeline, facts.links, rows)
    large = (sizes >= LARGE_MESSAGE_BYTES) & (transfer > 0)
    if not large.any():
        return None
    factor = np.array([_wire_factor(facts, row) for row in rows[large].tolist()])
    return float(np.median(factor * sizes[large] / (transfer[large] / NS_PER_S)))


def _wire_factor(facts: StepFacts, row: int) -> float:
    """Bytes on the wire for a byte of message: an all-reduce sends everything out and back."""
    extra = facts.timeline.extra_of(row)
    size = (extra.group_size if extra is not None else None) or facts.timeline.header.world_size or 2
    passes = (
        2.0 if "reduce" in _label(facts, row).lower() and "scatter" not in _label(facts, row).lower() else 1.0
    )
    return passes * (size - 1) / size


def with_ranks(facts: Facts, findings: RankFindings, at: int) -> Facts:
    """The facts of the `at`-th rank compared, with its collectives' time split into waiting and transfer."""
    if not findings.has_late_rank:
        return replace(facts, ranks=findings)
    if findings.by_host:
        return replace(facts, reading=_split_idle(facts.reading, findings, at), ranks=findings)
    atoms = _split(facts, facts.atoms, findings, at)
    link = facts.ceilings.link_bandwidth
    if findings.bus_rate is not None and link is not None and findings.bus_rate < SLOW_LINK_SHARE * link:
        exposed = atoms.cause == cause_index("exposed-collective")
        matched = np.isin(facts.kernels.row[atoms.index], findings.rows[:, at])
        cause = atoms.cause.copy()
        cause[exposed & matched] = cause_index("slow-link")
        floor = np.where(exposed & matched, atoms.own * findings.bus_rate / link, atoms.floor)
        atoms = DeviceAtoms(atoms.index, atoms.own, cause, floor)
    return replace(facts, atoms=atoms, ranks=findings)


def _split(facts: WorkFacts, atoms: DeviceAtoms, findings: RankFindings, at: int) -> DeviceAtoms:
    share_of = dict(zip(findings.rows[:, at].tolist(), findings.waiting[:, at].tolist(), strict=True))
    talk = facts.kernels.communication[atoms.index]
    share = np.zeros(len(atoms.index))
    for position in np.flatnonzero(talk).tolist():
        share[position] = share_of.get(int(facts.kernels.row[atoms.index[position]]), 0.0)
    return split_off(atoms, share, "straggler")


def _split_idle(reading: StepReading, findings: RankFindings, at: int) -> StepReading:
    """Of the idle time in collectives, the part that is waiting for the late rank."""
    duration = findings.duration[:, at]
    share = float((findings.waiting[:, at] * duration).sum() / max(float(duration.sum()), 1.0))

    def split(scenario: Scenario) -> Scenario:
        idle = scenario.idle.copy()
        moved = share * idle["exposed-collective"]
        idle["exposed-collective"] -= moved
        idle["straggler"] += moved
        return replace(scenario, idle=idle)

    return replace(
        reading, short=split(reading.short), likely=split(reading.likely), long=split(reading.long)
    )
