"""The way to the fastest stack, on jobs whose steps are known: what each fix is worth, alone and together."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from itertools import chain, repeat

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from examples import drawn
from findwall.model.applied import Applied, AppliedFix
from findwall.model.arms import ArmReport, Around
from findwall.model.claims import Range
from findwall.trial.arms_in_turn import Ended, Failure, Outcome, Sample, Trial
from findwall.trial.judge import Plain, disturbed, judge
from findwall.trial.search import Settled, search
from findwall.trial.stacks_tried import AGAIN, PLAIN, TOO_SHORT, Candidate, Found, Stack, View

NOISE = (0.997, 1.0, 1.004)  # of three processes of one arm
LOSSES = [4.0, 3.0, 2.0, 1.0]


class Pretended:
    """A job of 100 ms; each fix makes it so many times faster, `wrong` ones with other losses."""

    def __init__(
        self, faster: dict[str, float], wrong: str = "", broken: str = "", ended: Ended = "done"
    ) -> None:
        self.faster, self.wrong, self.broken, self.ended = faster, wrong, broken, ended
        self.looked: list[Stack] = []
        self.trials: list[list[str]] = []

    def look(self, stack: Stack) -> View:
        self.looked.append(stack)
        left = sorted(
            (name for name in self.faster if name not in stack), key=lambda name: -self.faster[name]
        )
        return View("data / loader-starved", self.step(stack), [Candidate((name,), True) for name in left])

    def step(self, stack: Stack) -> float:
        step = 100.0
        for name in stack:
            step /= self.faster[name]
        return step

    def measure(self, arms: dict[str, Stack], _settled: Settled) -> Trial:
        self.trials.append(list(arms))
        return Trial({name: self.arm(name, stack) for name, stack in arms.items()}, self.ended, 1.0)

    def arm(self, name: str, stack: Stack) -> Outcome:
        if self.broken in stack:
            return Outcome(name, [Sample(0, 1.0, failure=Failure("out-of-memory", "no more"))])
        losses = [value * 1.5 for value in LOSSES] if self.wrong in stack else LOSSES
        seen = Applied({one: AppliedFix(seen=f"{one} is there") for one in stack})
        return Outcome(
            name,
            [
                Sample(
                    0, 1.0, self.step(stack) * off, report=ArmReport(self.step(stack), 10, losses, None, seen)
                )
                for off in NOISE
            ],
        )

    def rivals(self, stack: Stack, name: str) -> Stack:
        return tuple(one for one in stack if one == name)

    def search(self, **how: tuple[str, ...]) -> Found:
        return search(self.measure, self.look, self.rivals, **how)


@drawn(30)
@given(st.dictionaries(st.sampled_from("abcdef"), st.sampled_from([0.5, 0.999, 1.0, 1.2, 2.0]), max_size=6))
def test_what_is_proven_is_kept_and_nothing_else(faster: dict[str, float]) -> None:
    job = Pretended(faster)
    found = job.search()
    assert set(found.stack) == {name for name, times in faster.items() if times > 1.1}
    assert found.ended == "nothing is left to try"
    if found.stack:
        assert found.total is not None and found.total.fixes == found.stack
        assert found.total.faster is not None
        assert abs(found.total.faster.ratio - 100.0 / job.step(found.stack)) < 0.02 * found.total.faster.ratio
        assert job.looked[-1] == found.stack  # the wall that is left was looked at


def test_the_plain_job_is_in_every_trial_and_from_another_seed_in_the_first() -> None:
    job = Pretended({"a": 2.0, "b": 1.5})
    job.search()
    assert [trial[:2] for trial in job.trials] == [[PLAIN, AGAIN], [PLAIN, "a"]]


def test_a_fix_that_changes_the_losses_is_not_kept_however_fast() -> None:
    found = Pretended({"a": 3.0, "b": 1.5}, wrong="a").search()
    assert found.stack == ("b",)
    assert {one.fixes: one.verdict for one in found.stages[0].attempts}[("a",)] == "incorrect"


def test_a_fix_that_crashes_is_one_row_and_the_rest_goes_on() -> None:
    found = Pretended({"a": 3.0, "b": 1.5}, broken="a").search()
    first = {one.fixes: one for one in found.stages[0].attempts}
    assert found.stack == ("b",) and first[("a",)].verdict == "failed"
    assert "out-of-memory" in first[("a",)].why


@pytest.mark.parametrize(("times", "verdict"), [(1.5, "faster"), (1.0, "failed"), (0.8, "failed")])
def test_a_stand_in_shows_a_gain_or_nothing(times: float, verdict: str) -> None:
    """It costs time itself: that it is slow is no word about the edit."""

    class Shown(Pretended):
        def look(self, stack: Stack) -> View:
            seen = super().look(stack)
            shown = [Candidate(one.fixes, True, stands_in="b" in one.fixes) for one in seen.candidates]
            return View(seen.wall, seen.step_ms, shown)

    for faster in ({"b": times}, {"a": 2.0, "b": times}):  # beside the plain job, and on top of a stack
        found = Shown(faster).search()
        made = [one for stage in found.stages for one in stage.attempts if "b" in one.fixes]
        assert {one.verdict for one in made} == {verdict} and ("b" in found.stack) == (verdict == "faster")
        assert verdict == "faster" or "says nothing of the edit" in made[0].why


def test_a_fix_that_did_nothing_has_failed_whatever_the_clock_says() -> None:
    job = Pretended({"a": 1.0})
    plain = Plain([100.0, 100.0], [LOSSES], [LOSSES])
    found = judge(("a",), job.arm("a", ()), plain, True, 0.01)
    assert found.verdict == "failed" and found.why == "a did not take effect"


class Beside(Pretended):
    """Fixes of which some take effect only beside others: what each of `needs` names."""

    def __init__(self, faster: dict[str, float], offered: list[Candidate], **needs: str) -> None:
        super().__init__(faster)
        self.offered, self.needs = offered, needs

    def look(self, stack: Stack) -> View:
        left = [one for one in self.offered if not set(one.fixes) <= set(stack)]
        return View("data", self.step(stack), left)

    def rivals(self, stack: Stack, name: str) -> Stack:
        return tuple(one for one in stack if one.lower() == name.lower())

    def step(self, stack: Stack) -> float:
        return super().step(tuple(one for one in stack if self.does(one, stack)))

    def does(self, name: str, stack: Stack) -> bool:
        return name not in self.needs or self.needs[name] in stack

    def measure(self, arms: dict[str, Stack], settled: Settled) -> Trial:
        trial = Trial({name: Outcome(name) for name in arms})
        for name, stack in arms.items():
            if not settled(trial, name):
                trial.arms[name] = made = self.arm(name, stack)
                for one in made.samples:
                    assert one.report is not None
                    for fix in [fix for fix in stack if not self.does(fix, stack)]:
                        one.report.applied.fixes.pop(fix, None)
        self.trials.append([name for name, arm in trial.arms.items() if arm.samples])
        return trial


def offered(**predicted: float) -> list[Candidate]:
    return [Candidate(tuple(name.split("_")), True, Range(mid=mid)) for name, mid in predicted.items()]


def test_what_did_nothing_in_a_stack_spares_the_other_way_to_it() -> None:
    job = Beside({"a": 2.0, "A": 2.0, "b": 1.5}, offered(a=50, a_b=30, A_b=30), b="nothing")
    found = job.search()
    assert found.stack == ("a",) and found.untried == []
    assert job.trials[0] == [PLAIN, AGAIN, "a", "a + b"]
    assert found.stages[0].attempts[1].why == "b did not take effect"


def test_what_does_nothing_alone_is_tried_beside_others_all_the_same() -> None:
    job = Beside({"x": 1.2, "y": 1.5}, offered(y=60, x=80, x_y=50), y="x")
    assert set(job.search().stack) == {"x", "y"}


def test_a_fix_that_needs_another_leaves_the_stack_without_a_third_to_be_measured() -> None:
    job = Beside({"x": 1.2, "u": 1.0, "y": 1.5}, offered(x_u_y=50), y="x")
    assert set(job.search().stack) == {"x", "y"}


def test_what_was_measured_before_the_budget_ended_counts() -> None:
    found = Pretended({"a": 2.0, "b": 1.5}, ended="deadline").search()
    assert found.stack == ("a",) and found.ended == "the budget is spent"


def test_what_was_never_started_is_no_row() -> None:
    class Short(Pretended):
        def arm(self, name: str, stack: Stack) -> Outcome:
            return Outcome(name) if "b" in stack else super().arm(name, stack)

    found = Short({"a": 2.0, "b": 1.5}, ended="deadline").search()
    assert [one.fixes for one in found.stages[0].attempts] == [("a",)] and found.noise is not None
    assert [one.fixes for one in found.untried] == [("b",)]
    assert Pretended({"a": 2.0, "b": 1.5}).search().untried == []


class Budget(Pretended):
    """Of so many processes in all; each takes a second, with `slow` made three."""

    def __init__(self, faster: dict[str, float], processes: float, slow: str = "") -> None:
        super().__init__(faster)
        self.left, self.slow = processes, slow

    def look(self, stack: Stack) -> View:
        seen = super().look(stack)
        steps = [replace(one, predicted=Range(mid=self.step(one.fixes))) for one in seen.candidates]
        return View(seen.wall, seen.step_ms, steps)

    def spare(self, arms: Sequence[Stack]) -> float:
        return self.left - sum(3.0 if self.slow in stack else 1.0 for stack in arms)

    def measure(self, arms: dict[str, Stack], settled: Settled) -> Trial:
        self.left = self.spare(2 * list(arms.values()))
        return super().measure(arms, settled)

    def search(self, **_how: tuple[str, ...]) -> Found:
        return search(self.measure, self.look, self.rivals, spare=self.spare)


def test_what_there_is_no_time_to_prove_is_not_started() -> None:
    job = Budget({"a": 2.0, "b": 1.5, "c": 1.2}, processes=8)
    found = job.search()
    assert job.trials == [[PLAIN, AGAIN, "a", "b"]] and job.left == 0
    assert found.stack == ("a",) and found.ended == TOO_SHORT
    assert [one.fixes for one in found.untried] == [("b",), ("c",)] and found.short_s == 6.0


def test_what_takes_too_long_leaves_the_time_to_what_does_not() -> None:
    job = Budget({"a": 2.0, "b": 1.5}, processes=9, slow="a")
    found = job.search()
    assert job.trials == [[PLAIN, AGAIN, "b"]] and found.stack == ("b",)
    assert [one.fixes for one in found.untried] == [("a",)]


def test_a_budget_for_no_trial_at_all_is_not_spent() -> None:
    found = Budget({"a": 2.0, "b": 1.5}, processes=5.5).search()
    assert found.stages == [] and found.ended == TOO_SHORT and found.short_s == 0.5
    assert [one.fixes for one in found.untried] == [("a",), ("b",)]


@pytest.mark.parametrize(("processes", "arms"), [(14.0, True), (13.0, False)])
def test_a_fix_in_doubt_is_proven_where_there_is_time(processes: float, arms: bool) -> None:
    class Both(Budget):
        def look(self, stack: Stack) -> View:
            seen = super().look(stack)
            pair = Candidate(("a", "b"), True, Range(mid=50.0))
            return View(seen.wall, seen.step_ms, [pair] if not stack else [])

    job = Both({"a": 2.0, "b": 1.0}, processes)
    found = job.search()
    lacking = ["a + b without a", "a + b without b"]
    assert [lacking[0] in job.trials[-1], lacking[1] in job.trials[-1]] == [True, arms]
    assert found.stack == (("a",) if arms else ("a", "b"))


def test_what_was_interrupted_asks_for_no_more_time() -> None:
    class Cut(Pretended):
        def measure(self, arms: dict[str, Stack], settled: Settled) -> Trial:
            trial = super().measure(arms, settled)
            trial.arms["a"].samples, trial.ended = trial.arms["a"].samples[:1], "interrupted"
            return trial

    (once,) = Cut({"a": 2.0}).search().stages[0].attempts
    assert "too few to prove anything: it was interrupted" in once.why and "--budget" not in once.why


def test_one_process_proves_nothing_and_no_likeness_either() -> None:
    job = Pretended({"a": 4.0})
    once = Outcome("a", job.arm("a", ("a",)).samples[:1])
    found = judge(("a",), once, Plain([100.0, 101.0], [LOSSES], [LOSSES]), True, 0.01)
    assert found.verdict == "failed" and found.step_ms == pytest.approx(25.0, rel=0.01)
    assert found.why.startswith(
        "not settled, as 1 process of it told a step, too few to prove anything: --repeat"
    )


def test_what_may_still_be_a_gain_is_called_unsettled() -> None:
    plain = Plain([100.0, 100.3, 100.6, 101.0], [LOSSES], [LOSSES])

    def told(*steps: float) -> str:
        seen = Applied({"a": AppliedFix(seen="a is there")})
        samples = [Sample(0, 1.0, step, report=ArmReport(step, 10, LOSSES, None, seen)) for step in steps]
        found = judge(("a",), Outcome("a", samples), plain, True, 0.01)
        assert found.verdict == "no-difference"
        return found.why

    assert "not settled, it may be up to" in told(95.0, 98.0, 101.0)
    assert "per step and its own 60.0 ms to 100 ms: --repeat" in told(60.0, 100.0)
    assert told(100.0, 100.4, 100.9) == "a is there"


def test_what_is_slower_by_less_than_the_noise_is_told_so() -> None:
    seen = Applied({"a": AppliedFix(seen="a is there")})
    samples = [Sample(0, 1.0, ms, report=ArmReport(ms, 10, LOSSES, None, seen)) for ms in (156, 157, 156.5)]
    plain = Plain([100.0, 100.3, 100.6, 101.0], [LOSSES], [LOSSES])
    found = judge(("a",), Outcome("a", samples), plain, True, 0.8)
    assert found.verdict == "no-difference"
    assert found.why.startswith("no more than the 80 % that two plain arms may differ by")
    faster = [Sample(0, 1.0, ms, report=ArmReport(ms, 10, LOSSES, None, seen)) for ms in (61, 62, 61.5)]
    found = judge(("a",), Outcome("a", faster), plain, True, 0.8)
    assert found.verdict == "no-difference"
    assert found.why.startswith("not settled, no more than the 80 % that two plain arms may differ by: --rep")


def test_a_job_with_nothing_to_gain_is_told_so() -> None:
    found = Pretended({}).search()
    assert found.stack == () and found.stages == [] and found.ended == "nothing is left to try"


class Stacked(Pretended):
    """A look that also offers what is predicted best together; no fix is a gain by itself but `a`."""

    def look(self, stack: Stack) -> View:
        view = super().look(stack)
        left = tuple(one.fixes[0] for one in view.candidates)
        if len(left) < 2:
            return view
        predicted = Range(mid=self.step((*stack, *left)))
        return View(view.wall, view.step_ms, [*view.candidates, Candidate(left, True, predicted)])


def test_a_stack_that_is_predicted_best_is_tried_at_once() -> None:
    job = Stacked({"a": 2.0, "b": 1.5, "c": 1.2})
    found = job.search()
    assert set(found.stack) == {"a", "b", "c"}
    assert "a + b + c" in job.trials[0]


def test_a_stack_and_what_it_stands_on_in_one_trial_prove_the_rest() -> None:
    job = Stacked({"a": 2.0, "b": 1.5})
    assert set(job.search().stack) == {"a", "b"} and len(job.trials) == 1


def test_a_fix_that_came_with_a_stack_must_prove_itself() -> None:
    job = Stacked({"a": 2.0, "b": 1.5, "c": 1.0})
    found = job.search()
    assert set(found.stack) == {"a", "b"}
    assert any("a + b + c without c" in trial for trial in job.trials)
    assert found.total is not None and found.total.faster is not None
    assert abs(found.total.faster.ratio - 3.0) < 0.05


class Needed(Stacked):
    """`b` gives nothing beside `a`, and `a` does not go without it: `how` it fails then."""

    def __init__(self, how: str) -> None:
        super().__init__({"a": 2.0, "b": 1.0})
        self.how = how

    def look(self, stack: Stack) -> View:
        offered = [] if stack else [Candidate(("a", "b"), True, Range(mid=50.0))]
        return View("data / loader-starved", self.step(stack), offered)

    def arm(self, name: str, stack: Stack) -> Outcome:
        if stack != ("a",):
            return super().arm(name, stack)
        made = super().arm(name, stack)
        if self.how == "crashes":
            return Outcome(name, [Sample(0, 1.0, failure=Failure("out-of-memory", "no more"))])
        if self.how == "wrong":
            made.samples = [
                replace(one, report=replace(one.report, losses=[9.0, 9.0, 9.0, 9.0])) for one in made.samples
            ]
        return Outcome(name, made.samples[:1]) if self.how == "cut off" else made


@pytest.mark.parametrize("how", ["crashes", "wrong", "cut off"])
def test_a_fix_stays_where_the_stack_is_not_proven_without_it(how: str) -> None:
    found = Needed(how).search()
    assert found.stack == ("a", "b") and found.ended == "nothing is left to try"
    assert found.total is not None and found.total.verdict == "faster" and found.total.fixes == ("a", "b")


def test_a_fix_goes_where_the_stack_is_proven_without_it() -> None:
    found = Needed("goes").search()
    assert found.stack == ("a",)
    assert found.total is not None and found.total.verdict == "faster" and found.total.fixes == ("a",)


def test_a_verdict_on_top_of_a_stack_comes_with_its_own_figures() -> None:
    class Later(Pretended):
        def look(self, stack: Stack) -> View:
            offered = {(): "a", ("a",): "b"}.get(stack, "")
            return View("data", self.step(stack), [Candidate((one,), True) for one in offered])

    found = Later({"a": 2.0, "b": 1.0}).search()
    (on_top,) = found.stages[1].attempts
    assert (on_top.fixes, on_top.verdict, on_top.base) == (("a", "b"), "no-difference", "a")
    assert on_top.faster is not None and on_top.faster.low > 1.9  # beside the plain job
    assert on_top.on_base is not None and on_top.on_base.low < 1.0 < on_top.on_base.high
    assert found.stages[0].attempts[0].base == "" and found.stages[0].attempts[0].on_base is None


def test_what_was_not_compared_with_the_stack_below_is_not_called_alike() -> None:
    class Cut(Pretended):
        def measure(self, arms: dict[str, Stack], settled: Settled) -> Trial:
            trial = super().measure(arms, settled)
            if len(self.trials) == 2:
                trial.arms["a"].samples, trial.ended = trial.arms["a"].samples[:1], "deadline"
            return trial

    found = Cut({"a": 2.0, "b": 1.5}).search()
    (on_top,) = found.stages[1].attempts
    assert on_top.verdict == "failed" and on_top.why.startswith("not settled, as 1 process of a")
    assert found.stack == ("a",)


class TwoWays(Pretended):
    """`a` and `A` are two ways to the same; `A` gives no more than `a` alone, and more on top of `b`."""

    def rivals(self, stack: Stack, name: str) -> Stack:
        return tuple(one for one in stack if one.lower() == name.lower())

    def step(self, stack: Stack) -> float:
        return super().step(stack) / (2.0 if {"A", "b"} <= set(stack) else 1.0)

    def look(self, stack: Stack) -> View:
        view = super().look(stack)
        others = [name for name in self.faster if name not in stack]

        def with_it(name: str) -> float:
            return self.step((*(one for one in stack if one not in self.rivals(stack, name)), name))

        offered = [Candidate((name,), True, Range(mid=with_it(name))) for name in others]
        return View(view.wall, view.step_ms, offered)


def test_another_way_to_the_same_takes_its_place_where_a_look_says_so() -> None:
    job = TwoWays({"a": 2.1, "A": 2.0, "b": 1.5})
    found = job.search()
    assert set(found.stack) == {"A", "b"} and found.ended == "nothing is left to try"
    assert not any({"a", "A"} <= set(name.split(" + ")) for trial in job.trials for name in trial)


def test_of_two_ways_the_better_one_is_tried_first_and_the_other_if_it_fails() -> None:
    job = TwoWays({"a": 2.1, "A": 2.0})
    assert job.search().stack == ("a",) and not any("A" in trial for trial in job.trials)
    job = TwoWays({"a": 2.1, "A": 2.0})
    job.broken = "a"
    assert job.search().stack == ("A",) and "A" not in job.trials[0]


def test_two_ways_that_give_the_same_are_not_changed_for_each_other() -> None:
    job = TwoWays({"a": 2.0, "A": 2.0})
    assert len(job.search().stack) == 1 and len(job.trials) == 1


class BothWays(TwoWays):
    """A look that also offers both ways together with `b`, predicted alike, the first a little longer."""

    def look(self, stack: Stack) -> View:
        view = super().look(stack)
        if stack:
            return view
        stacks = [Candidate((way, "b"), True, Range(mid=mid)) for way, mid in (("a", 33.0), ("A", 32.5))]
        return View(view.wall, view.step_ms, [*view.candidates, *stacks])


def test_both_ways_to_a_stack_are_tried_at_once_where_they_are_predicted_alike() -> None:
    job = BothWays({"a": 2.1, "A": 2.0, "b": 1.5})
    assert job.search().stack == ("A", "b")
    # `b` is proven by what it adds to `a`, and `A` by what is lost without it.
    assert job.trials == [[PLAIN, AGAIN, "a", "a + b", "A + b"], [PLAIN, "A + b", "A + b without A"]]


def test_of_stacks_that_are_as_good_the_first_is_kept() -> None:
    job = BothWays({"a": 2.0, "A": 1.003, "b": 1.5})  # A + b: half a percent faster than a + b
    found = job.search()
    assert found.stack == ("a", "b") and len(found.stages[0].attempts) == 3


def test_of_what_is_as_good_that_is_kept_which_starts_sooner() -> None:
    class Slow(Pretended):
        def arm(self, name: str, stack: Stack) -> Outcome:
            made = super().arm(name, stack)
            made.samples = [replace(one, seconds=30.0 if "a" in stack else 5.0) for one in made.samples]
            return made

        def rivals(self, stack: Stack, name: str) -> Stack:
            return tuple(one for one in stack if {one, name} <= {"a", "b"})

    assert Slow({"a": 2.004, "b": 2.0}).search().stack == ("b",)
    assert Slow({"a": 2.2, "b": 2.0}).search().stack == ("a",)


def test_another_way_that_fails_leaves_the_stack_to_the_first() -> None:
    job = BothWays({"a": 2.1, "A": 2.0, "b": 1.5})
    job.broken = "A"
    assert job.search().stack == ("a", "b")


@pytest.mark.parametrize(("alone", "kept"), [(100 / 1.5, "Ab"), (49.0, "b")])
def test_a_way_is_not_proven_by_what_another_is_alone(alone: float, kept: str) -> None:
    """`a` is faster alone; that `A + b` is no slower than `a + b` may be all `b`'s doing."""
    steps = {"a": 66.0, "ab": 50.0, "Ab": 49.0, "b": alone}

    class Known(BothWays):
        def step(self, stack: Stack) -> float:
            return steps.get("".join(sorted(stack)), super().step(stack))

    assert Known({"a": 1.5, "A": 1.5, "b": 1.5}).search().stack == tuple(kept)


