"""The page of a comparison as text: what is in it without a browser."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest
from msgspec.structs import replace

from captures import FIXTURES
from findwall import api, cli
from findwall.examine.compared import Taken, compare_sides
from findwall.model.comparison import Compared, to_json
from findwall.model.diagnosis import Diagnosis
from findwall.report.page import compared_page
from findwall.report.page.comparison_page import LONGEST_NAME, PARTS
from findwall.report.printable_names import fit
from findwall.report.texts import comparison_text as words

Document = Callable[[str], Diagnosis]
DOCUMENTS = ("full", "no_verdict", "nothing_known", "hostile", "cpu_only")


class Parsed(HTMLParser):
    """What a browser without scripts sees: cells of tables, words, and blocks of data."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.cells: list[str] = []
        self.words: list[str] = []
        self.blocks: dict[str, str] = {}
        self._block: str | None = None
        self._in_cell = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        own = dict(attrs)
        self.tags.append((tag, own))
        if tag in ("td", "th"):
            self.cells.append("")
            self._in_cell = True
        if tag in ("script", "style"):
            self._block = own.get("id") or tag
            self.blocks[self._block] = ""

    def handle_endtag(self, tag: str) -> None:
        self._in_cell = self._in_cell and tag not in ("td", "th")
        if tag in ("script", "style"):
            self._block = None

    def handle_data(self, data: str) -> None:
        if self._block is not None:
            self.blocks[self._block] += data
            return
        self.words.append(data)
        if self._in_cell:
            self.cells[-1] += data

    @property
    def text(self) -> str:
        return " ".join("".join(self.words).replace("\u00a0", " ").split())


@pytest.fixture(scope="module")
def traces() -> Compared:
    found = [api.read(FIXTURES / f"{name}.json.gz") for name in ("eager_training", "compiled_training")]
    return compare_sides([Taken(found[0])], [Taken(found[1])])


def test_the_figures_are_those_of_terminal_json_and_markdown(traces: Compared) -> None:
    parsed = Parsed(compared_page(traces, "1.0"))
    title, sentence = words.verdict(traces)
    assert title.partition(": ")[2] in parsed.text and sentence.replace("`", "") in parsed.text
    assert json.loads(parsed.blocks["comparison"]) == json.loads(to_json(traces))
    assert json.loads(parsed.blocks["markdown"]) == words.to_markdown(traces)
    text, markdown = words.to_text(traces, 200), words.to_markdown(traces)
    rows = [*words.causes(traces), *words.changed_kernels(traces)]
    assert len(rows) > 8
    at = 0
    for row in rows:
        shown = [row.label, fit(row.name, LONGEST_NAME), row.before, row.after, row.change]
        at = next(i for i in range(at, len(parsed.cells)) if parsed.cells[i : i + 5] == shown)
        figures = [row.before, row.after, row.change]
        assert re.search(r"\s+".join(map(re.escape, figures)), text)
        assert " | ".join(figures) in markdown


def test_all_kernels_are_there_written_as_the_first(traces: Compared) -> None:
    kernels = [replace(traces.kernels[0], name=f"kernel_{at}", ms=9.0 - at / 4) for at in range(30)]
    compared = replace(traces, kernels=kernels)
    parsed = Parsed(compared_page(compared))
    every = words.changed_kernels(compared, None)
    assert all(row.name in parsed.cells and row.change in parsed.cells for row in every)
    assert every[: words.KERNELS_SHOWN] == words.changed_kernels(compared) and len(every) == 30


@pytest.mark.parametrize("names", list(itertools.product(DOCUMENTS, DOCUMENTS)))
def test_any_two_documents_make_a_page_that_is_text_alone(document: Document, names: tuple[str, str]) -> None:
    compared = compare_sides(*([Taken(document(name))] for name in names))
    page = compared_page(compared, "1.0")
    parsed = Parsed(page)
    assert [own["id"] for tag, own in parsed.tags if tag == "section"] == [part for part, _ in PARTS]
    assert [own.get("id") for tag, own in parsed.tags if tag == "script"] == ["comparison", "markdown", None]
    assert not any(name.startswith("on") for _, own in parsed.tags for name in own)
    assert not any(name in ("src", "style") for _, own in parsed.tags for name in own)
    assert all((own.get("href") or "#").startswith("#") for _, own in parsed.tags)
    assert not set("\x1b\u202e\u2066\u2028") & set(parsed.text)
    assert "None" not in parsed.text.replace("None of", "")


def test_the_policy_admits_its_own_style_and_script_alone(traces: Compared) -> None:
    page = compared_page(traces)
    found = re.search(r'Content-Security-Policy" content="([^"]+)"', page)
    assert found is not None
    for tag in ("style", "script"):
        content = re.search(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        assert content is not None
        digest = base64.b64encode(hashlib.sha256(content[1].encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in found[1]
    assert found[1].startswith("default-src 'none';")


def test_the_command_writes_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = str(FIXTURES / "runs" / "late_rank")
    target = tmp_path / "compared.html"
    assert cli._run(["compare", run, run, "--html", str(target)]) == 0
    out, _ = capsys.readouterr()
    assert out.startswith("NO DIFFERENCE: step ")
    assert out.splitlines()[0].partition(": ")[2] in Parsed(target.read_text(encoding="utf-8")).text
    assert cli._run(["compare", run, run, "--html", str(tmp_path / "no" / "x.html")]) == 2
    out, err = capsys.readouterr()
    assert out.startswith("NO DIFFERENCE") and "cannot write" in err
