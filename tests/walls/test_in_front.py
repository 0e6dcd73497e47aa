"""Which of several causes stands in front: the one that clearly saves more by itself, with one exception."""

from __future__ import annotations

import pytest

from findwall.attribute.whatif import saved_alone
from findwall.model.causes import ByCause
from findwall.walls import verdict
from sketch import facts_of, sketch


@pytest.mark.parametrize(
    ("first", "other", "front"),
    [
        ("unfused-pointwise", "launch-bound", "launch-bound"),
        ("launch-bound", "host-sync", "host-sync"),
        # Launches that cost nothing would make every wait harmless, but the wait has emptied the queue.
        ("host-sync", "launch-bound", "host-sync"),
        ("copy-exposed", "launch-bound", "copy-exposed"),
        ("host-sync", "host-work", "host-work"),
    ],
)
def test_what_saves_most_alone_is_in_front(
    monkeypatch: pytest.MonkeyPatch, first: str, other: str, front: str
) -> None:
    facts = facts_of(sketch(cpu="oo   oo   oo", gpu="kk   kk   kk", steps="|    |    |    "), step_ms=5)
    saved = {first: 0.2 * facts.step, other: 0.8 * facts.step}
    monkeypatch.setattr(verdict, "saved_alone", lambda facts, cause, launches: saved[cause])
    gain = ByCause.zeros()
    gain[first], gain[other] = 2.0, 1.5
    assert verdict._in_front(facts, [first, other], gain, facts.reading.likely)[0] == front
    gain[other] = 0.9  # a trifle beside it hides nothing
    assert verdict._in_front(facts, [first, other], gain, facts.reading.likely)[0] == first


def test_who_fuses_kernels_launches_fewer_of_them() -> None:
    """A host that only just keeps up would hide shorter kernels, but what is merged is not launched."""
    drawing = sketch(cpu="oooooooo " * 3, gpu="kKkKkKkK " * 3, steps="|        " * 3)
    facts = facts_of(drawing, step_ms=9)
    gain = facts.recoverable()
    assert saved_alone(facts, "unfused-pointwise", launches=True) > 0.9 * gain["unfused-pointwise"]
    assert verdict.decide(facts).cause == "unfused-pointwise"
