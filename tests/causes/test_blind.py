"""Runs of jobs by authors who had not read the rules, as an H200 recorded them: each verdict stays.

Most were right at once, some taught a rule. `story_writer` was recorded while it still set itself up, and has
no wall. `fixes_ms`: the step with the author's fix really made, which no bound may promise less than.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from contradictions import impossible
from findwall.model.diagnosis import Diagnosis, to_json
from recordings import document

FOLDER = Path(__file__).resolve().parents[1] / "fixtures" / "blind"
TRUTH = json.loads((FOLDER / "truth.json").read_text())
BEATEN = 1.03


def diagnosis(name: str) -> Diagnosis:
    return document(FOLDER / name)


@pytest.mark.parametrize("name", TRUTH)
def test_the_verdict_stays(name: str) -> None:
    assert diagnosis(name).wall.cause == TRUTH[name]["cause"], diagnosis(name).wall.sentence
    assert not impossible(json.loads(to_json(diagnosis(name))))


@pytest.mark.parametrize(("name", "fix"), [(name, fix) for name in TRUTH for fix in TRUTH[name]["fixes_ms"]])
def test_no_bound_is_beaten(name: str, fix: str) -> None:
    given = {one.fixes[0]: one.step_ms.low for one in diagnosis(name).prescriptions}
    assert (given[fix] or 0.0) <= BEATEN * TRUTH[name]["fixes_ms"][fix]
