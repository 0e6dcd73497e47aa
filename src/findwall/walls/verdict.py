"""The verdict: the cause with the most recoverable time, or none where the trace does not support one."""

from __future__ import annotations

import msgspec

from findwall.attribute.conditions import in_line_share, others_share
from findwall.attribute.facts import Facts
from findwall.attribute.loader import is_unseen
from findwall.attribute.reading import Scenario
from findwall.attribute.setups import RECOMPILATION, grows
from findwall.attribute.whatif import saved_alone
from findwall.model.catalogue import MAJORITY_SHARE, QUESTION_OF, ROOFS, WALL_OF, WALLS, WORTH_IT
from findwall.model.causes import UNKNOWN, ByCause
from findwall.replay.blame import WAITING
from findwall.replay.graph import LAUNCHING

# All of these are chosen by hand, not calibrated.
# Of the best cause's gain: a second one this close may win by the order of the questions.
NEAR_TIE_SHARE = 0.75
# Of the time without a core: from here on others may be what is slow; a job of one thread has less than the
# second, and loses nothing.
IN_LINE_SHARE = 0.25
NOTICED_IN_LINE_SHARE = 0.05
# Of what is known of the step: a wait this long stands all the same, because work suffers more than Python.
DOMINANT_SHARE = 0.6
# Of cores that are full, kept busy by others: threads of one op then wait for each other.
CROWDED_CORES_SHARE = 0.25
# Of device time of a known cause and unknown floor: what may come back of it at the most.
MAY_HIDE_SHARE = 0.5
# Of the step: a device that works longer waits for nobody, however small its kernels are.
BUSY_FOR_LAUNCHES = 0.95
# Of the step: a roof says that nothing is left, so nearly all must be known.
ROOF_UNKNOWN_SHARE = 0.10
# Of the time at the roof: what gives back less is a remark on a job that stands there, not its wall.
BESIDE_ROOF_SHARE = 0.1
COMPARED = 4  # causes, of those with most to give back, that are played against each other

TOLD_BY_NAME = ("fast-path-off", "throttled")  # causes of device work that need no shapes
NO_ROOF = "no-roof"  # nothing worth it, and no kernels at a roof either: the device's own turn-around, say


class Verdict(msgspec.Struct, frozen=True):
    """`cause` None: it cannot be told; then `between` holds what it could be."""

    cause: str | None
    next: str | None = None
    between: tuple[str, ...] = ()
    # "start-up", "too-early", "growing", "dilation", "unexplained", "contended", "ceilings", "small-kernels",
    # "no-roof", "unnamed-host", "no-shapes" or "unknown"
    why_not: str = ""
    seeming: str = ""  # what it looks like, if other processes are not the reason

    @property
    def wall(self) -> str | None:
        return WALL_OF[self.cause] if self.cause else None


def decide(facts: Facts) -> Verdict:
    """One verdict for all readings of the step, or none."""
    if facts.rank.step_times is not None and facts.rank.step_times.were_start_up:
        return Verdict(None, why_not="too-early")
    ranked = [_rank(facts, scenario) for scenario in facts.reading.scenarios]
    best = ranked[1][0]
    found = {ranking[0] for ranking in ranked}
    if found & {UNKNOWN, NO_ROOF}:  # in some reading nobody can tell: then nobody can
        return Verdict(None, why_not=_why_nobody_can_tell(facts, found))
    # A job that sets itself up is also uneven: both are over once it has.
    worth_setting_up = RECOMPILATION in ranked[1][:COMPARED]
    if best in (RECOMPILATION, "unstable-steps") and worth_setting_up and grows(facts):
        return Verdict(None, ranked[1][1] if len(ranked[1]) > 1 else None, why_not="growing")
    if len(found) > 1:
        return Verdict(None, between=(best, *sorted(found - {best})), why_not="dilation")
    likely = facts.reading.likely
    if best == "launch-bound" and likely.busy > BUSY_FOR_LAUNCHES * likely.step:
        return Verdict(None, between=(best,), why_not="small-kernels")
    if _may_be_others(facts, best):
        return Verdict(None, why_not="contended", seeming=best)
    if best == "host-work" and is_unseen(facts):
        return Verdict(None, between=(best, "loader-starved"), why_not="unnamed-host")
    if _floors_guessed(facts, best):
        return Verdict(None, between=(best,), why_not="no-shapes")
    if best in ROOFS and not facts.ceilings.known:
        return Verdict(None, between=(best, "slow-kernels"), why_not="ceilings")
    return Verdict(best, ranked[1][1] if len(ranked[1]) > 1 else None)


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


