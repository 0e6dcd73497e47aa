"""What the job does with a value that one of its lines reads, as far as the line and its function tell.

A value that comes late is safe to print and to add up. It is not where it decides how often a loop turns,
what is taken of a tensor, or which way a comparison goes.
"""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from types import CodeType
from typing import Literal

Use = Literal["value", "branch", "size", "unknown"]  # "size": of a loop, a tensor or an index
# Calls whose arguments are sizes or counts.
_SIZED = {"range", "islice", "view", "reshape", "expand", "repeat", "repeat_interleave", "narrow", "split"}
_SIZED |= {"chunk", "topk", "pad", "zeros", "ones", "full", "empty", "arange", "randint", "randn", "rand"}
_READS = {"item", "tolist", "cpu", "float", "int", "bool"}
_ORDER: tuple[Use, ...] = ("value", "branch", "size", "unknown")
_Spot = tuple[int, int, int, int]  # line, column, end line, end column, as the parser counts them


class Uses:
    """Of one file."""

    def __init__(self, text: str) -> None:
        self._tree = ast.parse(text)
        self._parents = {child: node for node in ast.walk(self._tree) for child in ast.iter_child_nodes(node)}

    def of(self, line: int, spot: _Spot | None) -> Use:
        """`spot`: the expression that was running; without it, all in the line that look like a read."""
        node = self._expression(spot) if spot is not None else None
        if node is None:
            found = list(self._in_line(line))
            reads = [one for one in found if isinstance(one, ast.Call) and _called(one) in _READS]
            return _most([self._of_node(one) for one in reads or found]) if found else "unknown"
        return self._of_node(node)

    def _expression(self, spot: _Spot) -> ast.expr | None:
        for node in ast.walk(self._tree):
            if isinstance(node, ast.expr) and _spot_of(node) == spot:
                return node
        return None

    def _in_line(self, line: int) -> Iterator[ast.expr]:
        """All expressions that stand in a line."""
        for node in ast.walk(self._tree):
            if isinstance(node, ast.expr) and node.lineno <= line <= (node.end_lineno or node.lineno):
                yield node

    def _of_node(self, node: ast.expr) -> Use:
        use, statement = self._directly(node)
        targets: list[ast.expr] = []
        if isinstance(statement, ast.Assign):
            targets = statement.targets
        elif isinstance(statement, (ast.AugAssign, ast.AnnAssign)):
            targets = [statement.target]
        inside = (one for target in targets for one in ast.walk(target))
        names = {one.id for one in inside if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
        return _most([use, *(self._directly(one)[0] for one in self._loads(statement, names))])

    def _loads(self, statement: ast.AST, names: set[str]) -> Iterator[ast.Name]:
        """Where the same function reads these names."""
        for node in ast.walk(self._scope(statement)) if names else ():
            if isinstance(node, ast.Name) and node.id in names and isinstance(node.ctx, ast.Load):
                yield node

    def _scope(self, node: ast.AST) -> ast.AST:
        while not isinstance(node, (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            node = self._parents[node]
        return node

    def _directly(self, node: ast.AST) -> tuple[Use, ast.AST]:
        """By what is around it, up to its statement."""
        found: list[Use] = ["value"]
        while not isinstance(node, ast.stmt) and node in self._parents:
            parent = self._parents[node]
            found.append(_in(parent, node))
            node = parent
        return _most(found), node


def _in(parent: ast.AST, child: ast.AST) -> Use:
    if isinstance(parent, ast.While) and child is parent.test:
        return "size"
    if isinstance(parent, (ast.For, ast.AsyncFor, ast.comprehension)) and child is parent.iter:
        return "size"
    if isinstance(parent, ast.Subscript) and child is parent.slice:
        return "size"
    if isinstance(parent, ast.Call) and child is not parent.func and _called(parent) in _SIZED:
        return "size"
    if isinstance(parent, (ast.If, ast.IfExp, ast.Assert)) and child is parent.test:
        return "branch"
    if isinstance(parent, (ast.Compare, ast.BoolOp, ast.Match, ast.comprehension)):
        return "branch"
    if isinstance(parent, ast.UnaryOp) and isinstance(parent.op, ast.Not):
        return "branch"
    return "value"


def _called(call: ast.Call) -> str:
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else ""


def _spot_of(node: ast.expr) -> _Spot:
    return node.lineno, node.col_offset, node.end_lineno or -1, node.end_col_offset or -1


def _most(found: list[Use]) -> Use:
    return max(found, key=_ORDER.index)


@lru_cache(maxsize=64)
def _uses(file: str) -> Uses | None:
    try:
        return Uses("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return None


def use_of(code: CodeType, offset: int, line: int) -> Use:
    """Of a value that is read at this instruction of the job's code."""
    uses = _uses(code.co_filename)
    return uses.of(line, _running(code, offset)) if uses is not None else "unknown"


def _running(code: CodeType, offset: int) -> _Spot | None:
    positions = getattr(code, "co_positions", None)  # from Python 3.11 on
    if positions is None:
        return None
    line, end_line, column, end_column = next(islice(positions(), offset // 2, None), (None,) * 4)
    if line is None or end_line is None or column is None or end_column is None:
        return None
    return line, column, end_line, end_column
