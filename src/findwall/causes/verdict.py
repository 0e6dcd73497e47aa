"""The verdict: the cause with the most recoverable time, or none where the trace does not support one."""

from __future__ import annotations

from itertools import combinations

import msgspec

from findwall.facts.facts import Facts
from findwall.facts.host_cores import is_unseen
from findwall.facts.memory_copies import appended_ms
from findwall.facts.waits import RECOMPILATION, grows
from findwall.model.catalogue import (
    FAIR_PART,
    MAJORITY_SHARE,
    MENTION_SHARE,
    NEAR,
    NEARLY_ALL,
    QUESTION_OF,
    ROOFS,
    SMALL_PART,
    UNNEEDED,
    WALL_OF,
    WALLS,
    WORTH_IT,
)
from findwall.model.causes import UNKNOWN, ByCause
from findwall.replay.step_reading import Scenario
from findwall.step.timed_steps import in_line_share, others_share
from findwall.units import ms
from findwall.work.work_facts import WorkFacts

# Of the time without a core: a job of one thread has less, and loses nothing.
NOTICED_IN_LINE_SHARE = WORTH_IT
# Of device time of a known cause and unknown floor: what may come back of it at the most.
MAY_HIDE_SHARE = MAJORITY_SHARE

TOLD_BY_NAME = ("fast-path-off", "throttled")  # causes of device work that need no shapes
COPIES = "layout-copies"
NO_ROOF = "no-roof"  # nothing worth it, and no kernels at a roof either: the device's own turn-around, say


class Verdict(msgspec.Struct, frozen=True):
    """`cause` None: it cannot be told; then `between` holds what it could be."""

    cause: str | None
    next: str | None = None
    between: tuple[str, ...] = ()
    # "start-up", "too-early", "growing", "dilation", "unexplained", "contended", "ceilings", "small-kernels",
    # "no-roof", "unnamed-host", "no-shapes", "crowded-trace" or "unknown"
    why_not: str = ""
    seeming: str = ""  # what it looks like, if other processes are not the reason

    @property
    def wall(self) -> str | None:
        return WALL_OF[self.cause] if self.cause else None


def decide(facts: Facts) -> Verdict:
    """One verdict for all readings of the step, or none."""
    if facts.rank.step_times is not None and facts.rank.step_times.were_start_up:
        return Verdict(None, why_not="too-early")
    named = [_named(facts, scenario) for scenario in facts.reading.scenarios]
    best, found = named[1], set(named)
    if found & {UNKNOWN, NO_ROOF}:  # in some reading nobody can tell: then nobody can
        return Verdict(None, why_not=_why_nobody_can_tell(facts, found))
    following = _next(facts, best)
    # A job that sets itself up is also uneven: both are over once it has.
    sets_up = facts.recoverable()[RECOMPILATION] >= WORTH_IT * facts.step
    if best in (RECOMPILATION, "unstable-steps") and sets_up and grows(facts):
        if _copies_what_grows(facts):
            return Verdict(COPIES, _next(facts, COPIES))
        return Verdict(None, following, why_not="growing")
    if len(found) > 1:
        return Verdict(None, between=(best, *sorted(found - {best})), why_not="dilation")
    likely = facts.reading.likely
    if best == "launch-bound" and likely.busy > (1.0 - WORTH_IT) * likely.step:
        return Verdict(None, between=(best,), why_not="small-kernels")
    if _may_be_others(facts, best):
        return Verdict(None, why_not="contended", seeming=best)
    if best != UNNEEDED and facts.rank.device_kind == "cpu" and likely.shrink < NEARLY_ALL:
        return Verdict(None, why_not="crowded-trace", seeming=best)
    if best == "host-work" and is_unseen(facts):
        return Verdict(None, between=(best, "loader-starved"), why_not="unnamed-host")
    if _floors_guessed(facts, best):
        return Verdict(None, between=(best,), why_not="no-shapes")
    if best in ROOFS and not facts.ceilings.known:
        return Verdict(None, between=(best, "slow-kernels"), why_not="ceilings")
    return Verdict(best, following)


def _copies_what_grows(facts: Facts) -> bool:
    """Whether the device is mostly busy with copying what grows, which no set-up's end makes less: that is in
    later steps as well, and is their wall by all that this one shows."""
    most = ms(MAJORITY_SHARE * facts.reading.likely.busy)
    return appended_ms(facts) > most and _next(facts, RECOMPILATION) == COPIES


def _why_nobody_can_tell(facts: Facts, found: set[str]) -> str:
    """Whether it is idle time or work that nothing traced explains, or whether there is just no wall."""
    if facts.whole.start_up_ns > max(facts.unknown(scenario) for scenario in facts.reading.scenarios):
        return "start-up"
    if UNKNOWN not in found:
        return NO_ROOF
    mostly_idle = max(
        scenario.idle[UNKNOWN] - MAJORITY_SHARE * (facts.unknown(scenario) + _floorless(facts, scenario))
        for scenario in facts.reading.scenarios
    )
    return "unexplained" if mostly_idle > 0 else "unknown"


