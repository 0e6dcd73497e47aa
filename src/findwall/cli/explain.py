"""Print the page of a wall, a cause or a fix; without a name, list them."""

from __future__ import annotations

import difflib
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import click

from findwall.errors import InputError

if TYPE_CHECKING:
    from findwall.report.explained import Page

NAME_COLUMN = 27  # characters: the longest name and a blank or two
# Chosen by hand: what a person reads at a glance, and words that are likely a slip of the other.
MOST_NEAR = 3
SHORTEST_WORD = 3  # letters
SAME_WORD = 0.8  # of difflib's ratio


@click.command("explain", help=__doc__)
@click.argument("name", required=False)
@click.option(
    "--write", "folder", type=click.Path(file_okay=False), metavar="FOLDER", help="Write all pages."
)
def command(name: str | None, folder: str | None) -> None:
    from findwall.report import explained
    from findwall.report.stream import say

    pages = all_pages()
    if folder is not None:
        write_docs(Path(folder), pages)
    elif name is None:
        say(_listing(pages))
    elif _id(name) in pages:
        say(explained.to_text(pages[_id(name)]))
    else:
        close = _near(_id(name), list(pages))
        hint = f"Did you mean {' or '.join(close)}?" if close else "`findwall explain` lists them all."
        raise InputError(f"no wall, cause or fix is called '{name}'", hint)


def _id(name: str) -> str:
    """People also write `host_sync`, `Host-Sync` and `overhead/host-sync`."""
    return name.strip().lower().replace("_", "-").rpartition("/")[2].strip()


def _near(name: str, known: list[str]) -> list[str]:
    """Names like it: written nearly so, or with one of its words in them (`starved`: loader-starved)."""
    close = difflib.get_close_matches(name, known, n=MOST_NEAR)
    words = [word for word in name.split("-") if len(word) >= SHORTEST_WORD]
    parts = {part for one in known for part in one.split("-") if len(part) >= SHORTEST_WORD}
    meant = {near for word in words for near in difflib.get_close_matches(word, parts, cutoff=SAME_WORD)}
    holding = [
        one
        for one in known
        if meant & set(one.split("-")) or any(word in one or one in word for word in words)
    ]
    return list(dict.fromkeys([*close, *holding]))[:MOST_NEAR]


def all_pages() -> dict[str, Page]:
    """Every page by its name: walls, each followed by its causes, then fixes."""
    from findwall import fixes
    from findwall.causes import page
    from findwall.causes.wall_pages import OVERVIEW
    from findwall.model.catalogue import WALLS
    from findwall.report.explained import parse

    moves = {name: fix.moves for name, fix in fixes.all_fixes().items()}
    pages = {}
    for wall, causes in WALLS.items():
        pages[wall] = parse("wall", wall, OVERVIEW[wall], causes=causes)
        for cause in causes:
            helping = tuple(fix for fix, moved in moves.items() if cause in moved)
            pages[cause] = parse("cause", cause, page(cause), wall=(wall,), fixes=helping)
    return pages | {fix: parse("fix", fix, fixes.page(fix), moves=moved) for fix, moved in moves.items()}


def _listing(pages: dict[str, Page]) -> str:
    lines = []
    for name, page in pages.items():
        indent = "  " if page.kind == "cause" else ""
        if page.kind == "fix" and "fixes:" not in lines:
            lines += ["", "fixes:"]
        lines.append(_in_lines(f"{indent}{name:<{NAME_COLUMN - len(indent)}}", page.summary))
    return "\n".join(lines) + "\n"


def _in_lines(label: str, summary: str) -> str:
    """Whole: what does not fit goes on under its own column."""
    return textwrap.fill(summary, 80, initial_indent=label, subsequent_indent=" " * len(label))


def write_docs(folder: Path, pages: dict[str, Page]) -> None:
    """The documentation that is made from the source: a file a page, the commands, the JSON document."""
    import json

    from findwall.cli import commands
    from findwall.cli.around import reference
    from findwall.model.diagnosis import json_schema
    from findwall.report import document, documented, explained

    paths = {
        name: f"{'fixes' if entry.kind == 'fix' else 'walls'}/{name}.md" for name, entry in pages.items()
    }
    files = {paths[name]: explained.to_markdown(entry, _from_below(paths)) for name, entry in pages.items()}
    files["index.md"] = explained.index(pages, paths)
    files["commands.md"] = reference.to_markdown(commands)
    files["schema.json"] = json_schema().decode()
    files["document.md"] = documented.to_markdown(json.loads(files["schema.json"]))
    _clear(folder, files)
    for path, text in files.items():
        document.save(folder / path, text.encode())


def _clear(folder: Path, files: dict[str, str]) -> None:
    """Make the folders and take away the pages that are no more."""
    try:
        for part in ("walls", "fixes"):
            (folder / part).mkdir(parents=True, exist_ok=True)
            for old in (folder / part).glob("*.md"):
                if f"{part}/{old.name}" not in files:
                    old.unlink()
    except OSError as error:
        raise InputError(
            f"cannot write to {folder}: {error.strerror}", "Name a folder you may write to."
        ) from error


def _from_below(paths: dict[str, str]) -> dict[str, str]:
    return {name: f"../{path}" for name, path in paths.items()}
