"""What several ranks tell together, put into the facts of the one that speaks for all."""

from __future__ import annotations

import numpy as np
from msgspec.structs import astuple, replace

from findwall.causes.budget import split_off
from findwall.facts.facts import Facts, RankFindings
from findwall.model.answers.ranks_answer import RanksTogether, Spread
from findwall.model.catalogue import WORTH_IT
from findwall.model.causes import UNKNOWN, cause_index
from findwall.model.intervals import F64
from findwall.model.measured_run import Rank
from findwall.model.summaries.rank_summary import LineSeen, RankSummary
from findwall.ranks.compared_ranks import RanksCompared, compare
from findwall.ranks.link_rates import LARGE_MESSAGE_BYTES, held_against
from findwall.ranks.reduced.summarising import summarise_rows
from findwall.ranks.timed_ranks import TimedRank, with_timed
from findwall.ranks.waits_seen import entry_wait, waits_in
from findwall.replay.step_reading import Scenario, StepReading
from findwall.units import GIGA, NS_PER_MS, ms
from findwall.work.work_facts import DeviceAtoms

# Chosen by hand, not calibrated.
SLOW_LINK_SHARE = 0.5  # of the link's rate: a transfer below it is slow
# From here on NCCL's rings are full: on NVLink it reaches two thirds of what the table says.
FILLS_LINK_BYTES = 64 << 20


def compare_ranks(
    ranks: list[Facts], others: list[RankSummary] | None = None, timed: list[TimedRank] | None = None
) -> RankFindings | None:
    """What the ranks say together: those whose facts are here, `others` of whom there are summaries, and
    `timed`, all of whom the steps are known. None where there are not two ranks."""
    only_timed = timed is not None and any(not one.is_traced for one in timed)
    if len(ranks) + len(others or []) < 2 and not only_timed:
        return None
    made = [summarise_rows(facts.whole.timeline, facts.rank.number, _lines(facts)) for facts in ranks]
    here = zip((one[0] for one in made), ranks, strict=True)
    summaries = [_where_it_ran(one, facts.rank) for one, facts in here] + (others or [])
    compared = compare(summaries)
    by_host = all(one.by_host for one in summaries)
    ceilings = ranks[0].ceilings
    measured = ceilings.link_bandwidth
    held_against(compared.answer, measured, ceilings.device)
    bus_rate, link_rate = (None, None) if by_host else _rates(compared.answer, measured)
    return RankFindings(
        answer=with_timed(_within_step(compared.answer, max(facts.step for facts in ranks)), timed or []),
        waits=tuple(waits_in(compared, at) for at in range(len(ranks))),
        entries=tuple(entry_wait(compared, at) for at in range(len(ranks))),
        rows=tuple(rows for _, rows in made),
        saves=_saves(compared),
        bus_rate=bus_rate,
        link_rate=link_rate,
        by_host=by_host,
    )


def _within_step(answer: RanksTogether, step: float) -> RanksTogether:
    """Nobody waits for longer than a step takes, which is less without the profiler that saw them."""
    if answer.waits is None or answer.waits.max <= ms(step):
        return answer
    low, middle, high = (min(wait, ms(step)) for wait in astuple(answer.waits))
    return replace(answer, waits=Spread(low, middle, high))


def _where_it_ran(summary: RankSummary, rank: Rank) -> RankSummary:
    return replace(summary, node=rank.node or summary.node, in_line_ns=rank.in_line_ns)


def _lines(facts: Facts) -> tuple[LineSeen, ...]:
    return tuple(LineSeen(one.place, one.function, one.share) for one in facts.rank.host_lines)


def _saves(compared: RanksCompared) -> dict[str, float]:
    """What comes back of each cause that is of several ranks, ns a step, as all of them are replayed."""
    answer, found = compared.answer, {"straggler": 0.0}
    named = answer.suspects[0] if answer.suspects and answer.suspects[0].named else None
    if named is not None:
        cause = {"link": "slow-link", "stage": "pipeline-bubble"}.get(named.what, "straggler")
        found[cause] = named.saves_ms * NS_PER_MS
    elif answer.pattern in ("uneven", "unknown") and not answer.why_not:
        level, step = answer.all_level_ms or 0.0, answer.step_ms or 0.0
        found["straggler"] = level * NS_PER_MS if level >= WORTH_IT * step else 0.0
    return found


