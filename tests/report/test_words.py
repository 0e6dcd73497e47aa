"""Words are made of claims in one place, and nothing but a person reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from captures import FIXTURES
from findwall import api
from findwall.cli.around.gate import WallGate
from findwall.cli.jobs import what_to_try
from findwall.examine.compared import Taken, compare_sides
from findwall.model.claims import Claim, plain
from findwall.model.diagnosis import Diagnosis, from_json, to_json
from findwall.report import words
from findwall.report.words import fill, spoken, vocabulary

RECORDED = ["eager_training.json.gz", "jobs/odd_widths.json.gz", "runs/late_rank", "blind/argon_dynamics"]
WORDED = {"sentence", "text", "how", "why", "what", "notes", "helps", "odd"}


def without_words(value: Any) -> Any:
    """All fields but the sentences."""
    if isinstance(value, dict):
        return {key: without_words(one) for key, one in value.items() if key not in WORDED}
    return [without_words(one) for one in value] if isinstance(value, list) else value


def read(name: str) -> Diagnosis:
    return api.look(FIXTURES / name)[1].diagnosis


@pytest.mark.parametrize("name", RECORDED)
def test_no_part_of_the_program_reads_a_sentence(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its id in the place of every sentence, checks, `try`, `compare` and gates find the same."""
    plainly = read(name)
    by_id = {claim: lambda one: one.id for claim in vocabulary()}
    monkeypatch.setattr(words, "vocabulary", lambda: by_id)
    found = read(name)
    assert found.wall.sentence in vocabulary() | by_id and plainly.wall.sentence != found.wall.sentence
    assert without_words(msgspec.to_builtins(found)) == without_words(msgspec.to_builtins(plainly))
    assert what_to_try.view_of(found) == what_to_try.view_of(plainly)
    sides = [compare_sides([Taken(one)], [Taken(one)]) for one in (found, plainly)]
    assert without_words(msgspec.to_builtins(sides[0])) == without_words(msgspec.to_builtins(sides[1]))
    gate = WallGate(["compute", "overhead", "comms"])
    assert gate.of_wall(found.wall) == gate.of_wall(plainly.wall)


@pytest.mark.parametrize("name", RECORDED)
def test_a_document_carries_what_its_sentences_say(name: str) -> None:
    found = from_json(to_json(read(name)))
    assert found.wall.sentence == spoken(found.wall.claim)
    assert [one.sentence for one in found.questions] == [spoken(one.claim) for one in found.questions]
    assert found.notes == [spoken(one) for one in found.remarks]
    for shown in (one for row in found.budget for one in row.evidence):
        assert shown.text == spoken(shown.claim) and shown.text


def test_what_an_older_document_lacks_is_not_missed() -> None:
    old = from_json((FIXTURES / "documents" / "full.json").read_bytes())
    assert old.wall.sentence and old.wall.claim is None and old.remarks == []
    assert what_to_try.view_of(old) and WallGate(["compute"]).of_wall(old.wall)


CLAIM = Claim(
    "x", {"waits_ms": 3.2, "own": True, "none": None}, {"op": "aten::mm"}, ["a.py:3"], [plain("this")]
)


@pytest.mark.parametrize(
    ("template", "said"),
    [
        (
            "{op} at {places[0]}: {waits_ms:per_step}, {parts[0]}",
            "aten::mm at a.py:3: 3.20 ms per step, this",
        ),
        ("it[[ at {places[1]}]]", "it"),
        ("it[[ takes {none:ms}]]", "it"),
        ("[[{nobody}||it]]", "it"),
        ("[[{own:if}its own]][[{own:unless}another]]", "its own"),
        ("[[{nobody:if}some||none]]", "none"),
    ],
)
def test_a_template_says_what_is_known(template: str, said: str) -> None:
    assert fill(template, CLAIM) == said


def test_names_are_no_templates() -> None:
    """A kernel may be called anything."""
    strange = Claim("evidence/launches", {"times": 2.0}, {"op": "{0} [[{x}]] %s"})
    assert spoken(strange) == "{0} [[{x}]] %s: the device waited for it 2 times per step"


def test_no_cause_makes_words() -> None:
    """A figure is written out only where sentences are made."""
    for file in (Path(words.__file__).parents[2] / "causes").rglob("*.py"):
        assert "format_" not in file.read_text(encoding="utf-8"), file
