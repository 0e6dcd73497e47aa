"""The document of ranks of whom only summaries are here: what they say together, and no budget of any."""

from __future__ import annotations

from msgspec.structs import replace

from findwall.examine.document_rows import without_step
from findwall.model.answers.ranks_answer import RanksTogether, Suspect
from findwall.model.claims import Claim, Figure, known
from findwall.model.diagnosis import Diagnosis, Step, Wall
from findwall.model.machine import Ceilings
from findwall.model.measured_run import Run
from findwall.model.summaries.rank_summary import RankSummary
from findwall.ranks.compared_ranks import compare
from findwall.ranks.link_rates import held_against


def diagnose_summaries(run: Run, summaries: list[RankSummary], ceilings: Ceilings) -> Diagnosis:
    """Who the ranks wait for, and no wall: what else the step waits for nobody can tell from summaries."""
    answer = compare(summaries).answer
    held_against(answer, ceilings.link_bandwidth, ceilings.device)
    steps = max((one.steps for one in summaries), default=0)
    events = sum(one.events for one in summaries)
    found = without_step(run, ceilings, "summaries of ranks hold no work")
    return replace(
        found,
        step=Step(answer.step_ms, None, None, "trace", None, None, None, answer.step_ms, steps, 0, None),
        wall=_wall(answer),
        quality=replace(found.quality, events=events),
        ranks=answer,
    )


def _wall(answer: RanksTogether) -> Wall:
    named = next((one for one in answer.suspects if one.named), None)
    if named is None:
        claim = Claim("ranks/nobody-named", {"pattern": answer.pattern, "why": answer.why_not})
        return Wall(None, None, between=[], claim=claim, why_not="ranks")
    names = known(group=named.name if named.what == "link" else None)
    claim = Claim("ranks/waits-for", _figures(named, answer), names)
    return Wall(None, None, between=[], claim=claim, why_not="ranks")


def _figures(named: Suspect, answer: RanksTogether) -> dict[str, Figure]:
    return {
        "what": named.what,
        "late": None if named.what == "link" else int(named.name),
        "why": named.why,
        "excess_ms": named.excess_ms,
        "saves_ms": named.saves_ms,
        "step_ms": answer.step_ms,
    }