def _floors_guessed(facts: Facts, best: str) -> bool:
    """Whether a recording without shapes is asked how far device work is from its floor: names tell its
    class, and whether it runs on the wrong pipe, but not that. Counters do."""
    has_shapes = facts.timeline.header.shapes or (facts.timeline.events.inputs >= 0).any()
    if has_shapes or (facts.counted is not None and facts.counted.cause == best):
        return False
    return WALL_OF[best] in ("compute", "bandwidth") and best not in TOLD_BY_NAME


def _may_be_others(facts: Facts, best: str) -> bool:
    """Whether what the best cause seems to give back may be time in which other processes had the cores."""
    share = in_line_share(facts.rank)
    rare = best == "unstable-steps"  # just what others cause, whatever the device
    if WALL_OF[best] in ("overhead", "data") and not rare:
        gain, known = facts.recoverable().of((best,)), facts.step - facts.unknown(facts.reading.likely)
        return share >= IN_LINE_SHARE and gain < DOMINANT_SHARE * known
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
    spent = facts.spent(scenario)
    if gain.of(worth) < BESIDE_ROOF_SHARE * max(spent[roof] for roof in ROOFS):
        roof = _roof(facts, scenario)
        if roof in ROOFS and gain.of(worth) < BESIDE_ROOF_SHARE * spent[roof]:
            return [roof, *worth]
    if len(worth) > 1 and gain[worth[1]] >= NEAR_TIE_SHARE * gain[worth[0]]:
        first, second = worth[0], worth[1]
        if QUESTION_OF[second] < QUESTION_OF[first]:
            worth[0], worth[1] = second, first
    worth = _in_front(facts, worth, gain, scenario)
    return worth if _hidden(facts, scenario, worth[0]) <= gain[worth[0]] else [UNKNOWN]


def _in_front(facts: Facts, worth: list[str], gain: ByCause, scenario: Scenario) -> list[str]:
    """The same causes, unless another one clearly saves more by itself than the first: it stands in front.

    Of two that hide each other neither saves much alone; then the one with more to give back stays first.
    So it does before a trifle: what hides it may be no cause at all, as a host that only just keeps up.
    Launching never stands in front of a wait for the device: launches that cost nothing would make every wait
    harmless, but it is the wait that has emptied the queue.
    """
    if len(worth) < 2 or facts.reading.source not in ("given", "measured"):
        return worth  # what hides behind what is known only where the true step is
    compared = [cause for cause in worth[:COMPARED] if gain[cause] >= MAJORITY_SHARE * gain[worth[0]]]
    if worth[0] in WAITING:
        compared = [cause for cause in compared if cause != LAUNCHING]
    # For the first all counts that mending it does; what is to stand in front of it must do so by itself.
    alone = {cause: saved_alone(facts, cause, launches=cause == worth[0]) for cause in compared}
    most = max(alone, key=lambda cause: alone[cause])
    clear = alone[most] >= WORTH_IT * scenario.step and alone[worth[0]] < NEAR_TIE_SHARE * alone[most]
    return [most, *(cause for cause in worth if cause != most)] if clear else worth


def _hidden(facts: Facts, scenario: Scenario, best: str) -> float:
    """What a better cause than the known ones could give back, for all that is known."""
    blind = max(_floorless(facts, scenario), facts.blind(scenario, best))
    return facts.unknown(scenario) + facts.whole.start_up_ns + MAY_HIDE_SHARE * blind


def _floorless(facts: Facts, scenario: Scenario) -> float:
    """Time of causes of which nobody knows what could come back, because no ceiling tells."""
    if facts.ceilings.known:
        return 0.0
    blind = [cause for cause in facts.recoverable(scenario).not_known() if cause != UNKNOWN]
    return facts.spent(scenario).of(blind)


def _roof(facts: Facts, scenario: Scenario) -> str:
    """Nothing left to recover: which roof the step stands at, if the unknown part lets us say."""
    spent = facts.spent(scenario)
    known = facts.ceilings.known or facts.rank.device_kind == "cpu"  # cores are judged without, with care
    unknown = facts.unknown(scenario) + facts.whole.start_up_ns + MAY_HIDE_SHARE * facts.blind(scenario)
    if unknown > ROOF_UNKNOWN_SHARE * scenario.step or not known:
        return UNKNOWN
    if scenario.idle[UNKNOWN] > WORTH_IT * scenario.step:  # as much as would make a wall
        return UNKNOWN
    at_the_roof = spent.of(WALLS["compute"]) >= spent.of(WALLS["bandwidth"])
    roof = "at-the-roof" if at_the_roof else "memory-roof"
    return roof if spent[roof] >= WORTH_IT * scenario.step else NO_ROOF
