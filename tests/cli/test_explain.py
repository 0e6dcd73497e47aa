from __future__ import annotations

from pathlib import Path

import pytest

from findwall import causes, cli, fixes
from findwall.causes.wall_pages import OVERVIEW
from findwall.cli.explain import all_pages, write_docs
from findwall.model.catalogue import WALL_OF, WALLS
from findwall.model.diagnosis import json_schema

DOCS = Path(__file__).parents[2] / "docs"
CAUSE_HEADINGS = ["What it finds", "Why it costs", "How it is told apart", "What helps"]
FIX_HEADINGS = ["What it does", "When it does not help", "Risk"]
WALL_HEADINGS = ["What it is", "How it shows", "What helps", "What does not help"]


def test_every_page_has_its_headings() -> None:
    expected = {"wall": WALL_HEADINGS, "cause": CAUSE_HEADINGS, "fix": FIX_HEADINGS}
    for page in all_pages().values():
        assert [heading for heading, _ in page.sections] == expected[page.kind], page.name
        assert all(body for _, body in page.sections), page.name
        assert page.summary.endswith("."), page.name


def test_every_wall_has_an_overview() -> None:
    assert list(OVERVIEW) == list(WALLS)


@pytest.mark.parametrize("wall", WALLS)
def test_a_wall_is_explained(wall: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli._run(["explain", wall]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"{wall} (wall)\n")
    assert "What does not help" in out
    assert max(map(len, out.splitlines())) <= 80


def test_no_name_lists_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli._run(["explain"]) == 0
    out = capsys.readouterr().out
    for name in all_pages():
        assert f"{name} " in out
    assert max(map(len, out.splitlines())) <= 80


def test_an_unknown_name_gets_close_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli._run(["explain", "bandwith"]) == 2
    assert "Did you mean bandwidth?" in capsys.readouterr().err
    assert cli._run(["explain", "zzzz"]) == 2
    assert "lists them all" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("starved", "loader-starved"),
        ("sync", "host-sync"),
        ("compile", "torch-compile"),
        ("launches", "launch-bound"),
        ("straglers", "straggler"),
        ("dtype_cast", "dtype-casts"),
        ("workers", "loader-workers"),
    ],
)
def test_a_part_of_a_name_is_enough_to_be_pointed_to_it(
    asked: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli._run(["explain", asked]) == 2
    said = capsys.readouterr().err
    assert "Did you mean" in said
    assert meant in said


@pytest.mark.parametrize("spelling", ["Compute", "COMPUTE", " compute "])
def test_spelling_is_forgiven(spelling: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli._run(["explain", spelling]) == 0
    assert capsys.readouterr().out.startswith("compute (wall)")


def test_docs_are_complete_and_old_pages_go(tmp_path: Path) -> None:
    (tmp_path / "walls").mkdir()
    (tmp_path / "walls" / "gone.md").write_text("old")
    (tmp_path / "mine.md").write_text("kept")
    write_docs(tmp_path, all_pages())
    assert not (tmp_path / "walls" / "gone.md").exists()
    assert (tmp_path / "mine.md").exists()
    assert (tmp_path / "schema.json").read_bytes() == json_schema()
    for name, page in all_pages().items():
        folder = "fixes" if page.kind == "fix" else "walls"
        assert (tmp_path / folder / f"{name}.md").read_text().startswith(f"# {name}\n")
        assert f"]({folder}/{name}.md)" in (tmp_path / "index.md").read_text()


def test_the_committed_docs_are_current(tmp_path: Path) -> None:
    write_docs(tmp_path, all_pages())
    written = {path.relative_to(tmp_path): path.read_text() for path in tmp_path.rglob("*") if path.is_file()}
    for path, text in written.items():
        assert (DOCS / path).is_file(), f"{path} is missing: make docs"
        assert (DOCS / path).read_text() == text, f"{path} is out of date: make docs"
    kept = {path.relative_to(DOCS) for part in ("walls", "fixes") for path in (DOCS / part).glob("*.md")}
    assert kept <= set(written)


def test_an_unwritable_folder_is_a_clear_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert cli._run(["explain", "--write", str(tmp_path / "file" / "docs")]) == 2
    assert "cannot write" in capsys.readouterr().err


def test_unknown_pages_are_key_errors() -> None:
    with pytest.raises(KeyError):
        causes.page("overview")
    with pytest.raises(KeyError):
        fixes.page("nothing")


def test_every_cause_of_the_catalogue_has_its_file() -> None:
    modules = causes.all_causes()
    if not modules:
        pytest.skip("no cause has been written yet")
    assert set(modules) == set(WALL_OF)
