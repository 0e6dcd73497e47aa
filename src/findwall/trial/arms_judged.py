"""What the processes of a trial show of each arm, beside the plain job and beside the stack below it."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

from msgspec.structs import replace

from findwall.model.catalogue import WORTH_IT
from findwall.model.claims import Range
from findwall.model.switches.typed_switches import is_by_switch
from findwall.trial.arms_in_turn import Outcome, Trial
from findwall.trial.judge import (
    INTERRUPTED,
    MORE_TIME,
    Attempt,
    Plain,
    around_of,
    bare,
    did_nothing,
    judge,
    losses_of,
    same_order,
    too_few,
    trouble_of,
    unsettled,
)
from findwall.trial.stacks_tried import AGAIN, PLAIN, Candidate, Stack
from findwall.trial.statistics import LEAST_DIFFERENCE, LEAST_SAMPLES, noise_floor, prove, verdict

# Chosen by hand.
CLEAR = 1.0 + WORTH_IT  # times: a gain proven to be more needs no further processes
PROMISING = 1.005  # times: a gain that is not proven yet is worth further ones
NOT_SHOWN = "the stand-in is not proven faster, which says nothing of the edit: that has no such cost"
DRAWN_ELSEWHERE = "the same samples in the same order, of which the dataset draws parts at random"
UNSEEN = (
    "the same samples in the same order; whether the dataset draws at random nobody saw, as its workers are "
    "not forked, so the losses are held to what two seeds differ by"
)

IsWay = Callable[[Stack, Stack], bool]  # whether a stack is another with a fix made in another way


class Evidence:
    """All that was seen so far of the plain job, and how arms are judged by it."""

    def __init__(self, rounds: int, is_way: IsWay) -> None:
        self._rounds, self._is_way = rounds, is_way
        self._exact: dict[str, bool] = {}
        self._redraws: set[str] = set()
        self._plain = Plain([], [], [])
        self.floor = LEAST_DIFFERENCE
        self.noise: float | None = None  # of two plain arms
        self.plain_ms: float | None = None
        self.dead: set[str] = set()  # fixes that cannot be made in this job
        self._ask = MORE_TIME  # what would settle the rest

    def note_candidate(self, one: Candidate) -> None:
        """What a fix promises. A switch need not keep the order of samples as our own way does."""
        if len(one.fixes) != 1:
            return
        self._exact |= dict.fromkeys(one.fixes, one.exact)
        self._exact |= {name: one.exact and not one.redraws for name in one.switched if is_by_switch(name)}
        self._redraws |= {*one.fixes, *one.switched} if one.redraws else set()

    def note_trial(self, trial: Trial, arms: dict[str, Stack]) -> None:
        self._ask = INTERRUPTED if trial.ended == "interrupted" else MORE_TIME
        for name, stack in arms.items():
            cannot = {one for told in trial.arms[name].reports for one in told.applied.cannot}
            self.dead |= {one for one in stack if bare(one) in cannot and not is_by_switch(one)}
        plain = trial.arms[PLAIN]
        runs, seeds = plain.runs_ms, self._plain.other_seed
        if AGAIN in arms:
            again = trial.arms[AGAIN]
            self.floor = self._floor_of(trial)
            both = min(len(plain.runs_ms), len(again.runs_ms)) >= LEAST_SAMPLES
            self.noise = self.floor if both else None
            runs, seeds = _plain_runs(trial), losses_of(again)
        if runs:
            self.plain_ms = median(runs)
        before, own = self._plain, plain.reports
        self._plain = Plain(
            runs,
            before.losses + losses_of(plain),
            seeds,
            median(one.seconds for one in plain.samples) if plain.samples else 0.0,
            before.around + around_of(plain),
            before.draws or any(one.draws for one in own),
            before.order or next((one.order for one in own), []),
            before.unseen or any(one.unseen for one in own),
        )

    def judged(self, fixes: Stack, arm: Outcome, predicted: Range | None = None) -> Attempt:
        safe = all(self._exact.get(one, False) for one in fixes)
        redrawn = bool(self._redraws.intersection(fixes)) and same_order(self._plain.order, arm)
        draws = redrawn and self._plain.draws  # else nothing explains other losses
        made = judge(fixes, arm, self._plain, safe and not draws, self.floor, self._ask)
        note = DRAWN_ELSEWHERE if draws and made.verdict != "failed" else ""
        if redrawn and made.verdict == "incorrect" and self._plain.unseen:
            made, note = judge(fixes, arm, self._plain, False, self.floor, self._ask), UNSEEN
        return replace(made, predicted=predicted or Range(), why="; ".join(filter(None, (made.why, note))))

    def on_top(self, one: Candidate, fixes: Stack, trial: Trial, name: str, below: str) -> Attempt:
        """A fix on top of a stack must make that stack faster, not only the plain job."""
        attempt = self.judged(fixes, trial.arms[name], one.predicted)
        if attempt.verdict in ("failed", "incorrect"):
            return attempt
        if below != PLAIN:
            attempt = self.beside(attempt, trial.arms[below], trial.arms[name], below)
        if one.stands_in and attempt.verdict != "faster":
            return replace(attempt, verdict="failed", why=f"{NOT_SHOWN} ({attempt.why})")
        return attempt

    def beside(self, attempt: Attempt, before: Outcome, after: Outcome, base: str) -> Attempt:
        """Judged by what it is beside some of its fixes, not beside the plain job."""
        if attempt.verdict in ("failed", "incorrect"):
            return attempt
        found = prove(before.runs_ms, after.runs_ms)
        if found is None:
            few = before if len(before.runs_ms) < len(after.runs_ms) else after
            return replace(attempt, verdict="failed", why=too_few(few.runs_ms, few.name, self._ask))
        made = verdict(found, self.floor)
        open_still = unsettled(made, found, before.runs_ms, after.runs_ms, self.floor, self._ask)
        why = "; ".join(filter(None, (open_still, attempt.why)))
        return replace(attempt, verdict=made, base=base, on_base=found, why=why)

    def is_faster(self, before_ms: list[float], after_ms: list[float]) -> bool:
        return verdict(prove(before_ms, after_ms), self.floor) == "faster"

    def settled(self, trial: Trial, arms: dict[str, Stack], below: str, name: str) -> bool:
        """Whether an arm needs no more processes. Those that others are compared with go on with them."""
        arm, runs = trial.arms[name], trial.arms[below].runs_ms
        shared = {PLAIN, AGAIN, below}
        if name in shared:
            others = [one for one in arms if one not in shared]
            done = all(self.settled(trial, arms, below, one) for one in others)
            return bool(others) and done and not arm.wants_repeat
        if not arm.samples and self.is_spared(trial, arms, name):
            return True
        if arm.hopeless or (arm.runs_ms and trouble_of(arms[name], arm)):
            return True
        if len(arm.runs_ms) < LEAST_SAMPLES or arm.wants_repeat:
            return False
        if below == PLAIN and AGAIN in arms:
            runs = _plain_runs(trial)
        lacks = set(arms[name]) < set(arms[below])
        found = prove(arm.runs_ms, runs) if lacks else prove(runs, arm.runs_ms)
        if found is None:
            return False
        proven = verdict(found, self._floor_of(trial)) != "no-difference"
        if found.high < 1 + LEAST_DIFFERENCE or (proven and found.low > CLEAR):
            return True
        return len(arm.runs_ms) >= self._rounds and (proven or found.ratio <= PROMISING)

    def is_spared(self, trial: Trial, arms: dict[str, Stack], name: str) -> bool:
        """Whether an arm holds a fix that did nothing in another way to the same stack: it would not here."""
        mine = arms[name]
        return any(
            did_nothing(stack, trial.arms[other]) in mine
            for other, stack in arms.items()
            if stack != mine and self._is_way(stack, mine)
        )

    def _floor_of(self, trial: Trial) -> float:
        """By the two plain arms, where this trial has both."""
        if AGAIN not in trial.arms:
            return self.floor
        return max(LEAST_DIFFERENCE, noise_floor(trial.arms[PLAIN].runs_ms, trial.arms[AGAIN].runs_ms))


def _plain_runs(trial: Trial) -> list[float]:
    """Of both plain arms, unless the seed makes a difference: then of the one that starts as others do."""
    plain, again = trial.arms[PLAIN].runs_ms, trial.arms[AGAIN].runs_ms
    is_alike = verdict(prove(plain, again)) == "no-difference"
    return [*plain, *again] if is_alike else plain
