"""Ranks wait in collectives for one that arrives late.

What it finds:
The part of the collectives' time by which they last longer here than on the rank where they last shortest:
that is waiting, not transfer. It needs the traces of several ranks.

Why it costs:
A collective ends for all when the last rank has joined. Every rank is as slow as the slowest.

How it is told apart:
Collectives are matched across ranks in order. The late rank is the one that waits least. What even the
last to arrive spends is the transfer: exposed-collective or slow-link. One rank's trace cannot
tell.

What helps:
balance-ranks: the same work for every rank (batch by tokens instead of samples, shard tables by their
cost), the late rank's own wall (read its trace alone), gc and logging at the same step everywhere.
"""

from __future__ import annotations

from findwall.attribute.carriers import kernel_evidence
from findwall.attribute.conditions import held_down
from findwall.attribute.facts import Facts
from findwall.attribute.figures import opening, told
from findwall.model.diagnosis import EVIDENCE_ROWS, Evidence
from findwall.model.run import HostLine, Rank
from findwall.units import format_ms, format_share

CAUSE = "straggler"
RANKS_LISTED = 8  # in one line, those that wait longest. Chosen by hand, not calibrated.


def evidence(facts: Facts) -> list[Evidence]:
    ranks = facts.ranks
    if ranks is None:
        return kernel_evidence(facts, CAUSE)
    waits = ", ".join(f"rank {rank}: {format_ms(wait)}" for rank, wait in ranks.by_wait[:RANKS_LISTED])
    found = [Evidence(f"each rank waits for the others per step: {waits}")]
    late = _late(facts)
    held = held_down(late)
    if held is not None:
        found.append(Evidence(held))
    line = _line_of(late)
    if line is not None:
        share = format_share(line.share)
        text = f"rank {ranks.late} was at {line.place} ({line.function}) in {share} of the samples"
        found.append(Evidence(text, line=line.place))
    return [*found, *kernel_evidence(facts, CAUSE)][:EVIDENCE_ROWS]


def sentence(facts: Facts) -> str:
    ranks = facts.ranks
    if ranks is None:
        return (
            "It is unknown whether a rank is late: that takes the traces of several ranks, of the same steps."
        )
    late = _late(facts)
    line, held = _line_of(late), held_down(late)
    where = f" (most often at {line.place})" if line is not None else ""
    advice = "give that rank less work, or look at its own trace"
    if held is not None:
        advice = f"cool it or check its power ({held})"
    fact = (
        f"For {opening(facts, CAUSE)} this rank waits in collectives because rank {ranks.late}{where} "
        "arrives "
        f"last in {ranks.late_count} of {ranks.matched} of them"
    )
    return told(facts, CAUSE, fact, advice)


def _late(facts: Facts) -> Rank:
    """The rank that arrives last; one of which nothing is known where its measurement is not at hand."""
    number = facts.ranks.late if facts.ranks is not None else None
    return next((rank for rank in facts.run.ranks if rank.number == number), Rank())


def _line_of(rank: Rank) -> HostLine | None:
    """Where a rank's own code stood most, if it was sampled."""
    return next(iter(rank.host_lines), None)
