"""Arguments of a call, set in its text: replaced where they stand, added where they do not."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

import msgspec

from findwall.patches import NoPatch
from findwall.patches.job_source import Source

_TIGHT = (ast.Name, ast.Attribute, ast.Call, ast.Subscript, ast.Dict)  # what `**` or a dot can be put beside


class Setting(msgspec.Struct, frozen=True):
    """What an argument becomes."""

    value: str
    position: int | None = None  # where it may stand without its name
    passed: bool = False  # the job passed it, in one way or another


class Change(msgspec.Struct, frozen=True):
    """The characters from `start` to `end` become `text`."""

    start: int
    end: int
    text: str
    order: int = 0  # among changes that begin at the same character
    lines: bool = False  # whole lines are put in


def keyword_of(call: ast.Call, name: str) -> ast.keyword | None:
    return next((one for one in call.keywords if one.arg == name), None)


def call_changes(source: Source, call: ast.Call, settings: Mapping[str, Setting]) -> Iterator[Change]:
    """All of one call."""
    added: dict[str, str] = {}
    overridden: dict[str, str] = {}
    for name, setting in settings.items():
        stands = _stands(call, name, setting)
        if stands is not None:
            if source.code(stands) != setting.value:
                yield Change(source.start(stands), source.end(stands), setting.value)
        elif not setting.passed:
            added[name] = setting.value
        else:
            overridden[name] = setting.value
    if overridden:
        yield _override(source, call, overridden)
    if added:
        yield from _added(source, call, [f"{name}={value}" for name, value in added.items()])


def _stands(call: ast.Call, name: str, setting: Setting) -> ast.expr | None:
    """The value that is written in the call."""
    keyword = keyword_of(call, name)
    if keyword is not None:
        return keyword.value
    if setting.position is None or len(call.args) <= setting.position:
        if setting.passed and any(isinstance(one, ast.Starred) for one in call.args):
            raise NoPatch(f"{name} may be passed by a *")
        return None
    if any(isinstance(one, ast.Starred) for one in call.args[: setting.position + 1]):
        if setting.passed:
            raise NoPatch(f"{name} is passed by a *")
        return None
    return call.args[setting.position]


def _override(source: Source, call: ast.Call, values: Mapping[str, str]) -> Change:
    """What a `**` passes is laid over: it may hold these names, and none may come twice."""
    stars = [one.value for one in call.keywords if one.arg is None]
    if len(stars) != 1:
        raise NoPatch(f"{', '.join(values)} is passed in a way that the call does not show")
    was = source.code(stars[0])
    was = was if isinstance(stars[0], _TIGHT) else f"({was})"
    more = ", ".join(f'"{name}": {value}' for name, value in values.items())
    return Change(source.start(stars[0]), source.end(stars[0]), f"{{**{was}, {more}}}")


def _added(source: Source, call: ast.Call, words: list[str]) -> Iterator[Change]:
    text, close = source.text, source.end(call) - 1
    given: list[ast.expr | ast.keyword] = [*call.args, *call.keywords]
    if not given:
        yield Change(close, close, ", ".join(words))
        return
    last = max(given, key=source.end)
    if isinstance(last, ast.GeneratorExp) and source.end(last) == source.end(call):
        opened = source.start(last) + 1  # it shares the brackets of the call
        yield Change(opened, opened, "(")
        yield Change(close, close, f"), {', '.join(words)}")
        return
    end, comma = _behind(text, source.end(last), close)
    row = source.line_of(source.start(last))
    lead = source.lines[row - 1][: source.start(last) - source.line_start(row)]
    line_end = text.find("\n", end if comma is None else comma, close)
    if lead.strip() or line_end < 0:  # the call goes on in a line, or ends in it
        if comma is None:
            yield Change(end, end, "".join(f", {word}" for word in words))
        else:
            yield Change(comma + 1, comma + 1, " " + ", ".join(words) + ("," if line_end >= 0 else ""))
        return
    if comma is None:
        yield Change(end, end, ",")
    line_end -= text[line_end - 1] == "\r"
    rows = (",").join(f"\n{lead}{word}" for word in words)
    yield Change(line_end, line_end, rows + ("" if comma is None else ","), order=1)


def _behind(text: str, at: int, close: int) -> tuple[int, int | None]:
    """Where the last argument ends, its own brackets included, and where a comma follows it."""
    end, comma = at, None
    while at < close:
        if text[at] == "#":
            at = text.find("\n", at, close)
            if at < 0:
                break
        elif text[at] == ")":
            end = at + 1
        elif text[at] == ",":
            comma = at
        at += 1
    return end, comma
