"""A verdict names no fix that is not prescribed beside it, but for those that a trial has to tell of."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from captures import FIXTURES
from findwall.causes import all_causes
from findwall.fixes import CannotTell, all_fixes
from findwall.fixes.prescribe import WORTH_A_TRIAL
from findwall.model.claims import advises
from findwall.report.words import spoken
from fixes import filter_calls
from recordings import look

BLIND = FIXTURES / "blind"


@pytest.mark.parametrize(
    "path",
    [
        *(BLIND / name for name in ("canopy_height", "clause_service", "exposure_stack")),
        *(BLIND / name for name in ("genomics_longconv", "store_forecasts")),
        *sorted((FIXTURES / "jobs").glob("*.json.gz"))[::4],
    ],
    ids=lambda path: path.name.partition(".")[0],
)
def test_a_verdict_names_only_what_is_prescribed(path: Path) -> None:
    _, found = look(path)
    prescribed = {fix for one in found.diagnosis.prescriptions for fix in one.fixes}
    assert found.facts is not None
    refusals = [one for one in found.diagnosis.not_worth_it if one.claim is not None]
    worth_a_trial = {one.fixes[0] for one in refusals if one.claim and one.claim.id == WORTH_A_TRIAL}
    for fix in set(found.diagnosis.wall.advises) - prescribed - worth_a_trial:
        assert isinstance(all_fixes()[fix].advise(found.facts), CannotTell)


def test_an_action_that_is_of_no_use_is_not_named() -> None:
    facts = filter_calls.scanning().advised(frozenset({"scan-innermost", "torch-compile"}), {})
    assert advises(all_causes()["slow-kernels"].claim(facts)) == []
    misaligned = all_causes()["misaligned-shapes"]
    said = spoken(misaligned.claim(replace(facts, refused=frozenset({"pad-shapes"}))))
    assert "pad" not in said and "Look for another way" in said


def test_of_several_ways_those_that_are_of_use_stay() -> None:
    casts = all_causes()["dtype-casts"]
    facts = filter_calls.scanning()
    assert advises(casts.claim(facts)) == ["fewer-casts", "torch-compile"]
    assert advises(casts.claim(facts.advised(frozenset({"torch-compile"}), {}))) == ["fewer-casts"]
