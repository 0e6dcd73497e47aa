"""Work that goes whole: the step without it, its place among the fixes, what a roof says of it."""

from __future__ import annotations

import pytest

from findwall.attribute.facts import Facts
from findwall.examine.checks import checked
from findwall.examine.circumstances import circumstances
from findwall.examine.device import diagnose_device
from findwall.fixes import Use, evaluate_less_often, takes_out
from findwall.fixes.what_if import what_if
from findwall.model.diagnosis import Diagnosis
from findwall.report.by_hand import LONGEST_HOW
from fixes import drawn

FIX = "evaluate-less-often"
OTHER = [8192, 8192]  # a weight of another shape than the trained one


def document(facts: Facts) -> Diagnosis:
    return checked(diagnose_device(facts.run, [facts]), circumstances(facts))


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


@pytest.mark.parametrize("facts", [drawn.evaluating(loss=False), drawn.evaluating(weight=OTHER)])
def test_what_training_may_need_comes_after_the_rest_and_promises_nothing(facts: Facts) -> None:
    found = document(facts)
    mine = next(one for one in found.prescriptions if one.fixes == [FIX])
    assert mine.step_ms.mid is None and mine.step_ms.low == pytest.approx(2.0, abs=0.1)
    assert found.prescriptions[0].fixes != [FIX]
    assert all(FIX not in stage.fixes for stage in found.road)


def test_another_network_is_not_called_an_evaluation() -> None:
    facts = drawn.evaluating(weight=OTHER)
    outcome = evaluate_less_often.advise(facts)
    assert isinstance(outcome, Use)
    for text in (outcome.how, document(facts).wall.sentence):
        assert "evaluat" not in text and "keep its outputs" in text
    assert "keep a teacher" in outcome.how


def test_its_words_fit_a_line_of_the_report() -> None:
    for facts in (drawn.evaluating(), drawn.evaluating(loss=False), drawn.evaluating(weight=OTHER)):
        outcome = evaluate_less_often.advise(facts)
        assert isinstance(outcome, Use) and len(outcome.how) <= LONGEST_HOW - len(
            ", at train.py:41 in evaluate"
        )


def test_what_goes_needs_no_floor() -> None:
    """An unknown kernel bounds nothing of a fix that does without it."""
    facts = drawn.evaluating(shapes=False)
    found = what_if(facts, FIX)
    assert found.step_ms.low == pytest.approx(2.0, abs=0.1)


def test_who_takes_work_out() -> None:
    assert takes_out([FIX]) and takes_out(["torch-compile", FIX])
    assert not takes_out(["torch-compile", "less-recompute"])
