"""What was repaired or doubted is said."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from captures import FIXTURES
from findwall.examine.remarks import gather_notes
from findwall.report.words import spoken
from recordings import document
from sketch import facts_of, sketch


def test_repeated_correlation_ids_are_noted() -> None:
    timeline = sketch(cpu="ooo", gpu=" kkkKKKkkk")
    events = timeline.events
    assert not any(note.id == "links/ambiguous" for note in gather_notes(facts_of(timeline)))
    same = np.where(events.correlation > 0, 7, events.correlation)
    merged = replace(timeline, events=replace(events, correlation=same))
    (note,) = [note for note in gather_notes(facts_of(merged)) if note.id == "links/ambiguous"]
    assert "3 device events were matched to their launches by process and order" in spoken(note)


def test_captures_are_told_of_where_they_named_kernels_and_nowhere_else() -> None:
    told = document(FIXTURES / "runs" / "decode_replay")
    (note,) = [note for note in told.remarks if note.id == "captures/used"]
    assert note.figures["captures"] == 1
    assert not [
        note for note in document(FIXTURES / "eager_training.json.gz").remarks if note.id == "captures/used"
    ]
