"""The way to the fastest stack: try what is predicted best, keep what is proven, look at the job anew, go on.

The first candidates are the fixes that are predicted best, and the stack of them that is: where it holds what
is predicted, one stage is enough. A fix that came with a stack and was not proven by itself must prove itself
by what the stack is without it. One that is another way to what the stack does already, or the same with
another number, is tried in its place, where a look at the job with the stack says so. Who runs the processes
and who looks at the job is the caller's matter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from statistics import median

from msgspec.structs import replace

from findwall.model.catalogue import WORTH_IT
from findwall.model.claims import Range
from findwall.trial.arms_in_turn import ROUNDS, Outcome, Trial
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
from findwall.trial.stacks_tried import (
    AGAIN,
    EARLY,
    NO_LOOK,
    PLAIN,
    TOO_SHORT,
    Candidate,
    Found,
    Stack,
    Stage,
    View,
    joined,
)
from findwall.trial.statistics import LEAST_DIFFERENCE, LEAST_SAMPLES, noise_floor, prove, verdict

# All chosen by hand.
AT_ONCE = 3  # candidates in one trial, so that each turn of the arms stays short
MOST_STACKS = 2  # of those
CLEAR = 1.0 + WORTH_IT  # times: a gain proven to be more needs no further processes
# Of the best gain: of such the one is taken that takes less, in fixes and to start.
AS_GOOD = 1.0 - LEAST_DIFFERENCE
PROMISING = 1.005  # times: a gain that is not proven yet is worth further ones
WORTH_AGAIN = 0.97  # of the step: what was no gain alone is tried on top if less than that is predicted
NOT_SHOWN = "the stand-in is not proven faster, which says nothing of the edit: that has no such cost"
DRAWN_ELSEWHERE = "the same samples in the same order, of which the dataset draws parts at random"
UNSEEN = (
    "the same samples in the same order; whether the dataset draws at random nobody saw, as its workers are "
    "not forked, so the losses are held to what two seeds differ by"
)

Settled = Callable[[Trial, str], bool]
Measure = Callable[[dict[str, Stack], Settled], Trial]  # arms by name, with what is made in each
Look = Callable[[Stack], View | None]
Rivals = Callable[[Stack, str], Stack]  # what of a stack a fix is another way to, or is there itself
Spare = Callable[[Sequence[Stack]], float]  # seconds that a process of each arm would leave of the budget


def search(
    measure: Measure, look: Look, rivals: Rivals, rounds: int = ROUNDS, spare: Spare = lambda _arms: inf
) -> Found:
    """`rounds`: processes of an arm that are usually enough; twice as many where a gain shows that is not
    proven."""
    way = _Way(measure, rivals, rounds, spare)
    try:
        way.go(look)
    except KeyboardInterrupt:  # between two trials: within one it is noted
        way.found.ended = "interrupted"
    return way.found


class _Way:
    def __init__(self, measure: Measure, rivals: Rivals, rounds: int, spare: Spare) -> None:
        self.found = Found()
        self._measure, self._rivals, self._rounds, self._spare = measure, rivals, rounds, spare
        self._tried: set[Stack] = set()
        self._never: set[Stack] = set()  # what failed, computes something else, or was put in and taken out
        self._replaced: set[str] = set()  # by another way to the same: they do not come back
        self._proven: set[str] = set()  # fixes that made the job faster by themselves
        self._needed: set[str] = set()  # others of the stack, without which it was not seen to be as good
        self._exact: dict[str, bool] = {}
        self._redraws: set[str] = set()
        self._plain = Plain([], [], [])
        self._floor = LEAST_DIFFERENCE
        self._ask = MORE_TIME  # what would settle the rest

    def go(self, look: Look) -> None:
        view = look(())
        while view is not None:
            found = self.found
            for one in view.candidates:
                self._exact |= {name: one.exact for name in one.fixes if len(one.fixes) == 1}
                self._redraws |= set(one.fixes) if one.redraws and len(one.fixes) == 1 else set()
            todo, doubts = self._wanted(view), self._doubts()
            if not todo and not doubts:
                found.ended = "nothing is left to try"
                return
            todo, doubts = self._that_fit(todo, doubts)
            if not todo and not doubts:
                found.ended = TOO_SHORT
                return
            before = found.stack
            attempts, ended = self._stage(todo, doubts)
            found.stages.append(Stage(before, view, attempts))
            if ended:
                found.ended = ended
                return
            if found.stack != before:
                view = look(found.stack)
                if view is not None:
                    self._allow_again(view)
        self.found.ended = NO_LOOK

    def _wanted(self, view: View) -> list[Candidate]:
        """The stack that is predicted best, if there is one, another way to it, and the best fixes."""
        free = [one for one in view.candidates if self._may_be_tried(one, view)]
        singles = self._one_way_each([one for one in free if len(one.fixes) == 1])
        stacks = [one for one in free if len(one.fixes) > 1 and one.predicted.mid is not None]
        stacks.sort(key=lambda one: one.predicted.mid or 0.0)
        best = [one for one in stacks if self._is_a_way_to(stacks[0].fixes, one.fixes)][:MOST_STACKS]
        chosen = {*(one.fixes for one in best), *(one.fixes for one in singles[: AT_ONCE - len(best)])}
        return [one for one in free if one.fixes in chosen]

    def _is_a_way_to(self, best: Stack, one: Stack) -> bool:
        """Whether a stack is the best one, or that with a fix made in another way."""
        return len(one) == len(best) and all(self._rivals(best, name) for name in set(one) - set(best))

    def _one_way_each(self, singles: list[Candidate]) -> list[Candidate]:
        """Of several ways to the same the one that is predicted best: another is tried if that fails, or in
        its place if a look says so."""
        found: list[Candidate] = []
        for one in singles:
            mid = one.predicted.mid
            rivals = [other for other in found if self._rivals(other.fixes, one.fixes[0])]
            better = [other.predicted.mid for other in rivals if other.predicted.mid is not None]
            if mid is None or not better or mid < WORTH_AGAIN * min(better):
                found.append(one)
        return found

    def _may_be_tried(self, one: Candidate, view: View) -> bool:
        if one.fixes in self._tried:
            return False
        base = self.found.stack
        lost = set(base) - set(self._with(one))
        if not lost:
            return not any(self._rivals((*base, *one.fixes[:at]), name) for at, name in enumerate(one.fixes))
        again = {bare(name) for name in one.fixes} & {bare(name) for name in self._replaced}
        shorter = one.predicted.mid is not None and one.predicted.mid < WORTH_AGAIN * (view.step_ms or 0.0)
        return shorter and not again

    def _with(self, one: Candidate) -> Stack:
        """The stack with a candidate on top, in place of what it is another way to."""
        made = self.found.stack
        for name in one.fixes:
            rivals = self._rivals(made, name)
            made = (*(other for other in made if other not in rivals), name)
        return made

    def _doubts(self) -> list[str]:
        """Fixes of the stack that were never proven by themselves."""
        sure = self._proven | self._needed
        return [name for name in self.found.stack if name not in sure][: AT_ONCE - 1]

    def _that_fit(self, todo: list[Candidate], doubts: list[str]) -> tuple[list[Candidate], list[str]]:
        """Those that there is time to prove, the best first: what is started and not proven is lost. What is
        left out is noted."""
        found, base = self.found, self.found.stack
        arms: list[Stack] = [(), base] if base else [()]
        arms += [()] if not found.stages else []
        chosen: set[Stack] = set()
        found.untried, found.short_s = [], 0.0
        for one in sorted(todo, key=lambda one: one.predicted.mid or inf):
            spare_s = self._spare([*arms, self._with(one)] * LEAST_SAMPLES)
            if spare_s < 0:
                found.short_s = found.short_s or -spare_s
                found.untried.append(one)
                continue
            chosen.add(one.fixes)
            arms.append(self._with(one))
        sure = []
        for name in doubts:
            rest = tuple(one for one in base if one != name)
            if self._spare([*arms, rest] * LEAST_SAMPLES) >= 0:
                sure.append(name)
                arms.append(rest)
        return [one for one in todo if one.fixes in chosen], sure

    def _stage(self, todo: list[Candidate], doubts: list[str]) -> tuple[list[Attempt], str]:
        """Every candidate on top of the stack, and the stack without what is in doubt, beside the plain job;
        the first time also beside the plain job from another seed."""
        found = self.found
        first, base = not found.stages, found.stack
        tops = {joined(self._with(one)): one for one in todo}
        lacks = {f"{joined(base)} without {name}": name for name in doubts}
        arms: dict[str, Stack] = {PLAIN: (), **({AGAIN: ()} if first else {})}
        arms |= {joined(base): base} if base else {}
        arms |= {name: self._with(one) for name, one in tops.items()}
        arms |= {name: tuple(one for one in base if one != lack) for name, lack in lacks.items()}
        below = joined(base) if base else PLAIN
        trial = self._measure(arms, lambda trial, name: self._settled(trial, arms, below, name))
        found.seconds += trial.seconds
        self._note_plain(trial, first)
        left = {name: one for name, one in tops.items() if not trial.arms[name].samples}
        found.untried += [one for name, one in left.items() if not self._is_spared(trial, arms, name)]
        tops = {name: one for name, one in tops.items() if trial.arms[name].samples}
        lacks = {name: one for name, one in lacks.items() if trial.arms[name].samples}
        self._ask = INTERRUPTED if trial.ended == "interrupted" else MORE_TIME
        attempts = [self._on_top(one, trial, name, below) for name, one in tops.items()]
        judged = list(zip(tops.values(), attempts, strict=True))
        self._tried |= {one.fixes for one in todo}
        self._never |= {one.fixes for one, made in judged if made.verdict in ("failed", "incorrect")}
        removed = self._removed(lacks, trial, below)
        proven = [made for made in attempts if made.verdict == "faster"]
        fresh = {one.fixes for one, made in judged if made.verdict == "faster"}
        self._proven |= {fixes[0] for fixes in fresh if len(fixes) == 1}
        if proven:
            least = AS_GOOD * max(made.gain for made in proven)
            as_good = [made for made in proven if made.gain >= least]
            best = min(as_good, key=lambda made: (len(made.fixes), round(made.starts_s)))
            found.stack, found.total = best.fixes, best
            self._replaced |= set(base) - set(best.fixes)
            self._proven |= self._proven_inside(best, attempts, trial, arms)
            self._tried -= fresh  # proven alone: tried again on top
        if not proven:
            self._drop_one(removed, doubts)
        return [*attempts, *(whole for whole, _ in removed)], EARLY.get(trial.ended, "")

    def _removed(self, lacks: dict[str, str], trial: Trial, below: str) -> list[tuple[Attempt, Attempt]]:
        """The stack beside itself without each fix that is in doubt, and that rest beside the plain job."""
        found = []
        for name, lack in lacks.items():
            rest = tuple(one for one in self.found.stack if one != lack)
            without = self._judged(rest, trial.arms[name])
            whole = self._judged((*rest, lack), trial.arms[below])
            whole = self._beside(whole, trial.arms[name], trial.arms[below], joined(rest))
            if "failed" not in (whole.verdict, without.verdict):
                found.append((whole, without))
        return found

    def _drop_one(self, removed: list[tuple[Attempt, Attempt]], doubts: list[str]) -> None:
        """What the stack is no faster with goes, if the rest is proven by itself. One at a time: the others
        are looked at again without it. What could not be compared stays, as the stack with it is proven."""
        lacks = {whole.fixes[-1]: (whole, without) for whole, without in removed}
        self._proven |= {name for name, (whole, _) in lacks.items() if whole.verdict == "faster"}
        useless = [name for name, both in lacks.items() if _is_useless(*both)]
        if not useless:
            self._needed |= set(doubts)
            return
        _, rest = lacks[useless[0]]
        self._never.add((useless[0],))
        self._tried.add((useless[0],))
        self.found.stack, self.found.total = rest.fixes, rest

    def _proven_inside(
        self, best: Attempt, attempts: list[Attempt], trial: Trial, arms: dict[str, Stack]
    ) -> set[str]:
        """Fixes of a stack that is faster than an arm of the same trial which lacks them alone. The stack
        with one of them made in another way says as much of the others, if it is proven too."""
        runs = {frozenset(made): trial.arms[name].runs_ms for name, made in arms.items()}
        found = self._faster_with(frozenset(best.fixes), runs)
        for one in attempts:
            is_way = one.fixes != best.fixes and self._is_a_way_to(best.fixes, one.fixes)
            if is_way and one.verdict == "faster":
                found |= self._faster_with(frozenset(one.fixes), runs) & set(best.fixes)
        return found

    def _faster_with(self, stack: frozenset[str], runs: dict[frozenset[str], list[float]]) -> set[str]:
        """Those of a stack that it was measured without, and is faster with."""
        fewer = {one: runs[stack - {one}] for one in stack if stack - {one} in runs}
        return {
            one for one, base in fewer.items() if verdict(prove(base, runs[stack]), self._floor) == "faster"
        }

    def _note_plain(self, trial: Trial, first: bool) -> None:
        plain = trial.arms[PLAIN]
        runs, seeds, losses = plain.runs_ms, self._plain.other_seed, self._plain.losses + losses_of(plain)
        if first:
            again = trial.arms[AGAIN]
            self._floor = self._floor_of(trial)
            both = min(len(plain.runs_ms), len(again.runs_ms)) >= LEAST_SAMPLES
            self.found.noise = self._floor if both else None
            runs, seeds = _plain_runs(trial), losses_of(again)
        if runs:
            self.found.plain_ms = median(runs)
        took = median(one.seconds for one in plain.samples) if plain.samples else 0.0
        told = plain.reports
        draws = self._plain.draws or any(one.draws for one in told)
        order = self._plain.order or next((one.order for one in told), [])
        unseen = self._plain.unseen or any(one.unseen for one in told)
        around = self._plain.around + around_of(plain)
        self._plain = Plain(runs, losses, seeds, took, around, draws, order, unseen)

    def _judged(self, fixes: Stack, arm: Outcome, predicted: Range | None = None) -> Attempt:
        safe = all(self._exact.get(one, False) for one in fixes)
        redrawn = bool(self._redraws.intersection(fixes)) and same_order(self._plain.order, arm)
        draws = redrawn and self._plain.draws  # else nothing explains other losses
        made = judge(fixes, arm, self._plain, safe and not draws, self._floor, self._ask)
        note = DRAWN_ELSEWHERE if draws and made.verdict != "failed" else ""
        if redrawn and made.verdict == "incorrect" and self._plain.unseen:
            made, note = judge(fixes, arm, self._plain, False, self._floor, self._ask), UNSEEN
        return replace(made, predicted=predicted or Range(), why="; ".join(filter(None, (made.why, note))))

    def _on_top(self, one: Candidate, trial: Trial, name: str, below: str) -> Attempt:
        """A fix on top of a stack must make that stack faster, not only the plain job."""
        attempt = self._judged(self._with(one), trial.arms[name], one.predicted)
        if attempt.verdict in ("failed", "incorrect"):
            return attempt
        if below != PLAIN:
            attempt = self._beside(attempt, trial.arms[below], trial.arms[name], below)
        if one.stands_in and attempt.verdict != "faster":
            return replace(attempt, verdict="failed", why=f"{NOT_SHOWN} ({attempt.why})")
        return attempt

    def _beside(self, attempt: Attempt, before: Outcome, after: Outcome, base: str) -> Attempt:
        """Judged by what it is beside some of its fixes, not beside the plain job."""
        if attempt.verdict in ("failed", "incorrect"):
            return attempt
        found = prove(before.runs_ms, after.runs_ms)
        if found is None:
            few = before if len(before.runs_ms) < len(after.runs_ms) else after
            return replace(attempt, verdict="failed", why=too_few(few.runs_ms, few.name, self._ask))
        made = verdict(found, self._floor)
        open_still = unsettled(made, found, before.runs_ms, after.runs_ms, self._floor, self._ask)
        why = "; ".join(filter(None, (open_still, attempt.why)))
        return replace(attempt, verdict=made, base=base, on_base=found, why=why)

    def _settled(self, trial: Trial, arms: dict[str, Stack], below: str, name: str) -> bool:
        """Whether an arm needs no more processes. Those that others are compared with go on with them."""
        shared = {PLAIN, AGAIN, below}
        if name in shared:
            others = [one for one in arms if one not in shared]
            return bool(others) and all(self._settled(trial, arms, below, one) for one in others)
        arm, runs = trial.arms[name], trial.arms[below].runs_ms
        if not arm.samples and self._is_spared(trial, arms, name):
            return True
        if arm.hopeless or (arm.runs_ms and trouble_of(arms[name], arm)):
            return True
        if len(arm.runs_ms) < LEAST_SAMPLES:
            return False
        if below == PLAIN and AGAIN in arms:
            runs = _plain_runs(trial)
        lacks = set(arms[name]) < set(arms[below])
        found = prove(arm.runs_ms, runs) if lacks else prove(runs, arm.runs_ms)
        if found is None:
            return False
        if found.low > CLEAR or found.high < 1 + LEAST_DIFFERENCE:
            return True
        proven = verdict(found, self._floor_of(trial)) != "no-difference"
        return len(arm.runs_ms) >= self._rounds and (proven or found.ratio <= PROMISING)

    def _is_spared(self, trial: Trial, arms: dict[str, Stack], name: str) -> bool:
        """Whether an arm holds a fix that did nothing in another way to the same stack: it would not here."""
        mine = arms[name]
        return any(
            did_nothing(stack, trial.arms[other]) in mine
            for other, stack in arms.items()
            if stack != mine and self._is_a_way_to(stack, mine)
        )

    def _floor_of(self, trial: Trial) -> float:
        """By the two plain arms, where this trial has both."""
        if AGAIN not in trial.arms:
            return self._floor
        return max(LEAST_DIFFERENCE, noise_floor(trial.arms[PLAIN].runs_ms, trial.arms[AGAIN].runs_ms))

    def _allow_again(self, view: View) -> None:
        """What was no gain before may be one now, if the job as it is now says so."""
        limit = WORTH_AGAIN * (view.step_ms or 0.0)
        self._tried -= {
            one.fixes
            for one in view.candidates
            if one.predicted.mid is not None and one.predicted.mid < limit and one.fixes not in self._never
        }


def _plain_runs(trial: Trial) -> list[float]:
    """Of both plain arms, unless the seed makes a difference: then of the one that starts as others do."""
    plain, again = trial.arms[PLAIN].runs_ms, trial.arms[AGAIN].runs_ms
    is_alike = verdict(prove(plain, again)) == "no-difference"
    return [*plain, *again] if is_alike else plain


def _is_useless(whole: Attempt, without: Attempt) -> bool:
    return without.verdict == "faster" and whole.verdict in ("no-difference", "slower")
