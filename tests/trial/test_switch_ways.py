"""A switch of the job's own goes first, and our own way follows where it does nothing or fails."""

from __future__ import annotations

import pytest

from findwall.model.applied import Applied, AppliedFix
from findwall.model.arms import ArmReport
from findwall.model.claims import Range
from findwall.model.switches.typed_switches import own_name
from findwall.trial.arms_in_turn import Failure, Outcome, Sample, Trial
from findwall.trial.judge import bare
from findwall.trial.search import Settled, search
from findwall.trial.stacks_tried import Candidate, Found, Stack, View

NOISE = (0.997, 1.0, 1.004)
PLAIN_MS, LOSSES = 100.0, [4.0, 3.0, 2.0, 1.0]
TF32, BF16, COMPILE = "tf32 by --tf32", "bf16 by --dtype bf16", "compile by --compile 1"


class Job:
    """A job of 100 ms. A switch among `idle` does nothing, one among `broken` ends its process, and one among
    `wrong` computes something else."""

    def __init__(self, faster: dict[str, float], offered: list[Candidate], **bad: tuple[str, ...]) -> None:
        self.faster, self.offered, self.bad = faster, offered, bad
        self.ran: list[Stack] = []

    def look(self, stack: Stack) -> View:
        made = set(map(own_name, stack))
        left = [one for one in self.offered if not made & set(one.fixes)]
        return View("compute / fast-path-off", self.step(stack), left)

    def step(self, stack: Stack) -> float:
        step = PLAIN_MS
        for name in set(stack).difference(self.bad.get("idle", ())):
            step /= self.faster[own_name(name)]
        return step

    def measure(self, arms: dict[str, Stack], _settled: Settled) -> Trial:
        self.ran += [stack for stack in arms.values() if stack]
        return Trial({name: self.arm(name, stack) for name, stack in arms.items()}, "done", 1.0)

    def arm(self, name: str, stack: Stack) -> Outcome:
        if set(stack) & set(self.bad.get("broken", ())):
            return Outcome(name, [Sample(0, 1.0, failure=Failure("exit", "unrecognized arguments"))])
        idle, wrong = self.bad.get("idle", ()), set(stack) & set(self.bad.get("wrong", ()))
        told = Applied({bare(one): AppliedFix("" if one in idle else "it is there") for one in stack})
        losses = [2 * one for one in LOSSES] if wrong else LOSSES
        step = self.step(stack)
        report = ArmReport(step, 10, losses, None, told)
        return Outcome(name, [Sample(0, 1.0, step * off, report=report) for off in NOISE])

    def search(self) -> Found:
        return search(
            self.measure, self.look, lambda stack, name: tuple(x for x in stack if bare(x) == bare(name))
        )


def of(*switched: str, mid: float | None = None, only: bool = False) -> Candidate:
    own = tuple(map(own_name, switched))
    return Candidate(own, True, Range(mid=mid), switched=switched, only_switched=only)


def test_a_switch_that_works_replaces_our_own_way() -> None:
    job = Job({"tf32": 2.0}, [of(TF32)])
    assert job.search().stack == (TF32,) and ("tf32",) not in job.ran


@pytest.mark.parametrize("bad", ["idle", "broken", "wrong"])
def test_our_own_way_is_tried_where_the_switch_is_not_proven(bad: str) -> None:
    job = Job({"tf32": 2.0}, [of(TF32)], **{bad: (TF32,)})
    assert job.search().stack == ("tf32",) and job.ran[:2] == [(TF32,), ("tf32",)]


def test_one_that_took_effect_and_gave_nothing_is_not_tried_our_way_too() -> None:
    job = Job({"tf32": 1.0}, [of(TF32)])
    assert job.search().stack == () and job.ran == [(TF32,)]


def test_of_a_stack_only_the_switch_that_did_nothing_is_made_our_way() -> None:
    both = [of(BF16, COMPILE, mid=25.0), of(BF16, mid=50.0), of(COMPILE, mid=50.0)]
    job = Job({"bf16": 2.0, "compile": 2.0}, both, idle=(BF16,))
    assert set(job.search().stack) == {"bf16", COMPILE}
    assert ("bf16", "compile") not in job.ran


def test_switches_go_first_among_equals_and_only_among_them() -> None:
    offered = [Candidate(("best",), True, Range(mid=10.0)), Candidate(("ours",), True), of(TF32)]
    job = Job({"best": 3.0, "ours": 1.0, "tf32": 1.0}, offered)
    job.search()
    assert job.ran[:3] == [("best",), (TF32,), ("ours",)]


def test_what_a_switch_alone_can_make_has_no_other_way() -> None:
    remat = "less-recompute by leaving out --remat"
    job = Job({"less-recompute": 1.5}, [of(remat, only=True)], broken=(remat,))
    assert job.search().stack == () and job.ran == [(remat,)]
