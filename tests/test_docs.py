"""What the documentation says exists: links, commands and options, figures, names, code."""

from __future__ import annotations

import ast
import json
import re
import shlex
import textwrap
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import click
import pytest

from findwall.agent.options import Options
from findwall.cli import commands
from findwall.cli.explain import all_pages
from test_english import found_in

ROOT = Path(__file__).parents[1]
GUIDES = sorted((ROOT / "docs").glob("*.md"))
PAGES = [
    *GUIDES,
    *sorted((ROOT / "docs" / "walls").glob("*.md")),
    *sorted((ROOT / "docs" / "fixes").glob("*.md")),
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "benchmarks/README.md")),
]
WRITTEN = [page for page in GUIDES if page.name not in ("index.md", "commands.md", "document.md")]

LINK = re.compile(r'\[(?P<label>[^\]\[]*)\]\((?P<to>[^)\s]+)(?:\s+"(?P<field>[^"]*)")?\)')
BLOCK = re.compile(r"^```(?P<kind>\w*)\n(?P<code>.*?)^```$", re.M | re.S)
INDENTED = re.compile(r"(?:(?<=\n\n)|\A)(?: {4}[^\n]*\n|\n(?= {4}))+")
SPAN = re.compile(r"(?<!`)`([^`]+)`(?!`)")
CALL = re.compile(r"^(?:torchrun .*-m )?findwall(?: (?P<words>.*))?$")
OPTION = re.compile(r"^--?[a-z][\w-]*")


def shown(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def named(pages: list[Path]) -> list[Any]:
    return [pytest.param(page, id=str(page.relative_to(ROOT))) for page in pages]


# -- links -----------------------------------------------------------------------------------------------


def anchors(page: Path) -> set[str]:
    """As GitHub makes them of headings."""
    headings = re.findall(r"^#+ (.+)$", BLOCK.sub("", shown(page)), re.M)
    plain = (LINK.sub(lambda link: link["label"], heading).lower() for heading in headings)
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("page", named(PAGES))
def test_every_link_leads_somewhere(page: Path) -> None:
    broken = []
    for link in LINK.finditer(BLOCK.sub("", shown(page))):
        path, _, anchor = unquote(link["to"]).partition("#")
        if "://" in path:
            continue
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link[0])
    assert broken == []


def test_the_index_leads_to_every_guide() -> None:
    linked = {link["to"] for link in LINK.finditer(shown(ROOT / "docs" / "README.md"))}
    assert {page.name for page in GUIDES} - {"README.md"} <= linked
    assert "docs/README.md" in {link["to"] for link in LINK.finditer(shown(ROOT / "README.md"))}


def test_every_picture_is_shown() -> None:
    pictures = {f"pictures/{path.name}" for path in (ROOT / "docs" / "pictures").glob("*.png")}
    linked = {
        link["to"].removeprefix("docs/")
        for page in [*GUIDES, ROOT / "README.md"]
        for link in LINK.finditer(shown(page))
    }
    assert pictures <= linked


# -- commands --------------------------------------------------------------------------------------------


def code_of(page: Path) -> Iterator[str]:
    """Whatever is written as code, a line each."""
    text = shown(page)
    for block in BLOCK.finditer(text):
        if block["kind"] not in ("python", "diff"):
            yield from block["code"].splitlines()
    text = BLOCK.sub("", text)
    for indented in INDENTED.findall(text):
        yield from textwrap.dedent(indented).splitlines()
    for span in SPAN.findall(INDENTED.sub("\n", text)):
        yield " ".join(span.split())


def complaint(line: str) -> str:
    """What the command line's own parser says against a call; empty: nothing."""
    found = CALL.match(line.partition("  #")[0].strip())
    words = shlex.split(found["words"] or "") if found else []
    if not words or words[0].isupper() or words[0] in ("…", "[OPTIONS]"):
        return ""
    group = click.Context(commands)
    if words[0].startswith("-"):
        return "" if any(words[0] in one.opts for one in commands.get_params(group)) else f"no {words[0]}"
    command = commands.get_command(group, words[0])
    if command is None:
        return f"there is no command {words[0]}"
    context = command.context_class(command, parent=group, info_name=words[0], **command.context_settings)
    try:
        command.make_parser(context).parse_args([word for word in words[1:] if word != "[OPTIONS]"])
    except click.UsageError as error:
        return error.format_message()
    known = all_pages()
    asked = words[1] if words[0] == "explain" and len(words) == 2 else ""
    return (
        f"nothing is called {asked}"
        if asked and not asked.isupper() and asked not in known | {"[NAME]": 0}
        else ""
    )


