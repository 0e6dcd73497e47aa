from __future__ import annotations

from findwall.report.explained import index, parse, to_markdown, to_text

TEXT = """A one-sentence summary.

What it finds:
Something that goes on
over two lines.

What helps: on the same line.

    code(stays=1)
"""


def test_a_page_is_its_docstring_in_sections() -> None:
    page = parse("cause", "host-sync", TEXT, wall=("overhead",), fixes=())
    assert page.summary == "A one-sentence summary."
    assert page.sections == (
        ("What it finds", "Something that goes on\nover two lines."),
        ("What helps", "on the same line.\n\n    code(stays=1)"),
    )
    assert page.links == (("wall", ("overhead",)),)


def test_text_is_filled_but_code_is_not() -> None:
    text = to_text(parse("cause", "host-sync", TEXT))
    assert "  Something that goes on over two lines." in text
    assert "\n      code(stays=1)\n" in text
    assert max(map(len, text.splitlines())) <= 80


def test_markdown_links_to_other_pages() -> None:
    page = parse("cause", "host-sync", TEXT, wall=("overhead",))
    text = to_markdown(page, {"overhead": "../walls/overhead.md"})
    assert text.startswith("# host-sync\n\nA one-sentence summary.\n\n## What it finds\n\nSomething")
    assert text.endswith("Wall: [overhead](../walls/overhead.md)\n")


def test_the_index_lists_every_page() -> None:
    pages = {
        "overhead": parse("wall", "overhead", "The host is slow."),
        "host-sync": parse("cause", "host-sync", TEXT),
        "remove-sync": parse("fix", "remove-sync", "Take | out."),
    }
    text = index(pages, {name: f"{name}.md" for name in pages})
    assert "## [overhead](overhead.md)" in text
    assert "| [host-sync](host-sync.md) | A one-sentence summary. |" in text
    assert "| [remove-sync](remove-sync.md) | Take \\| out. |" in text
