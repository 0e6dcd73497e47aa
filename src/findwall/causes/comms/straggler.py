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

from findwall.causes import Cause, Claim, Evidence, Facts, Told, lines
from findwall.model.measured_run import HostLine, Rank
from findwall.step.timed_steps import holding_down

RANKS_LISTED = 8  # in one line, those that wait longest. Chosen by hand, not calibrated.


def shows(facts: Facts) -> list[Evidence]:
    ranks = facts.ranks
    if ranks is None:
        return []
    waits = [Claim("rank-waits", {"rank": rank, "ms": wait}) for rank, wait in ranks.by_wait[:RANKS_LISTED]]
    found = [Evidence(claim=Claim("evidence/ranks-wait", parts=waits))]
    late = _late(facts)
    held = holding_down(late)
    if held is not None:
        found.append(Evidence(claim=held))
    line = _line_of(late)
    if line is not None:
        late_at = {"rank": ranks.late, "seen_share": line.share}
        seen = Claim("evidence/rank-at", late_at, {"function": line.function}, [line.place])
        found.append(Evidence(line=line.place, claim=seen))
    return found


def says(facts: Facts) -> Told | Claim:
    ranks = facts.ranks
    if ranks is None:
        return Claim("straggler/unknown")
    late = _late(facts)
    line, held = _line_of(late), holding_down(late)
    figures = {"late": ranks.late, "late_count": ranks.late_count, "matched": ranks.matched}
    fact = Claim("straggler/arrives-last", figures, places=lines(line.place if line is not None else None))
    action = Claim("advise/balance-ranks") if held is None else Claim("clocks/cool", parts=[held])
    return Told(fact, action)


def _late(facts: Facts) -> Rank:
    """The rank that arrives last; one of which nothing is known where its measurement is not at hand."""
    number = facts.ranks.late if facts.ranks is not None else None
    return next((rank for rank in facts.run.ranks if rank.number == number), Rank())


def _line_of(rank: Rank) -> HostLine | None:
    """Where a rank's own code stood most, if it was sampled."""
    return next(iter(rank.host_lines), None)


CAUSE = Cause("straggler", says, shows)