def _rates(answer: RanksTogether, measured: float | None) -> tuple[float | None, float | None]:
    """Median bytes/s on the wire of large messages, without waiting, and what the link carries; None where
    that is unknown. The table's link is reached by larger messages only."""
    for least, link in ((LARGE_MESSAGE_BYTES, measured), (FILLS_LINK_BYTES, _by_table(answer))):
        known = [row.busbw_gbps for row in answer.links if row.bytes >= least and row.busbw_gbps is not None]
        if known and link is not None:
            return float(np.median(known)) * GIGA, link
    return None, None


def _by_table(answer: RanksTogether) -> float | None:
    return next(
        (row.link_gbps * GIGA for row in answer.links if row.link_gbps and row.link_source == "table"), None
    )


def speaker_of(ranks: list[Facts], findings: RankFindings) -> int:
    """Which of these ranks speaks for all: the one that waits most, and not for others' recordings to
    begin."""
    every = zip(findings.waits, findings.entries, strict=True)
    waited = [float(wait.sum() - entry.sum()) for (wait, _), entry in every]
    return int(np.argmax(waited)) if waited else 0


def with_ranks(facts: Facts, findings: RankFindings, at: int) -> Facts:
    """The facts of the `at`-th rank compared, with its collectives' time split into waiting and transfer."""
    if findings.answer.why_not == "one":  # there is nobody to have waited for
        return replace(facts, ranks=findings)
    if findings.by_host:
        reading = facts.reading
        if findings.is_waited_for:
            reading = _split_idle(reading, findings, at)
        return replace(facts, reading=reading, ranks=findings)
    share = _shares(facts, findings, at, findings.entries[at])
    atoms = split_off(facts.atoms, share[facts.atoms.index], UNKNOWN)
    if findings.is_waited_for:
        share = _shares(facts, findings, at, findings.waits[at][0])
        atoms = split_off(atoms, share[atoms.index], "straggler")
    return replace(facts, atoms=_slow_links(facts, atoms, findings, at), ranks=findings)


def _shares(facts: Facts, findings: RankFindings, at: int, wait: F64) -> F64:
    """Of each kernel what share is such a wait. The window's rows are those of the whole trace, cut and
    moved: the call that launched one tells it again."""
    duration = findings.waits[at][1]
    rows, whole, events = findings.rows[at], facts.whole.timeline.events, facts.timeline.events
    share = wait / np.maximum(duration, 1.0)
    told = {
        (int(whole.correlation[row]), int(whole.stream[row])): float(part)
        for row, part in zip(rows.tolist(), share.tolist(), strict=True)
        if whole.correlation[row] > 0
    }
    found = np.zeros(len(events))
    for row in facts.kernels.row[facts.kernels.communication].tolist():
        found[row] = told.get((int(events.correlation[row]), int(events.stream[row])), 0.0)
    return found[facts.kernels.row]


def _slow_links(facts: Facts, atoms: DeviceAtoms, findings: RankFindings, at: int) -> DeviceAtoms:
    """Transfers over a link that is slower than it was measured to be, or than those of other groups."""
    rate, link = findings.bus_rate, findings.link_rate
    exposed = (atoms.cause == cause_index("exposed-collective")) & facts.kernels.communication[atoms.index]
    cause, floor = atoms.cause.copy(), atoms.floor
    if rate is not None and link is not None and rate < SLOW_LINK_SHARE * link:
        cause[exposed] = cause_index("slow-link")
        floor = np.where(exposed, atoms.own * rate / link, floor)
    elif findings.saves.get("slow-link", 0.0) > 0:
        spent = float(atoms.own[exposed].sum())
        left = max(1.0 - findings.saves["slow-link"] * max(facts.steps.count, 1) / max(spent, 1.0), 0.0)
        cause[exposed] = cause_index("slow-link")
        floor = np.where(exposed, atoms.own * left, floor)
    else:
        return atoms
    return DeviceAtoms(atoms.index, atoms.own, cause, floor)


def _split_idle(reading: StepReading, findings: RankFindings, at: int) -> StepReading:
    """Of the idle time in collectives, the part that is waiting for the late rank."""
    wait, duration = findings.waits[at]
    inside = findings.entries[at] <= 0  # what waits for a recording to begin tells nothing of the others
    share = float(wait[inside].sum() / max(float(duration[inside].sum()), 1.0))

    def split(scenario: Scenario) -> Scenario:
        idle = scenario.idle.copy()
        moved = share * idle["exposed-collective"]
        idle["exposed-collective"] -= moved
        idle["straggler"] += moved
        return replace(scenario, idle=idle)

    return replace(
        reading, short=split(reading.short), likely=split(reading.likely), long=split(reading.long)
    )