def test_a_way_that_computes_something_else_says_nothing_of_the_rest() -> None:
    class Wrong(BothWays):
        def step(self, stack: Stack) -> float:
            return {("a", "b"): 45.0, ("A", "b"): 40.0, ("A",): 40.0}.get(stack, super().step(stack))

        def arm(self, name: str, stack: Stack) -> Outcome:
            self.wrong = "b" if stack == ("a", "b") else ""
            return super().arm(name, stack)

    assert Wrong({"a": 2.0, "A": 2.0, "b": 1.0}).search().stack == ("A",)


def test_a_way_that_did_not_get_through_says_nothing_of_the_other() -> None:
    class Crashing(BothWays):
        def arm(self, name: str, stack: Stack) -> Outcome:
            if stack == ("a", "b"):
                return Outcome(name, [Sample(0, 1.0, failure=Failure("out-of-memory", "no more"))])
            return super().arm(name, stack)

    job = Crashing({"a": 2.1, "A": 2.0, "b": 1.5})
    assert job.search().stack == ("A", "b")
    assert {"A + b without A", "A + b without b"} <= set(job.trials[1])  # both prove themselves


def test_what_else_changed_is_said() -> None:
    plain, hot = Around(clock_mhz=1980.0), Around(clock_mhz=1600.0, neighbours=2, others_busy=3.5)
    said = disturbed([plain, plain], [hot])
    assert said.startswith("the clocks were 19 % lower") and "2 other processes used the device" in said
    assert "3.5 cores busy" in said and disturbed([plain], [plain]) == disturbed([], [Around()]) == ""


