"""The way to the fastest stack, on jobs whose steps are known: what each fix is worth, alone and together."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from examples import drawn
from findwall.model.applied import Applied, AppliedFix
from findwall.model.arms import ArmReport
from findwall.verify.judge import judge
from findwall.verify.search import AGAIN, PLAIN, Candidate, Found, Stack, View, search
from findwall.verify.trial import Ended, Failure, Outcome, Sample, Trial

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
        return View("data / loader-starved", self.step(stack), [Candidate(name, True) for name in left])

    def step(self, stack: Stack) -> float:
        step = 100.0
        for name in stack:
            step /= self.faster[name]
        return step

    def measure(self, arms: dict[str, Stack]) -> Trial:
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

    def search(self, **how: tuple[str, ...]) -> Found:
        return search(self.measure, self.look, lambda stack, name: name in stack, **how)


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


def test_every_trial_has_the_plain_job_twice() -> None:
    job = Pretended({"a": 2.0, "b": 1.5})
    job.search()
    assert all(trial[:2] == [PLAIN, AGAIN] for trial in job.trials)


def test_a_fix_that_changes_the_losses_is_not_kept_however_fast() -> None:
    found = Pretended({"a": 3.0, "b": 1.5}, wrong="a").search()
    assert found.stack == ("b",)
    assert {one.fixes: one.verdict for one in found.stages[0].attempts}[("a",)] == "incorrect"


def test_a_fix_that_crashes_is_one_row_and_the_rest_goes_on() -> None:
    found = Pretended({"a": 3.0, "b": 1.5}, broken="a").search()
    first = {one.fixes: one for one in found.stages[0].attempts}
    assert found.stack == ("b",) and first[("a",)].verdict == "failed"
    assert "out-of-memory" in first[("a",)].why


def test_a_fix_that_did_nothing_has_failed_whatever_the_clock_says() -> None:
    job = Pretended({"a": 1.0})
    plain, fixed = job.arm(PLAIN, ()), job.arm("a", ())
    found = judge(("a",), fixed, plain, plain, True, 0.01)
    assert found.verdict == "failed" and found.why == "a did not take effect"


def test_what_was_measured_before_the_budget_ended_counts() -> None:
    found = Pretended({"a": 2.0, "b": 1.5}, ended="deadline").search()
    assert found.stack == ("a",) and found.ended == "the budget is spent"


def test_only_what_a_person_names_is_tried() -> None:
    assert Pretended({"a": 2.0, "b": 1.5}).search(only=("b",)).stack == ("b",)


def test_a_job_with_nothing_to_gain_is_told_so() -> None:
    found = Pretended({}).search()
    assert found.stack == () and found.stages == [] and found.ended == "nothing is left to try"
