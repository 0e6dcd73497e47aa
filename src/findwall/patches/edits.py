"""Edits of one file, collected on its original text and made together."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

import msgspec

from findwall.patches import NoPatch
from findwall.patches.call_arguments import Change, Setting, call_changes
from findwall.patches.job_source import Source


class Wrap(msgspec.Struct, frozen=True):
    """Lines that move one level in, under a header."""

    first: int
    last: int
    header: str


class FileEdits:
    """Nothing is changed until `render`."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._changes: list[Change] = []
        self._calls: dict[int, tuple[ast.Call, dict[str, Setting]]] = {}
        self._wraps: list[Wrap] = []
        self._removed: list[ast.stmt] = []
        self._imports: list[str] = []
        self._first: list[str] = []
        self._before_imports: list[str] = []

    def copy(self) -> FileEdits:
        same = FileEdits.__new__(FileEdits)
        same.__dict__.update({name: _copied(value) for name, value in self.__dict__.items()})
        return same

    def set_argument(self, call: ast.Call, name: str, setting: Setting) -> None:
        known = self._calls.setdefault(self.source.end(call), (call, {}))[1]
        if name in known and known[name].value != setting.value:
            raise NoPatch(f"two fixes set {name} in one call")
        known[name] = setting

    def replace(self, node: ast.expr, text: str) -> None:
        self._add(Change(self.source.start(node), self.source.end(node), text))

    def append(self, node: ast.expr, text: str) -> None:
        """Right behind an expression."""
        end = self.source.end(node)
        self._add(Change(end, end, text))

    def enclose(self, node: ast.expr) -> None:
        start, end = self.source.start(node), self.source.end(node)
        self._add(Change(start, start, "("))
        self._add(Change(end, end, ")", order=-1))

    def insert_after(self, statement: ast.stmt, *lines: str) -> None:
        self._insert(statement, (statement.end_lineno or statement.lineno) + 1, lines)

    def insert_before(self, statement: ast.stmt, *lines: str) -> None:
        self._insert(statement, statement.lineno, lines)

    def _insert(self, statement: ast.stmt, at_line: int, lines: Sequence[str]) -> None:
        if not self.source.has_own_lines(statement, statement):
            raise NoPatch(f"line {statement.lineno} holds more than one statement")
        indent = self.source.indent_of(statement)
        at = self.source.line_start(at_line)
        self._add(Change(at, at, "".join(f"{indent}{line}\n" for line in lines), order=-2, lines=True))

    def _add(self, change: Change) -> None:
        if change not in self._changes:
            self._changes.append(change)

    def wrap(self, first: ast.stmt, last: ast.stmt, header: str) -> None:
        """Put whole statements of one block under a header."""
        block = self.source.block(first)
        inside = block[block.index(first) : block.index(last) + 1]
        if any(isinstance(node, _STOPS) for one in inside for node in ast.walk(one)):
            raise NoPatch("the lines are part of a generator or coroutine")
        if not self.source.has_own_lines(first, last):
            raise NoPatch(f"line {first.lineno} or {last.end_lineno} holds more than one statement")
        new = Wrap(first.lineno, last.end_lineno or last.lineno, header)
        if new in self._wraps:
            return
        if any(new.first <= one.last and one.first <= new.last for one in self._wraps):
            raise NoPatch("the lines are wrapped already")
        self._wraps.append(new)

    def remove(self, statement: ast.stmt) -> None:
        if statement in self._removed:
            return
        if not self.source.has_own_lines(statement, statement):
            raise NoPatch(f"line {statement.lineno} holds more than one statement")
        self._removed.append(statement)

    def at_start(self, *lines: str) -> None:
        """Behind the imports."""
        self._first += [line for line in lines if line not in self._first]

    def before_imports(self, *lines: str) -> None:
        self._before_imports += [line for line in lines if line not in self._before_imports]

    def module(self, name: str) -> str:
        """What a module is called in this file; imported where it was not."""
        known = self.source.name_of(name)
        if known is None and f"import {name}" not in self._imports:
            self._imports.append(f"import {name}")
        return known or name

    @property
    def is_changed(self) -> bool:
        return self.render() != self.source.text

    def render(self) -> str:
        """The edited text. It parses, or there is none."""
        changes = [*self._changes, *self._of_calls(), *self._of_removed(), *self._at_top(), *self._of_wraps()]
        changes.sort(key=lambda one: (one.start, one.order))
        parts, done = [], 0
        for one in changes:
            if one.start < done:
                raise NoPatch("two edits meet")
            parts += [self.source.text[done : one.start], self._text(one)]
            done = one.end
        text = "".join(parts) + self.source.text[done:]
        try:
            ast.parse(text)
        except SyntaxError as error:
            raise NoPatch("the edited file would not parse") from error
        return text

    def _text(self, change: Change) -> str:
        """With the line ends of the file, and as far in as the lines around it."""
        text, source = change.text.replace("\r\n", "\n"), self.source
        if change.lines and change.start == len(source.text) and not source.text.endswith("\n"):
            text = "\n" + text[:-1]
        around = sum(
            source.line_start(one.first) < change.start < source.line_start(one.last + 1)
            for one in self._wraps
        )
        if around and change.order > _OF_WRAPS:
            text = text.replace("\n", "\n" + around * source.indent_unit)
        elif around and change.lines:
            text = "".join(around * source.indent_unit + line for line in text.splitlines(True))
        return text.replace("\n", source.newline)

    def _of_calls(self) -> Iterator[Change]:
        for call, settings in self._calls.values():
            yield from call_changes(self.source, call, settings)

    def _of_removed(self) -> Iterator[Change]:
        source = self.source
        for one in self._removed:
            if all(other in self._removed for other in source.block(one)):
                yield Change(source.start(one), source.end(one), "pass")
            else:
                first, after = one.lineno, (one.end_lineno or one.lineno) + 1
                yield Change(source.line_start(first), source.line_start(after), "", order=1)

    def _of_wraps(self) -> Iterator[Change]:
        source = self.source
        gone = {
            line
            for one in self._removed
            if not all(other in self._removed for other in source.block(one))
            for line in range(one.lineno, (one.end_lineno or one.lineno) + 1)
        }
        for wrap in self._wraps:
            at = source.line_start(wrap.first)
            line = source.lines[wrap.first - 1]
            indent = line[: len(line) - len(line.lstrip(" \t\f"))]
            yield Change(at, at, f"{indent}{wrap.header}\n", order=_OF_WRAPS - 1)
            for number in range(wrap.first, wrap.last + 1):
                if number in gone or number in source.inside_strings or not source.lines[number - 1].strip():
                    continue
                at = source.line_start(number)
                yield Change(at, at, source.indent_unit, order=_OF_WRAPS)

    def _at_top(self) -> Iterator[Change]:
        source = self.source
        last = source.after_imports()
        if not last:
            heads = (number for number, line in enumerate(source.lines) if not line.startswith("#"))
            last = next(heads, len(source.lines))
        at = source.line_start(last + 1)
        follows = source.lines[last] if last < len(source.lines) else ""
        lines = [*self._imports, *([""] if last else []), *self._first] if self._first else self._imports
        if lines:
            end = "\n" if follows.strip() else ""
            yield Change(at, at, "".join(f"{line}\n" for line in lines) + end, order=-3, lines=True)
        if self._before_imports:
            first = next((one for one in source.tree.body if _begins(one)), None)
            at = source.line_start(first.lineno) if first is not None else source.line_start(last + 1)
            text = "".join(f"{line}\n" for line in (*self._before_imports, ""))
            yield Change(at, at, text, order=-4, lines=True)


_OF_WRAPS = -1  # behind lines that are inserted before them, ahead of what changes in them
_STOPS = (ast.Yield, ast.YieldFrom, ast.Await, ast.AsyncFor, ast.AsyncWith)


def _begins(statement: ast.stmt) -> bool:
    """The first import, which may not stand above those from the future."""
    return isinstance(statement, ast.Import) or (
        isinstance(statement, ast.ImportFrom) and statement.module != "__future__"
    )


def _copied(value: object) -> object:
    if isinstance(value, dict):
        return {key: (call, dict(settings)) for key, (call, settings) in value.items()}
    return list(value) if isinstance(value, list) else value
