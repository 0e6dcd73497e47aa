"""Ranks wait in collectives for one that arrives late, or for another one each step.

What it finds:
The part of the collectives' time by which they last longer here than their transfer alone: that is waiting.
It needs the traces of several ranks. What comes back is told by playing all ranks again with the late one
as its peers are.

Why it costs:
A collective ends for all when the last rank has joined. Every rank is as slow as the slowest.

How it is told apart:
The collectives of all ranks are matched, and what each rank does between them is compared with its peers. A
rank or a node is named where it is behind in most steps, more surely than chance would have it, and where
the replay without that is shorter by more than it varies. Where it is another one each step, nobody is
named. How the ranks' profilers were started is no waiting. One rank's trace cannot tell.

What helps:
balance-ranks: the same work for every rank (batch by tokens instead of samples, shard tables by their
cost), the late rank's own wall (its host, its loader, its device), gc and logging at the same step
everywhere.
"""

from __future__ import annotations

from findwall.causes import Cause, Claim, Evidence, Facts, Told, lines
from findwall.model.answers.ranks_answer import RanksTogether, Suspect
from findwall.model.claims import Figure
from findwall.model.measured_run import HostLine, Rank
from findwall.step.timed_steps import holding_down


def shows(facts: Facts) -> list[Evidence]:
    found = facts.ranks
    if found is None or found.answer.waits is None:
        return []
    rows = [Evidence(claim=_spread(found.answer))]
    late = _late(facts)
    held = holding_down(late)
    if held is not None:
        rows.append(Evidence(claim=held))
    line = _line_of(late)
    if line is not None:
        late_at: dict[str, Figure] = {"rank": late.number, "seen_share": line.share}
        seen = Claim("evidence/rank-at", late_at, {"function": line.function}, [line.place])
        rows.append(Evidence(line=line.place, claim=seen))
    return rows


def says(facts: Facts) -> Told | Claim:
    found = facts.ranks
    if found is None or not found.is_waited_for:
        return Claim("straggler/unknown")
    one = found.named
    if one is None:
        why = found.answer.uneven_why
        figures: dict[str, Figure] = {"why": why, "ranks": found.answer.compared}
        fact = Claim("straggler/uneven", {**figures, "one_step": found.answer.pattern == "unknown"})
        return Told(fact, Claim("advise/balance-ranks/uneven", {"why": why}))
    late = _late(facts)
    line, held = _line_of(late), holding_down(late)
    place = line.place if line is not None else one.line
    fact = Claim("straggler/is-late", _figures(one), places=lines(place))
    action = Claim("advise/balance-ranks", {"what": one.what, "why": one.why})
    return Told(fact, action if held is None else Claim("clocks/cool", parts=[held]))


def _figures(one: Suspect) -> dict[str, Figure]:
    return {"what": one.what, "late": int(one.name), "excess_ms": one.excess_ms, "why": one.why}


def _spread(answer: RanksTogether) -> Claim:
    waits = answer.waits
    assert waits is not None
    figures = {"least_ms": waits.min, "median_ms": waits.median, "most_ms": waits.max}
    return Claim("evidence/ranks-wait", {**figures, "ranks": answer.compared})


def _late(facts: Facts) -> Rank:
    """The rank that is late, if it is one; one of which nothing is known where nothing of it is at hand."""
    one = facts.ranks.named if facts.ranks is not None else None
    number = one.ranks[0] if one is not None and one.what == "rank" and one.ranks else None
    return next((rank for rank in facts.run.ranks if rank.number == number), Rank())


def _line_of(rank: Rank) -> HostLine | None:
    """Where a rank's own code stood most, if it was sampled."""
    return next(iter(rank.host_lines), None)


CAUSE = Cause("straggler", says, shows)