class Noisy(Pretended):
    """Its processes vary; a trial goes on until nothing asks for more, as the real one does."""

    def __init__(
        self, faster: dict[str, float], spread: float, seed: int, with_fixes: float | None = None
    ) -> None:
        super().__init__(faster)
        self.spread, self.dice = spread, random.Random(seed)
        self.with_fixes = spread if with_fixes is None else with_fixes

    def measure(self, arms: dict[str, Stack], settled: Settled) -> Trial:
        trial = Trial({name: Outcome(name) for name in arms})
        for _ in range(6):
            for name, stack in arms.items():
                if not settled(trial, name):
                    spread = self.with_fixes if stack else self.spread
                    step = self.step(stack) * math.exp(self.dice.gauss(0.0, spread))
                    seen = Applied({one: AppliedFix(seen="there") for one in stack})
                    report = ArmReport(step, 10, LOSSES, None, seen)
                    trial.arms[name].samples.append(Sample(0, 1.0, step, report=report))
        return trial


@pytest.mark.parametrize(("spread", "with_fixes"), [(0.002, 0.002), (0.05, 0.05), (0.005, 0.1)])
def test_two_arms_that_are_alike_are_not_told_apart(spread: float, with_fixes: float) -> None:
    wrong = sum(Noisy({"a": 1.0}, spread, seed, with_fixes).search().stack != () for seed in range(100))
    assert wrong <= 4  # 1 % are expected, and 2 % where one is much noisier than the other


