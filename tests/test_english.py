"""The style sheet of CONTRIBUTING.md, as far as a test can check it: no banned phrase, short sentences.

A phrase is banned once it has been replaced everywhere: whoever needs it again looks for better words first.
"""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from findwall.causes import all_causes
from findwall.model.catalogue import WALL_OF
from findwall.model.diagnosis import Diagnosis
from findwall.report.terminal import to_text
from recordings import document
from speaking import in_words

TESTS = Path(__file__).parent
ROOT = TESTS.parent
PACKAGE = ROOT / "src" / "findwall"
PAGES = ("causes", "fixes")  # whose docstrings `findwall explain` shows
TRACES = sorted((TESTS / "fixtures").glob("*.json.gz")) + sorted((TESTS / "fixtures" / "jobs").glob("*.gz"))
RUNS = sorted(path for path in (TESTS / "fixtures" / "runs").iterdir() if path.is_dir())
ZOO = sorted((Path(__file__).resolve().parents[2] / "shared" / "zoo").glob("*.json.gz"))

MOST_WORDS = 35  # a sentence of the box
SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z0-9`])")
BANNED = [
    re.compile(phrase)
    for phrase in (
        # The amount is singular, and somebody waits.
        r"\bare idle because\b",
        r"\bare gaps because\b",
        r"step \([^)]*\) (?:are|go|only convert|only copy|repeat|come) ",
        r"\b(?:is|are|never|not) waited for\b",
        r"\bmade in the training process itself\b",
        r"\basked from the driver\b",
        r"\b(?:ms|us|s|\}) (?:wait|compile|run well) ",
        # Who stands where.
        r"\bst(?:ands?|ood) (?:still|idle|in line|here|at [^ ]*:)",
        r"\bit was (?:most often )?seen at\b",
        # Rates, and what is saved.
        r"\b(?:ms|us|MB|GB|B|times|calls|kernels|launches|collectives|steps) a step\b",
        r"\bwith what waits behind it\b",
        r"\bat most [^.]* come back\b",
        r"^moving \S+ (?:alone )?saves\b",
        r"\bmakes it shorter\b",
        # What is not known.
        r"\bcannot be told\b",
        r"\bof unknown cause\b",
        r"^Whether\b",
        r"\bwould tell\b",
        r"\bis no (?:step time|size|matmul shape|plain file|device)\b",
        r"\bare no (?:multiples?|ceilings)\b",
        # Translated words.
        r"\banew\b",
        r"\ba (?:stream|kernel) of its own\b",
        r"\bA kernel of its own\b",
        r"\bmost of it in\b",
        r"\bmost of them\b.*\bfirst, at\b",
        r"\bbecause formats are mixed\b",
        r"\bturns? (?:tensors|it|the input) (?:a)?round\b",
        r"\b(?:fused|compiled) already\b",
        r"\bin place of what is written out\b",
        r"\bmay be theirs\b",
        r"\b(?:comes?|bits come) first$",
        r"\bhold against\b|\bheld against\b",
        r"\btold apart by process\b",
        r"\bdid not end well\b",
        r"\btake as much longer\b|\btakes as much longer\b",
    )
]


def found_in(text: str) -> list[str]:
    """The banned phrases of a text."""
    flat = " ".join(text.split())
    return [hit[0] for phrase in BANNED if (hit := phrase.search(flat))]


# -- the source: every string that can reach a person ----------------------------------------------------


def sentences_of(path: Path) -> Iterator[tuple[int, str]]:
    """The strings of a module, f-strings with {} for what is filled in, and where each begins."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    silent = _docstrings(tree, keeps_page=path.parent.name in PAGES)
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = [one.value if isinstance(one, ast.Constant) else "{}" for one in node.values]
            silent |= {id(one) for one in node.values}
            yield node.lineno, "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in silent:
            yield node.lineno, node.value


def _docstrings(tree: ast.Module, keeps_page: bool) -> set[int]:
    """Docstrings are for whoever reads the code; a module's own is a page where `keeps_page`."""
    owners = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    found: set[int] = set()
    for owner in [*owners, *([] if keeps_page else [tree])]:
        first = owner.body[0] if owner.body else None
        if isinstance(first, ast.Expr):
            found.add(id(first.value))
    return found


@pytest.mark.parametrize("folder", sorted(path.name for path in PACKAGE.iterdir() if path.is_dir()))
def test_no_banned_phrase_in_the_source(folder: str) -> None:
    said = [
        f"{path.relative_to(PACKAGE)}:{line}: {phrase!r} in {text[:100]!r}"
        for path in sorted((PACKAGE / folder).rglob("*.py"))
        for line, text in sentences_of(path)
        for phrase in found_in(text)
    ]
    assert said == [], "\n".join(said)


def test_the_readme_has_none_either() -> None:
    assert found_in((ROOT / "README.md").read_text(encoding="utf-8")) == []


# -- what it says of real jobs ---------------------------------------------------------------------------


def box_sentences(diagnosis: Diagnosis) -> list[str]:
    return SENTENCE_END.split(diagnosis.wall.sentence)


def _named(paths: list[Path]) -> list[Any]:
    return [pytest.param(path, id=path.name.removesuffix(".json.gz")) for path in paths]


@pytest.mark.parametrize("path", _named([*TRACES, *RUNS, *ZOO]))
def test_a_real_job_is_told_in_short_plain_sentences(path: Path) -> None:
    diagnosis = document(path)
    long = [one for one in box_sentences(diagnosis) if len(one.split()) > MOST_WORDS]
    assert long == []
    told = [*_texts(diagnosis), to_text(diagnosis, width=100)]
    assert [phrase for text in told for phrase in found_in(text)] == []


def _texts(diagnosis: Diagnosis) -> Iterator[str]:
    """What the document says in words."""
    yield diagnosis.wall.sentence
    yield from (one.sentence for one in diagnosis.questions)
    yield from (shown.text for row in diagnosis.budget for shown in row.evidence)
    yield from (one.how for one in diagnosis.prescriptions)
    yield from (one.why for one in diagnosis.not_worth_it)
    yield from diagnosis.notes
    yield from diagnosis.environment


@cache
def _drawn(cause: str) -> str:
    """The sentence of the case that the cause's own tests draw."""
    path = TESTS / "causes" / f"test_{cause.replace('-', '_')}.py"
    spec = importlib.util.spec_from_file_location(f"english_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    text: str = in_words(all_causes()[cause], module.fires())
    return text


@pytest.mark.parametrize("cause", WALL_OF)
def test_every_cause_is_told_in_short_plain_sentences(cause: str) -> None:
    text = _drawn(cause)
    assert found_in(text) == []
    assert [one for one in SENTENCE_END.split(text) if len(one.split()) > MOST_WORDS] == []
    assert re.match(r"(?:For )?\d", text), "the number comes first"


# -- the test itself -------------------------------------------------------------------------------------


def pairs() -> list[tuple[str, str]]:
    """The examples of the style sheet, before and after."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = text.split("| before | after |\n|---|---|\n")[1].split("\n\n")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines()]
    return [(before, after) for before, after in rows]


def test_the_style_sheet_has_ten_examples() -> None:
    assert len(pairs()) >= 10


@pytest.mark.parametrize(("before", "after"), pairs())
def test_it_finds_what_was_replaced_and_not_what_replaced_it(before: str, after: str) -> None:
    assert found_in(before)
    assert found_in(after) == []
    assert [one for one in SENTENCE_END.split(after) if len(one.split()) > MOST_WORDS] == []


def test_it_reads_what_an_f_string_says(tmp_path: Path) -> None:
    module = tmp_path / "some.py"
    module.write_text(
        '"""Not anew: a docstring."""\nWHO = "x"\nTEXT = (\n    f"{WHO} starts "\n    "anew"\n)\n'
    )
    assert (3, "{} starts anew") in [(line - 1, text) for line, text in sentences_of(module)]
    assert sum(bool(found_in(text)) for _, text in sentences_of(module)) == 1