@pytest.mark.parametrize("page", named(PAGES))
def test_every_command_can_be_typed(page: Path) -> None:
    said = [f"{line}: {why}" for line in code_of(page) if (why := complaint(line))]
    assert said == []


@cache
def options() -> set[str]:
    group = click.Context(commands)
    every = [commands.get_command(group, name) for name in commands.list_commands(group)]
    params = [*commands.get_params(group), *(one for each in every if each for one in each.get_params(group))]
    return {name for one in params for name in (*one.opts, *one.secondary_opts)}


# Of other programs that the pages speak of.
OTHERS = {
    "--drawn",
    "--ship",
    "--check",
    "--only",
    "--quick",
    "-m",
    "--size",
    "--steps",
    "--out",
    "--fix",
    "--seconds",
    "--kept",
    "--show",
    "--list",
    "--nproc-per-node",
    "--max-restarts",
}


@pytest.mark.parametrize("page", named(PAGES))
def test_every_option_exists(page: Path) -> None:
    alone = [found[0] for line in code_of(page) if (found := OPTION.match(line))]
    assert [name for name in alone if name not in options() | OTHERS] == []


def test_a_wrong_command_is_found() -> None:
    assert "No such option" in complaint("findwall read --step-s 3 trace.json")
    assert "no command reed" in complaint("findwall reed trace.json")
    assert "nothing is called walls" in complaint("findwall explain walls")
    assert complaint("findwall run train.py --lr 3e-4") == ""
    assert complaint("torchrun --nproc-per-node 8 -m findwall run train.py") == ""


# -- figures: [7.51 ms](../benchmarks/results/run_zoo.json "jobs/job=tiny_transformer/step_ms") -------------

NUMBER = re.compile(r"^(?P<number>[\d,]+(?:\.(?P<decimals>\d+))?)\s?(?P<unit>.*)$")
WORDS = {"none": 0.0, "no": 0.0}
UNITS = {
    "": 1.0,
    "ms": 1.0,
    "s": 1.0,
    "%": 1e-2,
    "MB": 1e6,
    "million": 1e6,
    "TFLOP/s": 1e12,
    "TB/s": 1e12,
}


@cache
def results(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def looked_up(value: Any, field: str) -> float:
    """A field by its way: names, numbers of rows, rows by `key=value`, `#` for how many there are."""
    for part in field.split("/"):
        if part == "#":
            value = len(value)
        elif isinstance(value, dict):
            value = value[part]
        elif "=" in part:
            wanted = dict(pair.split("=", 1) for pair in part.split("&"))
            value = next(row for row in value if all(str(row[key]) == of for key, of in wanted.items()))
        else:
            value = value[int(part)]
    return float(value)


def agrees(label: str, value: float) -> bool:
    """Whether the figure as it is shown is the value, rounded. Errors are shown without their sign."""
    if label in WORDS:
        return value == WORDS[label]
    found = NUMBER.match(label)
    assert found is not None and found["unit"] in UNITS, label
    places = len(found["decimals"] or "")
    return (
        abs(float(found["number"].replace(",", "")) - abs(value) / UNITS[found["unit"]])
        <= 0.5001 * 10**-places
    )


@pytest.mark.parametrize("page", named([*WRITTEN, ROOT / "README.md"]))
def test_every_figure_is_the_one_in_its_file(page: Path) -> None:
    wrong = []
    for link in LINK.finditer(shown(page)):
        if link["field"] is not None:
            value = looked_up(results((page.parent / link["to"]).resolve()), link["field"])
            wrong += [] if agrees(link["label"], value) else [f"{link['label']} is {value}: {link['field']}"]
    assert wrong == []


def test_a_wrong_figure_is_found() -> None:
    assert agrees("7.51 ms", 7.5056) and not agrees("7.52 ms", 7.5056)
    assert agrees("4.2 %", 0.0421) and agrees("1,290", 1290) and not agrees("none", 1)


# -- words and code --------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", named(WRITTEN))
def test_no_banned_phrase(page: Path) -> None:
    assert found_in(BLOCK.sub("", shown(page))) == []


@pytest.mark.parametrize("page", named(WRITTEN))
def test_python_compiles_and_its_options_exist(page: Path) -> None:
    for block in BLOCK.finditer(shown(page)):
        if block["kind"] == "python":
            ast.parse(block["code"])
    called = re.findall(
        r"`(\w+)=[\w.]+`", "".join(re.findall(r"options of `findwall run`[^.]*", shown(page)))
    )
    assert [name for name in called if name not in {one.name for one in fields(Options)}] == []