def test_a_seed_that_changes_the_step_is_no_gain_and_no_loss() -> None:
    """The plain job takes 10 % longer from the other seed."""

    class Seeded(Pretended):
        def arm(self, name: str, stack: Stack) -> Outcome:
            made = super().arm(name, stack)
            longer = 1.1 if name == AGAIN else 1.0
            made.samples = [replace(one, step_ms=longer * (one.step_ms or 0.0)) for one in made.samples]
            return made

    found = Seeded({"a": 1.05}).search()
    assert found.stack == () and found.noise == pytest.approx(0.1, abs=0.01)
    found = Seeded({"a": 1.5}).search()
    assert found.total is not None and found.total.faster is not None
    assert found.total.faster.ratio == pytest.approx(1.5, rel=0.02)  # beside those of its own seed


def test_three_percent_are_found_where_processes_vary_by_one() -> None:
    assert sum(Noisy({"a": 1.03}, 0.01, seed).search().stack == ("a",) for seed in range(60)) >= 57


def test_what_is_clear_needs_few_processes() -> None:
    job = Noisy({"a": 2.0, "b": 0.5}, 0.002, 1)
    arms: dict[str, Stack] = {PLAIN: (), AGAIN: (), "a": ("a",), "b": ("b",)}
    seen: list[Trial] = []

    def measure(these: dict[str, Stack], settled: Settled) -> Trial:
        seen.append(job.measure(these, settled))
        return seen[-1]

    search(measure, job.look, lambda stack, name: name in stack)
    assert {name: len(arm.samples) for name, arm in seen[0].arms.items()} == dict.fromkeys(arms, 2)


