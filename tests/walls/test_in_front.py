"""Which of several causes stands in front: the one that clearly saves more by itself, with one exception."""

from __future__ import annotations

import pytest

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
    monkeypatch.setattr(verdict, "saved_alone", lambda facts, cause: saved[cause])
    assert verdict._in_front(facts, [first, other], facts.reading.likely)[0] == front
