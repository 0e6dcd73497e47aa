"""The way to the fastest stack: screen what can be screened, prove the rest beside what that keeps, look at
the job anew, go on.

What a screening keeps is proven as one stack, and by halves where that loses. What no screening can show is
tried as it is predicted: the best fixes, and the stack of them that is. A fix that came with a stack and that
nothing showed by itself must prove itself by what the stack is without it. One that is another way to what
the stack does already, or the same with another number, is tried in its place, where a look at the job with
the stack says so. Who runs the processes and who looks at the job is the caller's matter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf, isinf, prod
from typing import NamedTuple

from msgspec.structs import replace

from findwall.model.switches.typed_switches import own_name
from findwall.trial.arms_in_turn import LONGER, ROUNDS, Outcome, Trial
from findwall.trial.arms_judged import Evidence
from findwall.trial.judge import Attempt, bare
from findwall.trial.screened import Screened
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
from findwall.trial.statistics import LEAST_DIFFERENCE, LEAST_SAMPLES
from findwall.trial.switch_ways import SwitchWays

# All chosen by hand.
AT_ONCE = 3  # candidates in one trial, so that each turn of the arms stays short
MOST_STACKS = 2  # of those
# Of the best gain: of such the one is taken that takes less, in fixes and to start.
AS_GOOD = 1.0 - LEAST_DIFFERENCE
WORTH_AGAIN = 0.97  # of the step: what was no gain alone is tried on top if less than that is predicted

Settled = Callable[[Trial, str], bool]
Measure = Callable[[dict[str, Stack], Settled], Trial]  # arms by name, with what is made in each
Look = Callable[[Stack], View | None]
Rivals = Callable[[Stack, str], Stack]  # what of a stack a fix is another way to, or is there itself
Spare = Callable[[Sequence[Stack]], float]  # seconds that a process of each arm would leave of the budget
Screen = Callable[[Sequence[str], Stack], list[Screened]]  # of fixes on top of a stack those that can be


def search(
    measure: Measure,
    look: Look,
    rivals: Rivals,
    rounds: int = ROUNDS,
    spare: Spare = lambda _arms: inf,
    screen: Screen = lambda _fixes, _stack: [],
) -> Found:
    """`rounds`: processes of an arm that are usually enough; twice as many where a gain shows that is not
    proven."""
    way = _Way(measure, rivals, rounds, spare, screen)
    try:
        way.go(look)
    except KeyboardInterrupt:  # between two trials: within one it is noted
        way.found.ended = "interrupted"
    return way.found


class _Todo(NamedTuple):
    """What one trial is to show."""

    tops: list[Candidate]  # on top of the stack
    doubts: list[str]  # fixes of the stack that must prove themselves

    def __bool__(self) -> bool:
        return bool(self.tops or self.doubts)


class _Way:
    def __init__(self, measure: Measure, rivals: Rivals, rounds: int, spare: Spare, screen: Screen) -> None:
        self.found = Found()
        self._measure, self._rivals, self._spare, self._screen = measure, rivals, spare, screen
        self._evidence = Evidence(rounds, self._is_a_way_to)
        self._tried: set[Stack] = set()
        self._never: set[Stack] = set()  # what failed, computes something else, or was put in and taken out
        self._replaced: set[str] = set()  # by another way to the same: they do not come back
        self._shown: set[str] = set()  # fixes that made the job faster by themselves
        self._needed: set[str] = set()  # others of the stack, without which it was not seen to be as good
        self._ways = SwitchWays()
        self._screened: dict[str, Screened] = {}  # on top of the stack

    def go(self, look: Look) -> None:
        found, view = self.found, self._looked(look)
        while view is not None:
            todo = _Todo(self._wanted(self._ways.first(view)), self._doubts())
            if not todo:
                found.ended = "nothing is left to try"
                return
            todo = self._that_fit(todo, view)
            if not todo:
                found.ended = TOO_SHORT
                return
            before = found.stack
            attempts, ended = self._stage(todo)
            found.stages.append(Stage(before, view, attempts))
            if ended:
                found.ended = ended
                return
            if found.stack != before:
                view = self._looked(look)
        found.ended = NO_LOOK

    def _looked(self, look: Look) -> View | None:
        """The job with the stack, and what a screening says of the fixes that are offered there."""
        view, found = look(self.found.stack), self.found
        if view is None:
            return None
        for one in view.candidates:
            self._evidence.note_candidate(one)
        if found.stack:
            self._allow_again(view)
        offered = [one for one in view.candidates if len(one.fixes) == 1 and self._may_be_tried(one, view)]
        told = self._screen([one.fixes[0] for one in offered], found.stack) if offered else []
        self._screened = {one.fix: one for one in told}
        found.screened += told
        return view

    def _wanted(self, view: View) -> list[Candidate]:
        """What a screening showed, as one stack; the stack that is predicted best, if there is one, another
        way to it, and the best fixes."""
        free = [one for one in self._without_idle(view) if self._may_be_tried(one, view)]
        together = self._together({one.fixes[0]: one for one in free if len(one.fixes) == 1})
        rest = [one for one in free if not self._is_gain(one.fixes)]
        stacks = [one for one in rest if len(one.fixes) > 1 and one.predicted.mid is not None]
        stacks.sort(key=lambda one: one.predicted.mid or 0.0)
        best = [one for one in stacks if self._is_a_way_to(stacks[0].fixes, one.fixes)][:MOST_STACKS]
        singles = self._one_way_each([one for one in rest if len(one.fixes) == 1])
        chosen = [one.fixes for one in (*best, *singles)][: max(AT_ONCE - len(together), 0)]
        wanted = [*together, *(one for one in rest if one.fixes in chosen)]
        return self._quick_first(wanted, free, view)

    def _quick_first(self, wanted: list[Candidate], free: list[Candidate], view: View) -> list[Candidate]:
        """Where some of those start slowly, as what compiles does, the best that does not goes before them:
        nobody knows whether they come to an end in time."""
        if not any(map(self._is_slow, wanted)):
            return wanted
        quick = [one for one in free if not self._is_slow(one)]
        quick = [*self._together({one.fixes[0]: one for one in quick if len(one.fixes) == 1}), *quick]
        best = max(quick, key=lambda one: self._gain(one, view), default=None)
        if best is None or self._gain(best, view) <= 0:
            return wanted
        return [best, *(one for one in wanted if one.fixes != best.fixes)]

    def _is_slow(self, one: Candidate) -> bool:
        return self._takes_s(self._with(one)) > LONGER * self._takes_s(self.found.stack)

    def _takes_s(self, stack: Stack) -> float:
        """Seconds of a process; all alike where no budget ends them."""
        left_s = self._spare([])
        return 1.0 if isinf(left_s) else left_s - self._spare([stack])

    def _without_idle(self, view: View) -> list[Candidate]:
        """Without fixes that cannot be made here, or were screened and gave nothing: the rest of a stack is
        predicted to give what the whole was."""
        found: dict[Stack, Candidate] = {}
        for one in view.candidates:
            left = tuple(name for name in one.fixes if not self._is_idle(name))
            if left:
                found.setdefault(left, replace(one, fixes=left))
        return list(found.values())

    def _is_idle(self, name: str) -> bool:
        said = self._screened.get(own_name(name))
        return name in self._evidence.dead or (said is not None and said.says == "no-gain")

    def _is_gain(self, fixes: Stack) -> bool:
        known = [self._screened.get(own_name(name)) for name in fixes]
        return all(one is not None and one.says == "gain" for one in known)

    def _together(self, singles: dict[str, Candidate]) -> list[Candidate]:
        """All that a screening showed to be a gain, of two ways to the same the better; where such a stack
        was tried and is not kept, its halves."""
        gains = [name for name in singles if self._is_gain((name,))]
        whole: Stack = ()
        for name in sorted(gains, key=lambda name: -self._screened[own_name(name)].ratio):
            whole += () if self._rivals(whole, name) else (name,)
        made = self._untried(whole)[:AT_ONCE]
        parts = [[singles[name] for name in one] for one in made]
        return [
            Candidate(stack, all(one.exact for one in of), stands_in=any(one.stands_in for one in of))
            for stack, of in zip(made, parts, strict=True)
        ]

    def _untried(self, stack: Stack) -> list[Stack]:
        if stack not in self._tried:
            return [stack] if stack else []
        half = len(stack) // 2
        return [*self._untried(stack[:half]), *self._untried(stack[half:])] if half else []

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
        """Fixes of the stack that nothing showed by themselves."""
        sure = self._shown | self._needed
        return [name for name in self.found.stack if name not in sure][: AT_ONCE - 1]

    def _that_fit(self, todo: _Todo, view: View) -> _Todo:
        """Those that there is time to prove, the most promising first: what is started and not proven is
        lost. What is left out is noted."""
        found, base = self.found, self.found.stack
        arms: list[Stack] = [(), base] if base else [()]
        arms += [()] if not found.stages else []
        found.untried, found.short_s = [], 0.0
        tops, doubts = [], []
        slow = [self._is_slow(one) for one in todo.tops]
        first = int(any(slow) and not slow[0])
        rest = sorted(todo.tops[first:], key=lambda one: self._promise(one, view), reverse=True)
        for one in (*todo.tops[:first], *rest):
            spare_s = self._spare([*arms, self._with(one)] * LEAST_SAMPLES)
            if spare_s < 0:
                found.short_s = found.short_s or -spare_s
                found.untried.append(one)
                continue
            tops.append(one.fixes)
            arms.append(self._with(one))
        for name in todo.doubts:
            without = tuple(one for one in base if one != name)
            if self._spare([*arms, without] * LEAST_SAMPLES) >= 0:
                doubts.append(name)
                arms.append(without)
        return _Todo([one for one in todo.tops if one.fixes in tops], doubts)

    def _promise(self, one: Candidate, view: View) -> float:
        """What it is said to gain per second of a process."""
        return self._gain(one, view) / (self._takes_s(self._with(one)) or 1.0)

    def _gain(self, one: Candidate, view: View) -> float:
        """The share of the step that it is said to take away, times how likely it takes any: by a screening
        where there was one, else by the prediction."""
        if self._is_gain(one.fixes):
            return 1.0 - 1.0 / prod(self._screened[own_name(name)].ratio for name in one.fixes)
        low, mid, high = one.predicted.low, one.predicted.mid, one.predicted.high
        step = view.step_ms or 0.0
        if mid is None or step <= 0:
            return 0.0
        chance = 1.0
        if low is not None and high is not None and high > low:
            chance = max(min((step - low) / (high - low), 1.0), 0.0)
        return (1.0 - mid / step) * chance

    def _stage(self, todo: _Todo) -> tuple[list[Attempt], str]:
        """Every candidate on top of the stack, and the stack without what is in doubt, beside the plain job;
        the first time also beside the plain job from another seed."""
        found, base = self.found, self.found.stack
        tops = {joined(self._with(one)): one for one in todo.tops}
        lacks = {f"{joined(base)} without {name}": name for name in todo.doubts}
        arms: dict[str, Stack] = {PLAIN: (), **({} if found.stages else {AGAIN: ()})}
        arms |= {joined(base): base} if base else {}
        arms |= {name: self._with(one) for name, one in tops.items()}
        arms |= {name: tuple(one for one in base if one != lack) for name, lack in lacks.items()}
        below, evidence = joined(base) if base else PLAIN, self._evidence
        trial = self._measure(arms, lambda trial, name: evidence.settled(trial, arms, below, name))
        found.seconds += trial.seconds
        evidence.note_trial(trial, arms)
        found.noise, found.plain_ms = evidence.noise, evidence.plain_ms
        left = {name: one for name, one in tops.items() if not trial.arms[name].samples}
        late = [one for name, one in left.items() if not evidence.is_spared(trial, arms, name)]
        found.untried += late
        tops = {name: one for name, one in tops.items() if trial.arms[name].samples}
        lacks = {name: one for name, one in lacks.items() if trial.arms[name].samples}
        made = {name: evidence.on_top(one, self._with(one), trial, name, below) for name, one in tops.items()}
        self._tried |= {one.fixes for one in todo.tops if one not in late}
        removed = self._removed(lacks, trial, below)
        for name, attempt in made.items():
            self._note(tops[name], attempt, trial.arms[name])
        if any(one.verdict == "faster" for one in made.values()):
            self._take_best(tops, made, trial, arms)
        else:
            self._drop_one(removed, todo.doubts)
        return [*made.values(), *(whole for whole, _ in removed)], EARLY.get(trial.ended, "")

    def _note(self, one: Candidate, attempt: Attempt, arm: Outcome) -> None:
        """What an attempt says of what may be tried after it."""
        if attempt.verdict in ("failed", "incorrect"):
            self._never.add(one.fixes)
        if attempt.verdict == "faster" and len(one.fixes) == 1:
            self._shown.add(one.fixes[0])
        self._ways.note(attempt, arm, self._shown.union(self.found.stack))

    def _take_best(
        self, tops: dict[str, Candidate], made: dict[str, Attempt], trial: Trial, arms: dict[str, Stack]
    ) -> None:
        found, attempts = self.found, list(made.values())
        proven = [one for one in attempts if one.verdict == "faster"]
        least = AS_GOOD * max(one.gain for one in proven)
        as_good = [one for one in proven if one.gain >= least]
        best = min(as_good, key=lambda one: (len(one.fixes), round(one.starts_s)))
        self._replaced |= set(found.stack) - set(best.fixes)
        found.stack, found.total = best.fixes, best
        self._shown |= self._shown_inside(best, attempts, trial, arms)
        self._shown |= {name for name in best.fixes if self._is_gain((name,))}
        # What is proven alone is tried again on top.
        self._tried -= {one.fixes for name, one in tops.items() if made[name].verdict == "faster"}

    def _removed(self, lacks: dict[str, str], trial: Trial, below: str) -> list[tuple[Attempt, Attempt]]:
        """The stack beside itself without each fix that is in doubt, and that rest beside the plain job."""
        found, evidence = [], self._evidence
        for name, lack in lacks.items():
            rest = tuple(one for one in self.found.stack if one != lack)
            without = evidence.judged(rest, trial.arms[name])
            whole = evidence.judged((*rest, lack), trial.arms[below])
            whole = evidence.beside(whole, trial.arms[name], trial.arms[below], joined(rest))
            if "failed" not in (whole.verdict, without.verdict):
                found.append((whole, without))
        return found

    def _drop_one(self, removed: list[tuple[Attempt, Attempt]], doubts: list[str]) -> None:
        """What the stack is no faster with goes, if the rest is proven by itself. One at a time: the others
        are looked at again without it. What could not be compared stays, as the stack with it is proven."""
        lacks = {whole.fixes[-1]: (whole, without) for whole, without in removed}
        self._shown |= {name for name, (whole, _) in lacks.items() if whole.verdict == "faster"}
        useless = [name for name, both in lacks.items() if _is_useless(*both)]
        if not useless:
            self._needed |= set(doubts)
            return
        _, rest = lacks[useless[0]]
        self._never.add((useless[0],))
        self._tried.add((useless[0],))
        self.found.stack, self.found.total = rest.fixes, rest

    def _shown_inside(
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
        return {one for one, base in fewer.items() if self._evidence.is_faster(base, runs[stack])}

    def _allow_again(self, view: View) -> None:
        """What was no gain before may be one now, if the job as it is now says so."""
        limit = WORTH_AGAIN * (view.step_ms or 0.0)
        self._tried -= {
            self._ways.live(one)
            for one in view.candidates
            if one.predicted.mid is not None
            and one.predicted.mid < limit
            and self._ways.live(one) not in self._never
        }


def _is_useless(whole: Attempt, without: Attempt) -> bool:
    return without.verdict == "faster" and whole.verdict in ("no-difference", "slower")
