"""Every cause: its page has its headings, and its test file draws a firing, a clear and an unsure case."""

from __future__ import annotations

import importlib.util
import re
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

from findwall.causes import all_causes, page
from findwall.causes.verdict import decide
from findwall.facts.facts import Facts
from findwall.fixes import all_fixes
from findwall.model.catalogue import ROOFS, WALL_OF
from speaking import in_words, texts

HEADINGS = ("What it finds:", "Why it costs:", "How it is told apart:", "What helps:")


@cache
def cases(cause: str) -> ModuleType:
    """The test file of a cause, which draws its cases."""
    path = Path(__file__).parent / f"test_{cause.replace('-', '_')}.py"
    assert path.exists(), f"{cause} has no test file"
    spec = importlib.util.spec_from_file_location(f"cases_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def drawn(cause: str, case: str) -> Facts:
    facts = getattr(cases(cause), case)()
    assert isinstance(facts, Facts)
    return facts


@pytest.mark.parametrize("cause", WALL_OF)
def test_has_a_page(cause: str) -> None:
    text = page(cause)
    summary = text.split("\n\n")[0]
    assert summary.endswith(".") and len(summary) < 120
    assert [heading for heading in HEADINGS if re.search(rf"^{heading}", text, re.MULTILINE)] == list(
        HEADINGS
    )


@pytest.mark.parametrize("cause", WALL_OF)
def test_its_page_names_every_fix_that_moves_it(cause: str) -> None:
    helps = page(cause).split("What helps:")[1]
    instead = {one.instead for one in all_fixes().values()}  # named on the page of the fix they stand for
    moving = [name for name, fix in all_fixes().items() if cause in fix.moves and name not in instead]
    assert moving
    assert [fix for fix in moving if fix not in helps] == []


@pytest.mark.parametrize("cause", WALL_OF)
def test_fires(cause: str) -> None:
    facts = drawn(cause, "fires")
    assert facts.share(cause) > 0.05
    rule = all_causes()[cause]
    text = in_words(rule, facts)
    assert re.search(r"\d[\d.]* (ms|us) of the [\d.]+ (ms|us) step \(\d+", text), text
    assert text.endswith(".") and "unknown" not in text
    found = rule.evidence(facts)
    assert 1 <= len(found) <= 3 and all(texts(found))


@pytest.mark.parametrize("cause", WALL_OF)
def test_is_clear(cause: str) -> None:
    facts = drawn(cause, "clear")
    assert facts.share(cause) < 0.02
    assert decide(facts).cause != cause
    assert all_causes()[cause].evidence(facts) is not None


@pytest.mark.parametrize("cause", WALL_OF)
def test_cannot_tell_and_says_so(cause: str) -> None:
    """Missing is not zero: the cause is not the verdict, and something admits why."""
    facts = drawn(cause, "cannot_tell")
    assert decide(facts).cause != cause or cause in ROOFS
    text = in_words(all_causes()[cause], facts)
    undecided = decide(facts).cause is None
    blind = facts.recoverable_ms(cause) is None
    assert undecided or blind or facts.spent_ms("unknown") > 0 or "unknown" in text


@pytest.mark.parametrize("cause", WALL_OF)
@pytest.mark.parametrize("case", ["fires", "clear", "cannot_tell"])
def test_the_budget_adds_up(cause: str, case: str) -> None:
    facts = drawn(cause, case)
    for scenario in facts.reading.scenarios:
        assert facts.spent(scenario).total == pytest.approx(scenario.step, rel=1e-9)
        assert (facts.spent(scenario).values >= 0).all()


@pytest.mark.parametrize("drawing", WALL_OF)
def test_every_sentence_survives_every_drawing(drawing: str) -> None:
    """A rule is asked about jobs that have nothing to do with it."""
    facts = drawn(drawing, "cannot_tell")
    for cause, rule in all_causes().items():
        assert in_words(rule, facts).endswith("."), cause
        assert len(rule.evidence(facts)) <= 3, cause
