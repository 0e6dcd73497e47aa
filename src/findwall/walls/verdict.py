"""The verdict: the cause with the most recoverable time, or none where the trace does not support one."""

from __future__ import annotations

from dataclasses import dataclass

from findwall.attribute.conditions import in_line_share, others_share
from findwall.attribute.facts import Facts
from findwall.attribute.reading import Scenario
from findwall.model.catalogue import QUESTION_OF, ROOFS, WALL_OF, WALLS, WORTH_IT
from findwall.model.causes import UNKNOWN, ByCause

# All of these are chosen by hand, not calibrated.
# Of the best cause's gain: a second one this close may win by the order of the questions.
NEAR_TIE_SHARE = 0.75
# Of the time without a core: from here on others may be what is slow; a job of one thread has less than the
# second, and loses nothing.
IN_LINE_SHARE = 0.25
NOTICED_IN_LINE_SHARE = 0.05
# Of the step: a wait this long stands all the same, because work suffers more than Python.
DOMINANT_SHARE = 0.6
# Of cores that are full, kept busy by others: threads of one op then wait for each other.
CROWDED_CORES_SHARE = 0.25
# Times the best cause's gain: more time of unknown floor than this may hide a better one.
MAY_HIDE_RATIO = 2.0
# Of the step unknown, with nothing known worth naming: no verdict.
NO_VERDICT_UNKNOWN_SHARE = 0.30
# Of every step recorded, start-up: the rest of such a step is warm-up too.
START_UP_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class Verdict:
    """`cause` None: it cannot be told; then `between` holds what it could be."""

    cause: str | None
    next: str | None = None
    between: tuple[str, ...] = ()
    why_not: str = ""  # "start-up", "dilation", "unexplained", "contended", "ceilings" or "unknown"
    seeming: str = ""  # what it looks like, if other processes are not the reason

    @property
    def wall(self) -> str | None:
        return WALL_OF[self.cause] if self.cause else None


def decide(facts: Facts) -> Verdict:
    """One verdict for all readings of the step, or none."""
    if facts.whole.start_up_share >= START_UP_SHARE:
        return Verdict(None, why_not="start-up")
    ranked = [_rank(facts, scenario) for scenario in facts.reading.scenarios]
    found = {ranking[0] for ranking in ranked}
    if len(found) > 1:
        likely = ranked[1][0]
        return Verdict(None, between=(likely, *sorted(found - {likely})), why_not="dilation")
    best = ranked[1][0]
    if _outweighed(facts, best):
        return Verdict(None, why_not="unexplained")
    if best == UNKNOWN:
        return Verdict(None, why_not="unknown")
    if _may_be_others(facts, best):
        return Verdict(None, why_not="contended", seeming=best)
    if best in ROOFS and not facts.ceilings.known:
        return Verdict(None, between=(best, "slow-kernels"), why_not="ceilings")
    return Verdict(best, ranked[1][1] if len(ranked[1]) > 1 else None)


def _outweighed(facts: Facts, best: str) -> bool:
    """Whether the step has more idle time that nothing traced explains than the best cause gives back."""
    unexplained = facts.reading.likely.idle[UNKNOWN]
    gain = facts.recoverable().of((best,))
    return unexplained > max(gain, WORTH_IT * facts.step)


def _may_be_others(facts: Facts, best: str) -> bool:
    """Whether what the best cause seems to give back may be time in which other processes had the cores."""
    share = in_line_share(facts.rank)
    rare = best == "unstable-steps"  # just what others cause, whatever the device
    if WALL_OF[best] in ("overhead", "data") and not rare:
        gain = facts.recoverable().of((best,))
        return share >= IN_LINE_SHARE and gain < DOMINANT_SHARE * facts.step
    reached = best == "at-the-roof" and facts.ceilings.known  # a rate that was reached was reached
    if reached or (facts.rank.device_kind != "cpu" and not rare):
        return False
    # Threads that share an op wait for the one that has no core: work takes many times as long, Python not.
    return share >= IN_LINE_SHARE or (
        share >= NOTICED_IN_LINE_SHARE and others_share(facts.rank) >= CROWDED_CORES_SHARE
    )


def _rank(facts: Facts, scenario: Scenario) -> list[str]:
    """Causes worth naming in one reading, the verdict first."""
    gain = facts.recoverable(scenario)
    # No roof is among them, nor the unknown: the one gives nothing back, of the other nobody knows.
    worth = [cause for cause in gain.ranked() if gain[cause] >= WORTH_IT * scenario.step]
    if not worth:
        return [_roof(facts, scenario)]
    if _hidden(facts, scenario, gain) > MAY_HIDE_RATIO * gain[worth[0]]:
        return [UNKNOWN]
    if len(worth) > 1 and gain[worth[1]] >= NEAR_TIE_SHARE * gain[worth[0]]:
        first, second = worth[0], worth[1]
        if QUESTION_OF[second] < QUESTION_OF[first]:
            worth[0], worth[1] = second, first
    return worth


def _hidden(facts: Facts, scenario: Scenario, gain: ByCause) -> float:
    """Time of which nobody knows what could come back because the device's ceilings are not known."""
    if facts.ceilings.known:
        return 0.0
    return facts.spent(scenario).of(gain.not_known()) - scenario.idle[UNKNOWN]


def _roof(facts: Facts, scenario: Scenario) -> str:
    """Nothing left to recover: which roof the step stands at, if the unknown part lets us say."""
    spent = facts.spent(scenario)
    known = facts.ceilings.known or facts.rank.device_kind == "cpu"  # cores are judged without, with care
    if spent[UNKNOWN] > NO_VERDICT_UNKNOWN_SHARE * scenario.step or not known:
        return UNKNOWN
    at_the_roof = spent.of(WALLS["compute"]) >= spent.of(WALLS["bandwidth"])
    return "at-the-roof" if at_the_roof else "memory-roof"
