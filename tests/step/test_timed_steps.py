"""A window of four steps, one of which rolls out: it counts for as much as it comes."""

from __future__ import annotations

import pytest

from findwall.causes.verdict import decide
from findwall.examine import examine
from findwall.facts.facts import Facts
from findwall.facts.figures import kinds_of, what_it_does, worst_kind
from findwall.model.events import Timeline
from findwall.model.measured_run import HostLine, Rank, Run, StepTimes
from findwall.report.terminal import to_text
from findwall.report.words import spoken
from findwall.step.step_window import _one_of_each
from sketch import facts_of, sketch

USUAL, SLOW = 0.006, 0.046
LINE = HostLine("train.py:31", "rollout", 0.6)


def window() -> Timeline:
    """Steps of 6 ms, the second of which begins with 40 ms of silence."""
    cpu = "o     " + " " * 40 + "o     " + "o     " + "o     "
    gpu = " kkkkk" + " " * 40 + " KKKKK" + " kkkkk" + " KKKKK"
    steps = "|     " + "|" + " " * 45 + "|     " + "|     "
    return sketch(cpu=cpu, gpu=gpu, steps=steps)


def job(period: int, traced: tuple[str, ...] = ("usual", "slow", "usual", "usual"), doing: str = "") -> Facts:
    """Timed over four periods of steps of which one is slow."""
    kinds = (("usual",) * (period - 1) + ("slow",)) * 4
    seconds = tuple(SLOW if kind == "slow" else USUAL for kind in kinds)
    timed = StepTimes(seconds, "measured", kind=kinds, doing=(("slow", doing),) if doing else ())
    return facts_of(window(), step_times=timed, traced_kinds=traced, host_lines=(LINE,))


@pytest.mark.parametrize("period", [4, 8, 16, 50])
def test_the_budget_is_of_the_mean_over_kinds(period: int) -> None:
    facts = job(period)
    assert facts.spent().total == pytest.approx((USUAL * (period - 1) + SLOW) / period * 1e9, rel=1e-6)
    assert facts.spent_ms("host-work") == pytest.approx(1 + 40 / period, rel=0.02)  # 1 ms in every step
    assert facts.reading.likely.left_over <= 0.01 * facts.step
    assert facts.own.sum() == pytest.approx(5e6, rel=0.02)


def test_the_slow_steps_are_told_by_the_device() -> None:
    facts = job(16)
    usual, slow = kinds_of(facts)
    assert usual.mean == pytest.approx(USUAL, rel=0.05)
    assert slow.mean == pytest.approx(SLOW, rel=0.05)
    assert slow.every == 16
    assert spoken(what_it_does(facts, slow)) == "waiting for host-work at train.py:31 in rollout"
    assert decide(job(4)).cause == "host-work"


def test_a_kind_that_was_not_traced_is_blamed_on_nobody() -> None:
    facts = job(16, traced=())
    # The trace shows 40 ms of host work in one step of three: nobody knows that it is the kind's.
    assert facts.graph.share is None
    timed = StepTimes((USUAL,) * 60 + (2.0,) * 4, "measured", kind=("usual",) * 60 + ("slow",) * 4)
    plain = sketch(cpu="o     " * 4, gpu=" kkkkk" * 4, steps="|     " * 4)
    facts = facts_of(plain, step_times=timed)
    assert facts.spent_ms("unstable-steps") == pytest.approx((2.0 - USUAL) * 4 / 64 * 1e3, rel=0.02)
    assert facts.spent_ms("launch-bound") < 2


def test_a_kind_that_saves_is_host_work_though_it_was_not_traced() -> None:
    kinds = ("usual",) * 60 + ("slow",) * 4
    timed = StepTimes((USUAL,) * 60 + (2.0,) * 4, "measured", kind=kinds, doing=(("slow", "saving"),))
    plain = sketch(cpu="o     " * 4, gpu=" kkkkk" * 4, steps="|     " * 4)
    facts = facts_of(plain, step_times=timed)
    assert facts.spent_ms("host-work") == pytest.approx((2.0 - USUAL) * 4 / 64 * 1e3, rel=0.02)
    assert decide(facts).cause == "host-work"


def test_the_document_says_it() -> None:
    facts = job(16, doing="saving")
    document = examine(Run("run-folder", ("run",), (facts.rank,)), ceilings=facts.ceilings)
    usual, slow = document.kinds
    assert (usual.kind, slow.kind, slow.every, slow.what) == ("usual", "slow", 16, "saving a checkpoint")
    stable = document.questions[0]
    assert stable.answer == "no"
    assert "1 step in 16 takes 46.0 ms instead of 6.00 ms (saving a checkpoint)." in stable.sentence


BOX = "1 step in 4 takes 46.0 ms instead of 6.00 ms (saving a checkpoint)."


def test_the_box_says_which_steps_the_wall_is_in() -> None:
    facts = job(4, doing="saving")
    document = examine(Run("run-folder", ("run",), (facts.rank,)), ceilings=facts.ceilings)
    assert document.wall.cause == "host-work" and BOX in document.wall.sentence
    for brief in (True, False):
        assert BOX in " ".join(to_text(document, is_brief=brief).replace("┃", " ").split())


def test_a_kind_of_step_that_does_not_carry_the_wall_stays_out_of_the_box() -> None:
    facts = job(4, doing="saving")
    assert f"{spoken(worst_kind(facts, 'host-work'))}." == BOX
    (saves,) = (kind for kind in kinds_of(facts) if kind.doing)
    assert worst_kind(facts, "host-work", named=saves) is None
    assert worst_kind(facts, "launch-bound") is None
    assert spoken(worst_kind(job(4), "host-work")).startswith(
        "1 step in 4 takes 46.0 ms"
    )  # seen by the trace
    assert worst_kind(job(4), "launch-bound") is None
    assert worst_kind(facts_of(window()), "host-work") is None


def test_a_run_of_steps_holds_one_of_each() -> None:
    kinds = ["usual"] * 9 + ["slow-1"] + ["usual"] * 4 + ["slow-2"] + ["usual"] * 3
    first, last = _one_of_each(kinds, 3)
    assert set(kinds[first:last]) == {"usual", "slow-1", "slow-2"}
    assert last - first == 6


def test_ranks_without_timed_steps_have_no_kinds() -> None:
    facts = facts_of(window())
    assert kinds_of(facts) == ()
    assert Rank().elapsed is None