def test_a_gain_goes_on_until_it_is_beyond_what_two_plain_arms_differ_by() -> None:
    """The first plain processes differ by so much that a clear gain is within it."""

    class Unsteady(Noisy):
        def __init__(self) -> None:
            super().__init__({"a": 1.0}, 0.0, 1)
            self.plain = chain([52.1, 51.7, 72.5, 58.5], repeat(52.0))  # of either seed, in turn
            self.fixed = chain([25.4, 31.7], repeat(26.0))

        def step(self, stack: Stack) -> float:
            return next(self.fixed if stack else self.plain)

        def look(self, stack: Stack) -> View:
            return View("data", 52.0, [Candidate(("a",), True)] if not stack else [])

    found = Unsteady().search()
    assert found.stack == ("a",) and found.noise is not None and found.noise < 0.8


class Drawing(Pretended):
    """A job whose dataset draws at random, and losses that are others with each seed, and with workers."""

    def __init__(self, draws: bool, order: list[list[int]], unseen: bool = False) -> None:
        super().__init__({"workers": 2.0})
        self.draws, self.order, self.unseen = draws, order, unseen

    def look(self, stack: Stack) -> View:
        left = [] if stack else [Candidate(("workers",), True, redraws=True)]
        return View("data / loader-starved", self.step(stack), left)

    def arm(self, name: str, stack: Stack) -> Outcome:
        found = super().arm(name, stack)
        off = 1.05 if stack else 1.06 if name == AGAIN else 1.0
        order = self.order if stack else [[1, 2, 3]]

        def told(one: Sample) -> Sample:
            assert one.report is not None
            losses = [value * off for value in LOSSES]
            draws = self.draws and not stack  # a plain process is enough
            unseen = self.unseen
            return replace(
                one, report=replace(one.report, losses=losses, draws=draws, unseen=unseen, order=order)
            )

        return replace(found, samples=[told(one) for one in found.samples])


