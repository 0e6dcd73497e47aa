"""A file of the job: its text, what the parser makes of it, and the expression that was running at a spot."""

from __future__ import annotations

import ast
import codecs
import io
import re
import tokenize
from bisect import bisect_right
from collections.abc import Iterator
from functools import cached_property
from itertools import chain, count

from findwall.model.applied import Spot
from findwall.patches import NoPatch

Function = ast.FunctionDef | ast.AsyncFunctionDef
Scope = ast.Module | Function | ast.Lambda | ast.ClassDef
_ALONE = re.compile(r"[ \t\f]*(#.*)?")


class Source:
    """Offsets are in characters of `text`."""

    def __init__(self, data: bytes) -> None:
        self.mark = codecs.BOM_UTF8 if data.startswith(codecs.BOM_UTF8) else b""
        try:
            encoding = tokenize.detect_encoding(io.BytesIO(data).readline)[0]
            self.text = data[len(self.mark) :].decode("utf-8")
            self.tree = ast.parse(self.text)
        except (SyntaxError, ValueError) as error:
            raise NoPatch("the file cannot be read as Python in UTF-8") from error
        if encoding not in ("utf-8", "utf-8-sig") or re.search(r"\r(?!\n)", self.text):
            raise NoPatch("the file is not in UTF-8, or its lines end in a way that git does not know")
        self.lines = re.findall(r"[^\n]*\n|[^\n]+", self.text)  # as the parser and git count
        self.newline = "\r\n" if "\r\n" in self.text else "\n"
        self._starts = [0]
        for line in self.lines:
            self._starts.append(self._starts[-1] + len(line))
        self.parents = {child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)}

    def offset(self, line: int, column: int) -> int:
        """`column` in bytes, as the parser counts."""
        text = self.lines[line - 1] if line <= len(self.lines) else ""
        return self._starts[line - 1] + len(text.encode()[:column].decode(errors="ignore"))

    def line_start(self, line: int) -> int:
        return self._starts[min(line - 1, len(self.lines))]

    def line_of(self, offset: int) -> int:
        return bisect_right(self._starts, offset, hi=len(self.lines))

    def start(self, node: ast.expr | ast.stmt | ast.keyword) -> int:
        return self.offset(node.lineno, node.col_offset)

    def end(self, node: ast.expr | ast.stmt | ast.keyword) -> int:
        return self.offset(node.end_lineno or node.lineno, node.end_col_offset or 0)

    def code(self, node: ast.expr | ast.stmt | ast.keyword) -> str:
        return self.text[self.start(node) : self.end(node)]

    def call_at(self, spot: Spot) -> ast.Call:
        """The call that was running. No two calls end at the same bracket."""
        calls = [node for node in ast.walk(self.tree) if isinstance(node, ast.Call)]
        if spot.end_column >= 0:
            found = [
                one
                for one in calls
                if (one.end_lineno, one.end_col_offset) == (spot.end_line, spot.end_column)
            ]
        else:  # Python 3.10 tells the line alone
            found = [one for one in calls if one.lineno <= spot.line <= (one.end_lineno or one.lineno)]
            found = [one for one in found if not isinstance(self.statement(one), _COMPOUND)] or found
        if len(found) != 1:
            raise NoPatch(f"no single call was found in line {spot.line}")
        return found[0]

    def statement(self, node: ast.AST) -> ast.stmt:
        while not isinstance(node, ast.stmt):
            node = self.parents[node]
        return node

    def scope(self, node: ast.AST) -> Scope:
        """The function or module whose names it sees."""
        node = self.parents[node]
        while not isinstance(
            node, (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
        ):
            node = self.parents[node]
        return node

    def class_of(self, function: Scope) -> ast.ClassDef | None:
        parent = self.parents.get(function)
        return parent if isinstance(parent, ast.ClassDef) else None

    def block(self, statement: ast.stmt) -> list[ast.stmt]:
        """Where it stands, with its neighbours."""
        parent = self.parents[statement]
        for name in ("body", "orelse", "finalbody"):
            block = getattr(parent, name, None)
            if isinstance(block, list) and statement in block:
                return block
        raise NoPatch("a statement is in no block")

    def above(self, statement: ast.stmt) -> Iterator[ast.stmt]:
        """The statement, and those around it up to its scope, innermost first."""
        node: ast.AST = statement
        while not isinstance(node, (ast.Module, ast.ClassDef)):
            if isinstance(node, ast.stmt):
                yield node
            node = self.parents[node]
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
                return

    def has_own_lines(self, first: ast.stmt, last: ast.stmt) -> bool:
        """Nothing else is in the lines of these statements."""
        before = self.text[self.line_start(_first_line(first)) : self.start(first)]
        if getattr(first, "decorator_list", None):
            before = ""
        after = self.text[self.end(last) : self.line_start((last.end_lineno or last.lineno) + 1)]
        return not before.strip() and bool(_ALONE.fullmatch(after.rstrip("\r\n")))

    def indent_of(self, statement: ast.stmt) -> str:
        line: str = self.lines[_first_line(statement) - 1]
        return line[: len(line) - len(line.lstrip(" \t\f"))]

    @cached_property
    def indent_unit(self) -> str:
        """What one level is in this file."""
        for node in ast.walk(self.tree):
            body = getattr(node, "body", None)
            if isinstance(node, ast.stmt) and isinstance(body, list) and body[0].lineno > node.lineno:
                outer, inner = self.indent_of(node), self.indent_of(body[0])
                if inner.startswith(outer) and len(inner) > len(outer):
                    return inner[len(outer) :]
        return "    "

    @cached_property
    def inside_strings(self) -> frozenset[int]:
        """Lines that begin inside a string: more blanks there would change it."""
        kinds = (tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING))
        found: set[int] = set()
        for token in tokenize.generate_tokens(io.StringIO(self.text).readline):
            if token.type in kinds:
                found.update(range(token.start[0] + 1, token.end[0] + 1))
        return frozenset(found)

    @cached_property
    def imports(self) -> dict[str, str]:
        """What each name that is imported stands for, as `torch.utils.data.DataLoader`."""
        names: dict[str, str] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                for one in node.names:
                    names[one.asname or one.name.partition(".")[0]] = (
                        one.name if one.asname else one.name.partition(".")[0]
                    )
            elif isinstance(node, ast.ImportFrom):
                names.update(
                    {one.asname or one.name: f"{node.module or ''}.{one.name}" for one in node.names}
                )
        return names

    def resolved(self, node: ast.expr) -> str:
        """The full name of what a call names, as far as imports tell."""
        if isinstance(node, ast.Name):
            return self.imports.get(node.id, node.id)
        if isinstance(node, ast.Attribute):
            return f"{self.resolved(node.value)}.{node.attr}"
        return ""

    def name_of(self, module: str) -> str | None:
        """The name that a module has at the top of this file; None: it is not imported there."""
        for node in self.tree.body:
            if isinstance(node, ast.Import):
                for one in node.names:
                    if one.asname and one.name == module:
                        return one.asname
                    if not one.asname and one.name.partition(".")[0] == module:
                        return module
        return None

    def after_imports(self) -> int:
        """The line behind the imports at the top, torch's among them if it is: 0 if there are none."""
        last, wants_torch = 0, self.name_of("torch") is not None
        for number, node in enumerate(self.tree.body):
            if number == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                last = node.end_lineno or node.lineno
            elif _imports(node) or (isinstance(node, (ast.Try, ast.If)) and all(map(_imports, node.body))):
                last = node.end_lineno or node.lineno
                wants_torch = wants_torch and not _imports_torch(node)
            elif last and not wants_torch:
                break
        return last


