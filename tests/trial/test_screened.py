"""What a screening says of a fix, and what the search makes of that."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from findwall.model.arms import ScreenedFix
from findwall.model.claims import Range
from findwall.trial.arms_in_turn import Outcome, Sample
from findwall.trial.screened import FEWEST_PAIRS, Screened, screened
from findwall.trial.search import search
from findwall.trial.stacks_tried import AGAIN, PLAIN, Candidate, Found, Stack, View
from findwall.trial.statistics import Comparison
from trial.test_search import Pretended

NOISE = (0.995, 1.0, 1.005, 1.002)


def blocks(times: float, noise: Sequence[float] = NOISE) -> ScreenedFix:
    return ScreenedFix("a", [(100.0, 100.0 / times * off) for off in noise], seen="there")


@pytest.mark.parametrize(
    ("times", "noise", "says"),
    [
        (1.5, NOISE, "gain"),
        (1.03, NOISE, "gain"),
        (1.0, NOISE, "no-gain"),
        (0.7, NOISE, "no-gain"),
        (1.0, (0.8, 1.0, 1.2, 1.1), "open"),  # it could have hidden a gain
        (1.5, NOISE[: FEWEST_PAIRS - 1], "open"),
    ],
)
def test_what_is_no_gain_is_told_from_what_was_not_seen(
    times: float, noise: Sequence[float], says: str
) -> None:
    assert screened(blocks(times, noise)).says == says


def test_the_smallest_gain_it_could_have_seen_grows_with_the_noise() -> None:
    calm, wild = screened(blocks(1.0)), screened(blocks(1.0, (0.8, 1.0, 1.2, 1.1)))
    assert calm.could_see is not None and wild.could_see is not None
    assert 0.005 < calm.could_see < 0.05 < wild.could_see
    assert calm.faster is not None and calm.faster.low < 1.0 < calm.faster.high


def test_what_did_nothing_while_the_job_ran_may_do_something_from_its_start() -> None:
    told = screened(ScreenedFix("a", [(100.0, 50.0)] * 4, trouble="nothing shows that it took effect"))
    assert told.says == "open" and not told.took_effect and "took effect" in told.trouble


def test_what_a_screening_could_not_show_says_why_and_what_can() -> None:
    cut = screened(ScreenedFix("tf32", [(100.0, 50.0)], seen="TF32 is on at the end"))
    assert cut.says == "open" and cut.trouble.startswith("the job ended before enough steps")
    by_hand = ScreenedFix("sdpa", [(100.0, 100.0)] * 4, trouble="attention that a job writes out")
    assert screened(by_hand).trouble == by_hand.trouble
    assert screened(by_hand, "sdpa", "--flash 1").trouble.startswith("not while the job runs: --flash 1 sets")
    broken = ScreenedFix("bf16", [(100.0, 50.0)] * 4, "there", "its loss was not finite")
    assert screened(broken, "bf16", "--dtype bf16").trouble == broken.trouble


class Screening(Pretended):
    """A job whose fixes are screened before they are tried; `hides`: what a screening gets wrong."""

    def __init__(self, faster: dict[str, float], live: str, wrong: str = "", **hides: float) -> None:
        super().__init__(faster, wrong)
        self.live, self.hides = live, hides
        self.asked: list[tuple[list[str], Stack]] = []

    def screen(self, fixes: Sequence[str], stack: Stack) -> list[Screened]:
        self.asked.append((list(fixes), stack))
        return [self.says(name) for name in fixes if name in self.live]

    def says(self, name: str) -> Screened:
        ratio = self.hides.get(name, self.faster[name])
        says = "gain" if ratio > 1.01 else "no-gain"
        return Screened(name, says, Comparison(ratio, ratio, ratio, (4, 4)), 0.01, "there")

    def search(self, **_how: tuple[str, ...]) -> Found:
        return search(self.measure, self.look, self.rivals, screen=self.screen)


def test_what_is_screened_is_proven_as_one_stack() -> None:
    job = Screening({"a": 2.0, "b": 1.5, "c": 1.0, "d": 0.8}, live="abcd")
    found = job.search()
    assert job.trials == [[PLAIN, AGAIN, "a + b"]] and found.stack == ("a", "b")
    assert [one.fix for one in found.screened[:4]] == ["a", "b", "c", "d"]
    assert job.asked[1][1] == ("a", "b")  # the rest is screened anew on top of it


def test_a_stack_that_is_not_proven_goes_by_halves() -> None:
    job = Screening({"a": 2.0, "b": 1.5, "c": 1.2, "d": 1.1}, live="abcd", wrong="b")
    found = job.search()
    assert job.trials[:2] == [[PLAIN, AGAIN, "a + b + c + d"], [PLAIN, "a + b", "c + d"]]
    assert set(found.stack) == {"a", "c", "d"}


def test_what_cannot_be_screened_is_tried_beside_it_as_it_is_predicted() -> None:
    job = Screening({"a": 2.0, "b": 1.5, "x": 1.3}, live="ab")
    assert set(job.search().stack) == {"a", "b", "x"}
    assert job.trials[0] == [PLAIN, AGAIN, "a + b", "x"]


def test_a_screening_that_is_wrong_proves_nothing() -> None:
    job = Screening({"a": 1.0, "b": 1.0}, live="ab", a=2.0, b=1.5)
    found = job.search()
    assert found.stack == () and {one.verdict for one in found.stages[0].attempts} == {"no-difference"}


def test_a_predicted_stack_goes_without_what_gave_nothing() -> None:
    class Predicting(Screening):
        def look(self, stack: Stack) -> View:
            made = [("a", "x"), ("a",), ("x",)] if not stack else []
            return View("data", self.step(stack), [Candidate(one, True, Range(mid=50.0)) for one in made])

    job = Predicting({"a": 1.0, "x": 2.0}, live="a")
    assert job.search().stack == ("x",)
    assert job.trials == [[PLAIN, AGAIN, "x"]]


def test_what_cannot_be_made_in_this_job_is_in_no_later_arm() -> None:
    class Refused(Pretended):
        def look(self, stack: Stack) -> View:
            made = [("a",), ("b",), ("a", "c"), ("a", "b")]
            left = [one for one in made if not set(one) <= set(stack)]
            return View("data", 100.0, [Candidate(one, True, Range(mid=50.0)) for one in left])

        def arm(self, name: str, stack: Stack) -> Outcome:
            made = super().arm(name, stack)
            for one in made.samples:
                if "a" in stack and one.report is not None:
                    one.report.applied.fixes.pop("a", None)
                    one.report.applied.cannot.append("a")
            return made

    job = Refused({"a": 1.0, "b": 1.5, "c": 1.2})
    assert set(job.search().stack) == {"b", "c"}
    assert not any("a" in name.split(" + ") for trial in job.trials[1:] for name in trial)


def disturbed(step_ms: float, busy: float) -> Sample:
    made = Pretended({}).arm("a", ()).samples[0]
    assert made.report is not None
    around = type(made.report.around)(others_busy=busy)
    return Sample(0, 1.0, step_ms, report=type(made.report)(step_ms, around=around))


def test_a_disturbed_process_is_repeated_and_not_averaged_in() -> None:
    arm = Outcome("a", [disturbed(68.1, 1.8), disturbed(29.3, 0.1)])
    assert arm.wants_repeat and arm.runs_ms == [68.1, 29.3]
    arm.samples.append(disturbed(29.5, 0.0))
    assert not arm.wants_repeat and arm.runs_ms == [29.3, 29.5] and arm.median_ms == 29.4
    always = Outcome("a", [disturbed(68.1, 1.8), disturbed(66.3, 2.1)])
    assert not always.wants_repeat and always.runs_ms == [68.1, 66.3]
