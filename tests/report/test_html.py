from __future__ import annotations

from collections.abc import Callable
from html.parser import HTMLParser

import pytest

from findwall.loop import measure
from findwall.model.diagnosis import Diagnosis, from_json, to_json
from findwall.notebook import shown
from findwall.report.html import to_html

Document = Callable[[str], Diagnosis]
KNOWN_TAGS = {"div", "b", "p", "br", "ul", "li", "table", "tr", "th", "td"}


class Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        assert all(name == "style" for name, _ in attrs)
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize("name", ["full", "no_verdict", "nothing_known", "hostile", "cpu_only"])
def test_it_is_whole_and_nothing_in_it_is_markup(document: Document, name: str) -> None:
    tags = Tags(to_html(document(name)))
    assert tags.open == []
    assert tags.seen <= KNOWN_TAGS


def test_it_says_the_wall_what_to_try_and_the_budget(document: Document) -> None:
    text = to_html(document("full"))
    order = [
        "THE WALL: compute / misaligned-shapes",
        "pad-shapes, a step of 28.4 ms at best",
        "<td>17.2 ms</td>",
    ]
    places = [text.index(part) for part in order]
    assert places == sorted(places)


def test_a_shown_document_is_the_document(document: Document) -> None:
    diagnosis = document("no_verdict")
    seen = shown(diagnosis)
    assert isinstance(seen, Diagnosis)
    assert to_json(seen) == to_json(diagnosis)
    assert "NO VERDICT YET" in str(seen)
    assert seen._repr_html_().startswith("<div")
    assert from_json(to_json(seen)) == diagnosis


def test_in_python_a_remedy_is_an_argument(document: Document) -> None:
    seen = shown(document("no_verdict"))
    for text in (str(seen), seen._repr_html_()):
        assert "--step-ms" not in text
        assert "step_ms=" in text


def test_a_notebook_has_the_page_in_a_frame_that_sees_nothing_of_it(document: Document) -> None:
    from html import unescape

    said = shown(document("hostile"))._repr_html_()
    assert said.count("<iframe") == 1
    assert said.startswith('<div><iframe sandbox="allow-scripts" ')
    inside = said.split('srcdoc="', 1)[1].split('"', 1)[0]
    assert unescape(inside).startswith("<!DOCTYPE html>")
    assert "<script" not in said.replace(inside, "")


def test_before_there_is_a_verdict_there_is_none() -> None:
    assert measure().diagnosis is None
