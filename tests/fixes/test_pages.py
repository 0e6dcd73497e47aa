"""The catalogue of fixes: pages with their headings, causes that exist, a fix for every cause."""

from __future__ import annotations

import pytest

from findwall.fixes import all_fixes, page
from findwall.fixes.candidates import SAFETIES
from findwall.model.catalogue import WALL_OF
from findwall.report.explained import parse

FIXES = all_fixes()
NAMED = {
    "tf32",
    "bf16-autocast",
    "pad-shapes",
    "channels-last",
    "torch-compile",
    "cuda-graphs",
    "sdpa",
    "fused-optimizer",
    "remove-sync",
    "keep-cache",
    "loader-workers",
    "pin-memory",
    "less-recompute",
}


@pytest.mark.parametrize("fix", FIXES)
def test_a_fix_has_its_page(fix: str) -> None:
    written = parse("fix", fix, page(fix))
    assert [heading for heading, _ in written.sections] == ["What it does", "When it does not help", "Risk"]
    assert all(len(body) > 4 for _, body in written.sections)
    assert written.summary.endswith(".")
    assert len(written.summary) <= 110


@pytest.mark.parametrize("fix", FIXES)
def test_a_fix_says_what_it_is(fix: str) -> None:
    assert FIXES[fix].moves
    assert set(FIXES[fix].moves) <= set(WALL_OF)
    assert FIXES[fix].safety in SAFETIES


@pytest.mark.parametrize("cause", WALL_OF)
def test_every_cause_has_a_fix(cause: str) -> None:
    assert [name for name, fix in FIXES.items() if cause in fix.moves]


def test_what_people_try_has_an_order() -> None:
    tried = [fix.tried for fix in FIXES.values() if fix.tried is not None]
    assert len(set(tried)) == len(tried) >= 10


def test_the_ids_that_others_rely_on() -> None:
    assert set(FIXES) >= NAMED