LOOPS = (ast.For, ast.AsyncFor, ast.While)
_COMPOUND = (*LOOPS, ast.With, ast.AsyncWith, ast.If, ast.Try, ast.FunctionDef, ast.ClassDef)


def _imports(node: ast.stmt) -> bool:
    return isinstance(node, (ast.Import, ast.ImportFrom))


def _imports_torch(node: ast.stmt) -> bool:
    return isinstance(node, ast.Import) and any(one.name.partition(".")[0] == "torch" for one in node.names)


def _first_line(statement: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(statement, "decorator_list", [])
    return min([statement.lineno, *(one.lineno for one in decorators)])


_AT_ONCE = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def loops_around(source: Source, step: ast.stmt) -> tuple[ast.stmt, ast.stmt]:
    """The innermost and the outermost one in the same function."""
    loops = [one for one in source.above(step) if isinstance(one, LOOPS)]
    if not loops:
        raise NoPatch("the step is in no loop of its function")
    return loops[0], loops[-1]


def is_repeated(source: Source, call: ast.Call) -> bool:
    """Whether it is called in a loop of its function."""
    node: ast.AST = call
    while not isinstance(node, (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        inside, node = node, source.parents[node]
        if isinstance(node, (*LOOPS, *_AT_ONCE)) and inside is not getattr(node, "iter", None):
            return True
    return False


def unused(source: Source, *names: str) -> str:
    """The first of these names that stands for nothing in this file; the last one with a number if all do."""
    used = {node.id for node in ast.walk(source.tree) if isinstance(node, ast.Name)}
    used |= {node.arg for node in ast.walk(source.tree) if isinstance(node, ast.arg)}
    numbered = (f"{names[-1]}_{number}" for number in count(2))
    return next(one for one in chain(names, numbered) if one not in used)
