"""HTML in which everything that comes from outside is text.

Names of kernels, files and modules may hold anything. They become text in one place, here: `element` escapes
every child that is not markup already, `embedded` writes JSON that no HTML parser can take for a tag.
"""

from __future__ import annotations

import re
from html import escape
from typing import Any

import msgspec

from findwall.report.printable_names import clean

# `<` and `>` open and close tags and comments, `&` opens entities, U+2028 and U+2029 end lines of a script.
_IN_JSON = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}
# A figure and its unit stay on one line. Not in code: what is copied from there is typed somewhere.
_BEFORE_UNIT = re.compile(r"(?<=\d) (?=(?:ms|us|ns|s|GiB|MHz|W|[kMGTP]B|[MGTP]FLOP/s)\b|%)")
_VOID = frozenset({"br", "meta", "input", "rect", "line", "circle", "path"})


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


Child = str | Markup | None
NOTHING = Markup("")


def text(value: str) -> Markup:
    """A harmless line of text: no tags, no control characters, nothing that turns the reading direction."""
    harmless = clean(value)
    if not harmless:
        return Markup(" " if value.isspace() else "")
    before = " " if value[0] == " " else ""
    after = " " if value[-1] == " " else ""
    return Markup(before + escape(harmless, quote=True) + after)


def element(tag: str, *children: Child, **attributes: Any) -> Markup:
    """One element. Attributes that are None or False are left out; `class_` is `class`, `_` becomes `-`."""
    written = "".join(_attribute(name, value) for name, value in attributes.items())
    if tag in _VOID:
        return Markup(f"<{tag}{written}>" if tag in ("br", "meta", "input") else f"<{tag}{written}/>")
    inside = joined(*children) if tag != "code" else joined(*(text(child or "") for child in children))
    return Markup(f"<{tag}{written}>{inside}</{tag}>")


def joined(*children: Child) -> Markup:
    return Markup(
        "".join(child if isinstance(child, Markup) else _said(child) for child in children if child)
    )


def _said(value: str) -> str:
    return _BEFORE_UNIT.sub("\u00a0", text(value))


def prose(value: str) -> Markup:
    """A sentence; what stands between backticks in it is code."""
    parts = value.split("`")
    if len(parts) % 2 == 0:  # one of them has no partner
        return joined(value)
    return joined(*(element("code", part) if at % 2 else part for at, part in enumerate(parts)))


def _attribute(name: str, value: Any) -> str:
    if value is None or value is False:
        return ""
    name = name.rstrip("_").replace("_", "-")
    if value is True:
        return f" {name}"
    return f' {name}="{text(_number(value) if isinstance(value, float) else str(value))}"'


def _number(value: float) -> str:
    """A position in a drawing: hundredths are less than a pixel."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def across(percent: float) -> str:
    """A width or a place in a drawing that is as wide as the page lets it."""
    return _number(percent) + "%"


def embedded(name: str, value: Any) -> Markup:
    """A block of JSON that a script can read; nothing in it is markup."""
    return embedded_json(name, msgspec.json.encode(value).decode())


def embedded_json(name: str, written: str) -> Markup:
    return Markup(f'<script type="application/json" id="{name}">{written.translate(_IN_JSON)}</script>\n')


def section(name: str, title: str, *children: Child, note: str = "") -> Markup:
    """A headed part of the page; `note` says under the heading what is seen."""
    heading = element("h2", title, id=f"{name}-title")
    said = element("p", prose(note), class_="note") if note else None
    return element("section", heading, said, *children, id=name, aria_labelledby=f"{name}-title")


def listed(lines: list[str]) -> Markup:
    if not lines:
        return NOTHING
    return element("ul", *(element("li", prose(line)) for line in lines))
