"""Work that goes whole: the step without it, its place among the fixes, what a roof says of it."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from findwall.causes.bandwidth import memory_roof
from findwall.examine.checks import checked
from findwall.examine.circumstances import circumstances
from findwall.examine.traced_document import diagnose_device
from findwall.facts.facts import Facts
from findwall.fixes import Use, takes_out
from findwall.fixes.less_work import evaluate_less_often
from findwall.fixes.prescribe import prescribe
from findwall.fixes.what_if import what_if
from findwall.model.diagnosis import Diagnosis
from findwall.model.measured_run import StepTimes
from findwall.report.texts.by_hand_text import LONGEST_HOW
from findwall.report.words.documents import worded
from fixes import drawn
from sketch import facts_of, sketch
from speaking import in_words

FIX = "evaluate-less-often"


class EverywhereAt:
    """All ops were called from one line."""

    def __init__(self, place: str) -> None:
        self._place = place

    def at(self, row: int) -> str | None:
        return self._place if row >= 0 else None


def document(facts: Facts) -> Diagnosis:
    return worded(checked(diagnose_device(facts.run, [facts]), circumstances(facts)))


def test_at_the_roof_it_is_the_first_fix_with_what_is_left() -> None:
    found = document(drawn.evaluating())
    assert found.wall.cause == "at-the-roof" and found.quality.checks_failed == {}
    first = found.prescriptions[0]
    assert first.fixes == [FIX] and first.safety == "needs-review" and first.basis == "replay"
    assert first.step_ms.mid == pytest.approx(2.0, abs=0.1)  # below what all products take by the data sheet
    assert first.speedup.mid == pytest.approx(5.0, rel=0.1)


def test_the_roof_is_not_the_last_word() -> None:
    sentence = document(drawn.evaluating()).wall.sentence
    assert "8.00 ms per step (80 %) is forward work without gradients" in sentence
    assert "if it is an evaluation, run it every n steps" in sentence
    assert sentence.endswith("shortens the rest.")
    plain = document(drawn.evaluating(passes=1, trained=9)).wall
    assert plain.cause == "at-the-roof" and "gradients" not in plain.sentence


def test_what_training_may_need_comes_after_the_rest_and_promises_nothing() -> None:
    found = document(drawn.evaluating(evaluates=False))
    mine = next(one for one in found.prescriptions if one.fixes == [FIX])
    assert mine.step_ms.mid is None and mine.step_ms.low == pytest.approx(2.0, abs=0.1)
    assert found.prescriptions[0].fixes != [FIX]
    assert all(FIX not in stage.fixes for stage in found.road)


def test_its_line_is_told_where_lines_were_followed() -> None:
    facts = drawn.evaluating()
    assert "train.py" not in in_words(evaluate_less_often.FIX.advise(facts))
    followed = replace(facts, called=EverywhereAt("train.py:7"))
    assert ", at train.py:7" in in_words(evaluate_less_often.FIX.advise(followed))


def test_its_words_fit_a_line_of_the_report() -> None:
    for facts in (drawn.evaluating(), drawn.evaluating(evaluates=False)):
        outcome = evaluate_less_often.FIX.advise(facts)
        assert isinstance(outcome, Use) and len(in_words(outcome)) <= LONGEST_HOW - len(
            ", at train.py:41 in evaluate"
        )


def test_what_goes_needs_no_floor() -> None:
    """Who does without some work need not know how fast it could be."""
    known = drawn.evaluating()
    unknown = replace(known, atoms=replace(known.atoms, floor=np.full(len(known.atoms.index), np.nan)))
    found = what_if(unknown, FIX)
    assert found.step_ms.mid == pytest.approx(2.0, abs=0.1) and found.notes == []
    advised, _ = prescribe(unknown, "at-the-roof")
    mine = next(one for one in advised if one.fixes == [FIX])
    assert mine.step_ms.mid == pytest.approx(2.0, abs=0.1)


def test_without_a_verdict_it_is_told_all_the_same() -> None:
    found = document(drawn.evaluating(device="A GPU nobody knows"))
    assert found.wall.cause is None
    assert "8.00 ms per step (80 %) is forward work without gradients" in found.wall.sentence


def test_it_may_save_more_than_the_wall_could_give_back() -> None:
    found = document(drawn.evaluating(rows=4096))
    assert found.wall.cause == "slow-kernels" and found.quality.checks_failed == {}
    first = found.prescriptions[0]
    assert first.fixes == [FIX] and first.step_ms.mid == pytest.approx(2.0, abs=0.1)
    assert "saves up to 8" not in found.wall.sentence  # its advice is another: that saves less
    after = found.road[1]
    assert FIX in after.fixes and after.cause == "slow-kernels"  # what trains is as slow as it was


def test_behind_another_wall_it_is_prescribed_though_its_causes_give_nothing_back() -> None:
    found = document(drawn.evaluating(loading=10))
    assert found.wall.cause == "loader-starved"
    mine = next(one for one in found.prescriptions if one.fixes == [FIX])
    assert mine.step_ms.mid == pytest.approx(12.0, abs=0.2)  # the batch is waited for as before


def test_batches_of_the_pass_go_with_it() -> None:
    outcome = evaluate_less_often.FIX.advise(drawn.evaluating(inside=5))
    assert isinstance(outcome, Use) and "13.0 ms per step" in in_words(outcome)
    found = what_if(drawn.evaluating(inside=5), FIX)
    assert found.step_ms.mid == pytest.approx(2.0, abs=0.2)


def test_memory_s_roof_is_not_the_last_word_either() -> None:
    assert "is forward work without gradients" in in_words(memory_roof.CAUSE, drawn.evaluating())


def test_who_takes_work_out() -> None:
    assert takes_out([FIX]) and takes_out(["torch-compile", FIX])
    assert not takes_out(["torch-compile", "less-recompute"])


def timed(every: int, long_s: float, usual_s: float) -> StepTimes:
    """Steps of which each so-manyth evaluates, as a hook saw."""
    kinds = (("usual",) * (every - 1) + ("slow",)) * 4
    seconds = tuple(long_s if kind == "slow" else usual_s for kind in kinds)
    return StepTimes(seconds, "measured", kind=kinds, doing=(("slow", "evaluation"),))


def test_what_steps_do_in_which_a_hook_saw_an_evaluation_is_one() -> None:
    seen = drawn.evaluating(
        evaluates=False, step_times=timed(2, 0.01, 0.002), traced_kinds=("slow", "usual", "slow")
    )
    outcome = evaluate_less_often.FIX.advise(seen)
    assert isinstance(outcome, Use) and outcome.likely is not None and not outcome.after_others
    unseen = evaluate_less_often.FIX.advise(drawn.evaluating(evaluates=False))
    assert isinstance(unseen, Use) and unseen.likely is None and unseen.after_others


def test_evaluations_that_no_traced_step_holds_are_known_by_their_time() -> None:
    timeline = sketch(cpu="o     " * 4, gpu=" kkkkk" * 4, steps="|     " * 4)
    facts = facts_of(timeline, step_times=timed(16, 0.166, 0.006))
    found = document(facts)
    assert found.wall.cause == "unstable-steps" and found.quality.checks_failed == {}
    first = found.prescriptions[0]
    assert first.fixes == [FIX] and first.step_ms.low == pytest.approx(6.0, abs=0.1)
    assert "1 step in 16" in first.how and "take 10.0 ms of the mean step (62 %)" in first.how
    saving = replace(timed(16, 0.166, 0.006), doing=(("slow", "saving"),))
    assert not isinstance(evaluate_less_often.FIX.advise(facts_of(timeline, step_times=saving)), Use)
