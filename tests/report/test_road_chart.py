"""The road and what a person asked about, in words."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from findwall.model.claims import Range
from findwall.model.diagnosis import Diagnosis, Stage, WhatIf
from findwall.report import fix_phrases
from findwall.report.terminal import to_text

Document = Callable[[str], Diagnosis]
TODAY = Stage([], "today", Range(mid=41.3), "compute", "misaligned-shapes")
THEN = Stage(["pad-shapes", "sdpa"], "predicted", Range(24.0, 28.4, 33.0), "overhead", "launch-bound")
ROOFLINE = Stage([], "roofline", Range(mid=10.9))


def on(diagnosis: Diagnosis, *stops: Stage) -> Diagnosis:
    return replace(diagnosis, road=list(stops))


def asking(diagnosis: Diagnosis, step: Range, speedup: Range, *notes: str) -> list[str]:
    asked = WhatIf("sdpa,tf32", ["sdpa"], step, speedup, list(notes))
    return fix_phrases.what_if(replace(diagnosis, what_if=asked))


def test_the_road_is_told_in_its_order(document: Document) -> None:
    way = fix_phrases.road(on(document("full"), TODAY, THEN, ROOFLINE))
    assert way == (
        "41.3 ms today → about 28.4 ms (24.0–33.0 ms) with pad-shapes + sdpa (then launch-bound) → "
        "10.9 ms at the roofline"
    )


def test_without_a_cause_after_or_a_roofline_neither_is_told(document: Document) -> None:
    way = fix_phrases.road(on(document("full"), TODAY, replace(THEN, wall=None, cause=None)))
    assert way.endswith("with pad-shapes + sdpa")
    assert fix_phrases.road(on(document("full"))) == ""


def test_the_road_is_in_the_view_once_and_only_where_there_is_one(document: Document) -> None:
    text = to_text(on(document("full"), TODAY, THEN, ROOFLINE))
    assert text.count("road  41.3 ms today") == 1
    assert "road  " not in to_text(on(document("full")))


def test_what_was_asked_is_told_with_its_interval_and_speed_up(document: Document) -> None:
    full = document("full")
    lines = asking(full, Range(24.0, 28.4, 33.0), Range(1.25, 1.45, 1.72), "tf32: already on")
    assert lines == ["sdpa,tf32: about 28.4 ms (24.0–33.0 ms), 1.45×", "tf32: already on"]


def test_of_what_only_has_a_bound_that_is_told(document: Document) -> None:
    assert asking(document("full"), Range(low=24.0), Range(high=1.7)) == [
        "sdpa,tf32: a step of 24.0 ms at best"
    ]
    assert asking(document("full"), Range(), Range()) == ["sdpa,tf32: the step is not known"]


def test_nothing_asked_nothing_told(document: Document) -> None:
    assert fix_phrases.what_if(replace(document("full"), what_if=None)) == []
    assert "what if" not in to_text(replace(document("full"), what_if=None))


@pytest.mark.parametrize("word", ["\x1b[31m", "\u202e", "\x07"])
def test_what_a_document_smuggles_in_is_not_shown(document: Document, word: str) -> None:
    stops = [replace(TODAY, cause=word), replace(THEN, fixes=[f"sdpa{word}"], cause=word)]
    asked = WhatIf(f"sdpa{word}", ["sdpa"], Range(), Range(), [word])
    hostile = replace(on(document("full"), *stops), what_if=asked)
    assert word not in fix_phrases.road(hostile)
    assert word not in "".join(fix_phrases.what_if(hostile))