def _floors_guessed(facts: WorkFacts, best: str) -> bool:
    """Whether a recording without shapes is asked how far device work is from its floor: names tell its
    class, and whether it runs on the wrong pipe, but not that."""
    has_shapes = facts.timeline.header.shapes or (facts.timeline.events.inputs >= 0).any()
    return not has_shapes and WALL_OF[best] in ("compute", "bandwidth") and best not in TOLD_BY_NAME


def _may_be_others(facts: Facts, best: str) -> bool:
    """Whether what the best cause seems to give back may be time in which other processes had the cores."""
    if best == UNNEEDED:
        return False  # nobody else makes work needless
    share = in_line_share(facts.rank)
    rare = best == "unstable-steps"  # just what others cause, whatever the device
    if WALL_OF[best] in ("overhead", "data") and not rare:
        # A wait that is most of what is known stands all the same: work suffers more than Python.
        gain, known = facts.recoverable().of((best,)), facts.step - facts.unknown(facts.reading.likely)
        return share >= FAIR_PART and gain < MAJORITY_SHARE * known
    reached = best == "at-the-roof" and facts.ceilings.known  # a rate that was reached was reached
    if reached or (facts.rank.device_kind != "cpu" and not rare):
        return False
    # Threads that share an op wait for the one that has no core: work takes many times as long, Python not.
    crowded = others_share(facts.rank) >= FAIR_PART
    return share >= FAIR_PART or (share >= NOTICED_IN_LINE_SHARE and crowded)


def _named(facts: Facts, scenario: Scenario) -> str:
    """The cause that gives most back in one reading, a roof, or that nobody can tell."""
    gain = facts.recoverable(scenario)
    at_roof = max(facts.spent(scenario)[roof] for roof in ROOFS)
    causes = tuple(facts.local(scenario).ranked())  # no roof is among them, nor the unknown
    # What gives back little beside the time at the roof is a remark on a job that stands there, not its wall.
    least = max(WORTH_IT * scenario.step, SMALL_PART * at_roof)
    if facts.saved(causes, scenario) < least:
        return _roof(facts, scenario)
    best = _best(facts, scenario, gain)
    # Nor is one of several that are each too little beside it, where the step is mostly at the roof.
    if gain[best] < least and at_roof > MAJORITY_SHARE * scenario.step:
        return _roof(facts, scenario)
    return best if _hidden(facts, scenario, best) <= gain[best] else UNKNOWN


def _best(facts: Facts, scenario: Scenario, gain: ByCause) -> str:
    """The most recoverable cause; of two nearly alike the one that the earlier of the questions asks about.

    Where none gives anything alone, causes hide each other: the best pair decides, and of it the one that
    owns more of the step.
    """
    ranked = gain.ranked()
    if not ranked or gain[ranked[0]] < MENTION_SHARE * scenario.step:
        spent, alone = facts.spent(scenario), tuple(facts.local(scenario).ranked())
        pairs = tuple(combinations(alone, 2)) or (alone,)
        best = max(pairs, key=lambda pair: facts.saved(pair, scenario))
        return max(best, key=lambda cause: spent[cause])
    close = [cause for cause in ranked[:2] if gain[cause] >= NEAR * gain[ranked[0]]]
    return min(close, key=lambda cause: QUESTION_OF[cause])


def _next(facts: Facts, best: str) -> str | None:
    """The wall that stands once the best cause is gone."""
    gone = () if best in ROOFS else (best,)
    before = facts.saved(gone) if gone else 0.0
    left = {
        cause: facts.saved((*gone, cause)) - before for cause in facts.recoverable().ranked() if cause != best
    }
    most = max(left, key=lambda cause: left[cause], default=None)
    return most if most is not None and left[most] >= WORTH_IT * facts.step else None


def _hidden(facts: Facts, scenario: Scenario, best: str) -> float:
    """What a better cause than the known ones could give back, for all that is known."""
    blind = max(_floorless(facts, scenario), facts.blind(scenario, best))
    return facts.unknown(scenario) + facts.whole.start_up_ns + MAY_HIDE_SHARE * blind


def _floorless(facts: Facts, scenario: Scenario) -> float:
    """Time of causes of which nobody knows what could come back, because no ceiling tells."""
    if facts.ceilings.known:
        return 0.0
    blind = [cause for cause in facts.local(scenario).not_known() if cause != UNKNOWN]
    return facts.spent(scenario).of(blind)


def _roof(facts: Facts, scenario: Scenario) -> str:
    """Nothing left to recover: which roof the step stands at, if the unknown part lets us say."""
    spent = facts.spent(scenario)
    known = facts.ceilings.known or facts.rank.device_kind == "cpu"  # cores are judged without, with care
    unknown = facts.unknown(scenario) + facts.whole.start_up_ns + MAY_HIDE_SHARE * facts.blind(scenario)
    unseen = scenario.idle[UNKNOWN] > WORTH_IT * scenario.step  # as much as would make a wall
    if unknown > SMALL_PART * scenario.step or unseen or not known:
        return UNKNOWN
    compute, memory = spent.of(WALLS["compute"]), spent.of(WALLS["bandwidth"])
    roof = "at-the-roof" if compute >= memory else "memory-roof"
    return roof if spent[roof] >= WORTH_IT * scenario.step else NO_ROOF
