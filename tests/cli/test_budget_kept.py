"""What `try` does with its time, on a drawn clock: a job whose processes take as long as is said, and whose
compiled arms take longer than anybody could know."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from cli.test_try import prescribing
from examples import drawn
from findwall.cli.jobs import trying
from findwall.model.applied import Applied, AppliedFix
from findwall.model.arms import ArmReport, ScreenedFix, Screening
from findwall.model.claims import Range
from findwall.model.diagnosis import Diagnosis, Prescription
from findwall.trial import arms_in_turn
from findwall.trial.arms_in_turn import Arm, Failure, Patience, Plan, Sample
from findwall.trial.judge import bare
from findwall.trial.process_groups import Stop
from findwall.trial.stacks_tried import OUT_OF_TIME, Found

BF16, SDPA, COMPILE, GRAPHS = "bf16-autocast", "sdpa", "torch-compile", "reduce-overhead"
BLOCKS = "compile-blocks"  # that is made where compiling the whole fails
PLAIN_MS = 393.0
GAIN = {BF16: 2.27, SDPA: 1.6, COMPILE: 1.24, GRAPHS: 1.25, BLOCKS: 1.2}
STACKS = (
    (BF16, SDPA, GRAPHS),
    (BF16, SDPA, COMPILE),
    (BF16, COMPILE),
    (BF16, SDPA),
)


def step_ms(stack: Sequence[str]) -> float:
    step = PLAIN_MS
    for name in stack:
        step /= GAIN[bare(name)]
    return step


class Drawn:
    """A job with a clock of its own. `plain_s`: of a process; `compile_s`: that compiling adds to it, of
    which a screening sees `seen_s`."""

    def __init__(self, plain_s: float, compile_s: float, seen_s: float, budget_s: float) -> None:
        self.now, self.plain_s, self.compile_s, self.seen_s = 0.0, plain_s, compile_s, seen_s
        self.job = trying.Job("job.py", budget_s=budget_s)
        self.ran: list[tuple[str, float, bool]] = []  # arms, the seconds there were for each, and if it told

    def look(self, _job: object, stack: tuple[str, ...], _writes: object, _left_s: float) -> Diagnosis:
        self.now += trying.LOOK_IS * self.plain_s
        left = [
            names
            for names in (*((one,) for one in (BF16, SDPA, COMPILE, GRAPHS)), *STACKS)
            if not set(names) & set(stack)
        ]
        made = [(list(names), step_ms((*stack, *names))) for names in left]
        said = prescribing({})
        said.step.ms = step_ms(stack)
        said.prescriptions = [
            Prescription(names, ["fast-path-off"], Range(0.9 * ms, ms, 1.1 * ms), Range(), "numerics", "")
            for names, ms in made
        ]
        return said

    def sample(
        self, arm: Arm, _plan: Plan, patience: Patience, turn: int, _stop: Stop, until: float
    ) -> Sample | None:
        told = dict(zip(arm.argv, arm.argv[1:], strict=False))
        stack = tuple(filter(None, told.get("--apply", "").split(",")))
        report = self.screening(told["--screen"].split(",")) if "--screen" in told else None
        takes_s = self.plain_s + self.compile_s * bool({COMPILE, GRAPHS, BLOCKS} & set(stack))
        if report is not None and report.screening is not None:
            takes_s += sum(one.seconds for one in report.screening.fixes)
        left_s = min(patience.seconds, until - self.now)
        self.now += min(takes_s, left_s)
        self.ran.append((arm.name, left_s, takes_s <= left_s))
        if takes_s > left_s:
            failure = Failure("timed-out", "took more than there was for it")
            return Sample(turn, left_s, failure=failure) if patience.seconds == left_s else None
        seen = Applied({bare(name): AppliedFix("it is there") for name in stack})
        report = report or ArmReport(step_ms(stack) * (1 + turn % 3 / 1000), 40, [4.0, 3.0, 2.0, 1.0])
        return Sample(turn, takes_s, report.step_ms, report=replace(report, applied=seen))

    def screening(self, fixes: list[str]) -> ArmReport:
        told = [
            ScreenedFix(
                one,
                [(PLAIN_MS, PLAIN_MS / GAIN[one])] * 3 * (one != SDPA),
                "" if one == SDPA else "it is there",
                "attention that a job writes out needs an edit" if one == SDPA else "",
                self.plain_s / 3 + self.seen_s * (one == COMPILE),
            )
            for one in fixes
        ]
        return ArmReport(PLAIN_MS, screening=Screening(told))

    def found(self) -> Found:
        clock = SimpleNamespace(monotonic=lambda: self.now, time=lambda: self.now)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(trying, "time", clock)
            patch.setattr(arms_in_turn, "time", clock)
            patch.setattr(arms_in_turn, "_sample", self.sample)
            patch.setattr(trying, "_diagnosis", self.look)
            return trying.try_fixes(self.job, lambda _text: None).found


def test_what_needs_no_compiling_is_proven_where_compiling_takes_too_long() -> None:
    """A process of 20 s, of which one that compiles takes more than 60 s besides, and 300 s in all."""
    drawn_job = Drawn(plain_s=20.0, compile_s=75.0, seen_s=38.0, budget_s=300.0)
    found = drawn_job.found()
    assert found.stack == (BF16, SDPA) and found.total is not None and found.total.verdict == "faster"
    assert found.ended in OUT_OF_TIME and drawn_job.now <= 300.0
    assert [name for name, _, told in drawn_job.ran if not told] == []  # nothing was started in vain
    assert [one.fixes for one in found.untried] == [(COMPILE,)]  # on top of that


@drawn(60)
@given(
    st.sampled_from([3.0, 20.0, 60.0]),
    st.sampled_from([0.0, 5.0, 30.0, 75.0, 200.0, 1e6]),
    st.sampled_from([5.0, 38.0]),
    st.floats(8.1, 40.0),
)
def test_a_fix_that_helps_is_proven_in_any_budget_that_holds_its_processes(
    plain_s: float, compile_s: float, seen_s: float, processes: float
) -> None:
    """A look, and two processes each of the fix, of the plain job, and of that from another seed."""
    drawn_job = Drawn(plain_s, compile_s, seen_s, processes * plain_s)
    found = drawn_job.found()
    assert {BF16, SDPA} <= set(found.stack), (drawn_job.ran, found)
    given_up = [seconds for name, seconds, told in drawn_job.ran if not told]
    assert given_up == sorted(given_up), drawn_job.ran  # what took longer was not tried in less