@pytest.mark.parametrize(
    ("draws", "order", "verdict"),
    [
        (True, [[1, 2, 3, 4]], "faster"),  # workers are asked for batches ahead
        (True, [[1, 3, 2]], "incorrect"),
        (True, [], "incorrect"),
        (False, [[1, 2, 3]], "incorrect"),
    ],
)
def test_a_dataset_that_draws_draws_other_numbers_in_workers(
    draws: bool, order: list[list[int]], verdict: str
) -> None:
    (first, *_) = Drawing(draws, order).search().stages
    (made,) = first.attempts
    assert made.verdict == verdict
    assert ("in the same order" in made.why) == (verdict == "faster")


@pytest.mark.parametrize(
    ("unseen", "order", "verdict"),
    [(True, [[1, 2, 3]], "faster"), (True, [[1, 3, 2]], "incorrect"), (False, [[1, 2, 3]], "incorrect")],
)
def test_where_nobody_saw_whether_it_draws_it_is_said(
    unseen: bool, order: list[list[int]], verdict: str
) -> None:
    """Losses as near as two seeds are no fault then, as long as the samples come in their order."""
    ((made,), *_) = (stage.attempts for stage in Drawing(False, order, unseen).search().stages)
    assert made.verdict == verdict and ("nobody saw" in made.why) is (verdict == "faster")


@pytest.mark.parametrize(
    ("path", "advice"),
    [("ck.pt", ": --sandbox-dir DIR runs each"), ("/data/ck.pt", ": let the job write it")],
)
@pytest.mark.parametrize(("wrong", "verdict"), [("a", "failed"), ("", "faster")])
def test_processes_that_go_on_from_each_other_prove_no_fix_wrong(
    path: str, advice: str, wrong: str, verdict: str
) -> None:
    job = Pretended({"a": 2.0}, wrong)

    def resumed(name: str, stack: Stack) -> Outcome:
        found = Pretended.arm(job, name, stack)
        samples = [replace(one, report=replace(one.report, read_back=[path])) for one in found.samples]
        return replace(found, samples=samples)

    job.arm = resumed  # type: ignore[method-assign]
    (made,) = job.search().stages[0].attempts
    assert made.verdict == verdict
    assert made.why.startswith(
        f"its processes read {path}, which earlier processes of the trial wrote{advice}"
    )
