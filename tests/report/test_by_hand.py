"""The last words of `try`: what only a person can change, with its step or its bound."""

from __future__ import annotations

from findwall.model.claims import Range
from findwall.model.diagnosis import Prescription
from findwall.report.texts.by_hand_text import MOST_SHOWN, to_text
from findwall.report.texts.patch_text import WIDTH


def prescribed(fix: str, step: Range, how: str = "Edit it.") -> Prescription:
    return Prescription([fix], ["launch-bound"], step, Range(), "needs-review", how)


LOOP = prescribed("vectorise-loop", Range(low=1.5), "Do in one call what a loop does at loss.py:12.")
COPIES = prescribed("batch-small-ops", Range(2.0, 3.0, 4.0))


def test_an_edit_is_told_with_its_step_or_its_bound_and_how() -> None:
    text = to_text([LOOP, COPIES])
    told = " ".join(text.split())
    assert told.startswith("What only you can change: - vectorise-loop, a step of 1.50 ms at best, needs")
    assert "needs review: Do in one call what a loop does at loss.py:12. - batch-small-ops, about" in told
    assert "batch-small-ops, about 3.00 ms (2.00–4.00 ms)" in told
    assert told.endswith("(needs review: it may change what the job does, so check it)")
    assert max(map(len, text.splitlines())) <= WIDTH


def test_on_what_the_step_is_predicted_is_said() -> None:
    assert "What only you can change, on top of that:" in to_text([LOOP], kept=True)
    assert "and what it would make of the plain job:" in to_text([LOOP], kept=True, looked=False)


def test_few_are_shown_and_nothing_where_nothing_is_left() -> None:
    assert to_text([LOOP] * (MOST_SHOWN + 2)).count("- vectorise-loop") == MOST_SHOWN
    assert to_text([]) == ""


def test_without_a_step_the_edit_alone_is_told() -> None:
    assert "- larger-batch, needs review: Edit it." in to_text([prescribed("larger-batch", Range())])
