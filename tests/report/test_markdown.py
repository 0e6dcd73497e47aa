from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from findwall.model.diagnosis import Diagnosis
from findwall.report.markdown import to_markdown

Document = Callable[[str], Diagnosis]


def test_verdict_comes_first_and_the_budget_is_a_table(document: Document) -> None:
    text = to_markdown(document("full"))
    assert text.startswith("### THE WALL: compute / misaligned-shapes\n")
    assert "| compute | misaligned-shapes | 17.2 ms | 42 % | 12.9 ms |" in text
    assert (
        text.index("What helps:") < text.index("| wall |") < text.index("✔ stable") < text.index("Evidence:")
    )
    assert "- pad-shapes, a step of 28.4 ms at best: pad the vocabulary" in text


def test_without_a_verdict_nobody_knows_what_helps(document: Document) -> None:
    full = document("full")
    text = to_markdown(replace(full, wall=replace(full.wall, wall=None, cause=None)))
    assert "Worth a trial:" in text and "What helps" not in text


@pytest.mark.parametrize("name", ["no_verdict", "nothing_known", "cpu_only"])
def test_what_is_missing_leaves_no_hole(document: Document, name: str) -> None:
    text = to_markdown(document(name))
    assert "None" not in text
    assert "\n\n\n" not in text


def test_hostile_names_are_no_markup(document: Document) -> None:
    text = to_markdown(document("hostile"))
    assert not re.search(r"(?<!\\)<script", text)
    assert not re.search(r"@[a-z]", text)
    assert not re.search(r"(?<!\\)\]\(http", text)
    assert "://" not in text
    assert all(line.count("|") - line.count("\\|") in (0, 6) for line in text.splitlines())
