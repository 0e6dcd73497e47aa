"""The page of a wall, a cause or a fix: the docstring it is written in, as text and as Markdown."""

from __future__ import annotations

import re
import textwrap

import msgspec

HEADINGS = (
    "What it is",
    "What it finds",
    "Why it costs",
    "How it is told apart",
    "How it shows",
    "What it does",
    "What helps",
    "What does not help",
    "When it does not help",
    "Risk",
)
_HEADING = re.compile(rf"^({'|'.join(HEADINGS)}):[ \t]*(.*)$")


class Page(msgspec.Struct, frozen=True):
    """A summary, headed sections, and lists of other pages it points to."""

    kind: str  # "wall", "cause" or "fix"
    name: str
    summary: str
    sections: tuple[tuple[str, str], ...]
    links: tuple[tuple[str, tuple[str, ...]], ...] = ()


def parse(kind: str, name: str, text: str, **links: tuple[str, ...]) -> Page:
    """A page out of its text: the first paragraph, then what stands under each heading."""
    sections: list[tuple[str, list[str]]] = [("", [])]
    for line in text.strip().splitlines():
        found = _HEADING.match(line)
        if found:
            sections.append((found[1], [found[2]] if found[2] else []))
        else:
            sections[-1][1].append(line)
    opening, *rest = [(heading, "\n".join(lines).strip()) for heading, lines in sections]
    summary, _, more = opening[1].partition("\n\n")
    headed = ([("", more.strip())] if more.strip() else []) + rest
    return Page(
        kind,
        name,
        " ".join(summary.split()),
        tuple(headed),
        tuple((label.replace("_", " "), names) for label, names in links.items() if names),
    )


WIDTH = 80  # columns


def to_text(page: Page) -> str:
    """The page for a terminal."""
    blocks = [f"{page.name} ({page.kind})", _wrap(page.summary, WIDTH)]
    for heading, body in page.sections:
        wrapped = textwrap.indent(_wrap(body, WIDTH - 2), "  ")
        blocks.append(f"{heading}\n{wrapped}" if heading else wrapped)
    blocks += [_wrap(f"{label.capitalize()}: {', '.join(names)}", WIDTH) for label, names in page.links]
    return "\n\n".join(blocks) + "\n"


def to_markdown(page: Page, paths: dict[str, str]) -> str:
    """The page as Markdown; `paths` says where the pages it links to lie."""
    blocks = [f"# {page.name}", page.summary]
    for heading, body in page.sections:
        blocks += [f"## {heading}", body] if heading else [body]
    for label, names in page.links:
        linked = ", ".join(f"[{name}]({paths[name]})" if name in paths else name for name in names)
        blocks.append(f"{label.capitalize()}: {linked}")
    return "\n\n".join(blocks) + "\n"


def _wrap(text: str, width: int) -> str:
    """Paragraphs filled to `width`; lists and indented lines (code) stay as they were written."""
    return "\n\n".join(_fill(paragraph, width) for paragraph in text.split("\n\n"))


def _fill(paragraph: str, width: int) -> str:
    lines = paragraph.splitlines()
    if any(line.startswith((" ", "- ", "* ")) for line in lines):
        return paragraph
    return textwrap.fill(" ".join(lines), width, break_long_words=False, break_on_hyphens=False)


def index(pages: dict[str, Page], paths: dict[str, str]) -> str:
    """The first page: every wall with its causes, then every fix."""
    lines = [
        "# findwall",
        "",
        "What each wall, cause and fix means. The same pages are printed by `findwall explain NAME`.",
        "The JSON that `--json` writes is described by [schema.json](schema.json).",
    ]
    for name, page in pages.items():
        link = f"[{name}]({paths[name]})"
        if page.kind == "wall":
            lines += ["", f"## {link}", "", page.summary, "", "| cause | |", "|---|---|"]
        elif page.kind == "cause":
            lines.append(f"| {link} | {_cell(page.summary)} |")
    fixes = [
        f"| [{name}]({paths[name]}) | {_cell(page.summary)} |"
        for name, page in pages.items()
        if page.kind == "fix"
    ]
    return "\n".join([*lines, "", "## Fixes", "", "| fix | |", "|---|---|", *fixes]) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
